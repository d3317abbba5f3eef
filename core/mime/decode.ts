/**
 * Decodes a Content-Transfer-Encoding (RFC 2045 §6). An unknown encoding leaves the bytes unchanged. Never throws;
 * linear.
 */
export function decodeTransfer(bytes: Buffer, encoding: string): Buffer {
  switch (encoding.trim().toLowerCase()) {
    case 'base64':
      return decodeBase64(bytes);
    case 'quoted-printable':
      return decodeQuotedPrintable(bytes);
    default:
      return bytes;
  }
}

/** Size of the result of `decodeTransfer` without computing it. */
export function decodedSize(bytes: Buffer, encoding: string): number {
  switch (encoding.trim().toLowerCase()) {
    case 'base64':
      return base64Size(bytes);
    case 'quoted-printable':
      return decodeQuotedPrintable(bytes).length;
    default:
      return bytes.length;
  }
}

const pad = 0x3d;
const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
/** Value of a base64 digit; 64 for padding, 255 for what is skipped. */
const digits = new Uint8Array(256).fill(255);
for (let i = 0; i < alphabet.length; i++) digits[alphabet.charCodeAt(i)] = i;
digits[pad] = 64;

/**
 * Tolerant: skips junk, restarts after padding in the middle (joined pieces), uses a truncated end as far as possible.
 */
export function decodeBase64(bytes: Buffer): Buffer {
  const out = Buffer.allocUnsafe(Math.ceil((bytes.length * 3) / 4));
  let length = 0;
  let bits = 0;
  let count = 0;
  for (let i = 0; i < bytes.length; i++) {
    const digit = digits[bytes[i] ?? 0] ?? 255;
    if (digit === 255) continue;
    if (digit === 64) {
      count = 0;
      continue;
    }
    bits = ((bits << 6) | digit) & 0xffffff;
    count++;
    if (count > 1) out[length++] = (bits >> surplus(count)) & 0xff;
    if (count === 4) count = 0;
  }
  return out.subarray(0, length);
}

/** Bits below the next whole byte after that many digits of a group. */
function surplus(count: number): number {
  return count === 2 ? 4 : count === 3 ? 2 : 0;
}

function base64Size(bytes: Buffer): number {
  let size = 0;
  let count = 0;
  for (let i = 0; i < bytes.length; i++) {
    const digit = digits[bytes[i] ?? 0] ?? 255;
    if (digit === 255) continue;
    if (digit === 64) {
      count = 0;
      continue;
    }
    count++;
    if (count > 1) size++;
    if (count === 4) count = 0;
  }
  return size;
}

/** RFC 2045 §6.7. A `=` without an escape is literal; blanks at the end of a line are dropped. */
function decodeQuotedPrintable(bytes: Buffer): Buffer {
  const out = Buffer.allocUnsafe(bytes.length);
  let length = 0;
  /** Position up to which nothing is trimmed: encoded blanks are content. */
  let kept = 0;
  for (let i = 0; i < bytes.length;) {
    const byte = bytes[i] ?? 0;
    if (byte === 0x3d) {
      const soft = softBreak(bytes, i + 1);
      const value = soft === 0 ? hexByte(bytes, i + 1) : -1;
      if (value >= 0) out[length++] = value;
      else if (soft === 0) out[length++] = byte;
      i += soft === 0 ? (value >= 0 ? 3 : 1) : soft + 1;
      kept = length;
      continue;
    }
    if (byte === 0x0d || byte === 0x0a) {
      while (length > kept && isBlank(out[length - 1])) length--;
      kept = length + 1;
    }
    out[length++] = byte;
    i++;
  }
  return out.subarray(0, length);
}

/**
 * Length of `*blank [CR] LF` at `at`, the rest of a soft line break; the end of the data counts as one. 0 if there is
 * none.
 */
function softBreak(bytes: Buffer, at: number): number {
  let i = at;
  // RFC 2045 lines have 76 characters; more blanks are not transport padding.
  while (i < bytes.length && i - at < 80 && isBlank(bytes[i])) i++;
  if (i >= bytes.length) return Math.max(1, i - at);
  if (bytes[i] === 0x0d && bytes[i + 1] === 0x0a) return i + 2 - at;
  return bytes[i] === 0x0a ? i + 1 - at : 0;
}

function isBlank(byte: number | undefined): boolean {
  return byte === 0x20 || byte === 0x09;
}

function hexByte(bytes: Buffer, at: number): number {
  const high = hexDigit(bytes[at]);
  const low = hexDigit(bytes[at + 1]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

export function hexDigit(byte: number | undefined): number {
  if (byte === undefined) return -1;
  if (byte >= 0x30 && byte <= 0x39) return byte - 0x30;
  const letter = byte | 0x20;
  return letter >= 0x61 && letter <= 0x66 ? letter - 0x57 : -1;
}
