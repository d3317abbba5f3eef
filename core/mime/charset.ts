import { isUtf8 as isWholeUtf8 } from 'node:buffer';
import { TextDecoder } from 'node:util';

const known = new Map<string, TextDecoder>();
const maxKnown = 100;
const lenientUtf8 = new TextDecoder('utf-8');
/** Windows-1252 for 0x80 to 0x9f; the platform's decoder returns control characters. */
const westernSigns = '€\x81‚ƒ„…†‡ˆ‰Š‹Œ\x8dŽ\x8f\x90‘’“”•–—˜™š›œ\x9džŸ';

/** Labels that mean little or are often wrong: the charset is detected instead. */
const vague = new Set([
  '',
  'us-ascii',
  'ascii',
  'ansi_x3.4-1968',
  'utf-8',
  'utf8',
  'unknown-8bit',
  'x-unknown',
  'default',
]);

/**
 * Decodes `bytes` from a charset. For an unknown, missing or wrong label: UTF-8 when the bytes are UTF-8, else
 * windows-1252, which defines every byte. Never throws.
 */
export function decodeCharset(bytes: Uint8Array, label = ''): string {
  const decoder = decoderOf(effectiveCharset(bytes, label));
  if (decoder === undefined || decoder.encoding === 'windows-1252') return decodeWestern(bytes);
  try {
    return decoder.decode(bytes);
  } catch {
    return decodeWestern(bytes);
  }
}

function decodeWestern(bytes: Uint8Array): string {
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('latin1');
  return text.replace(/[\u0080-\u009f]/g, (sign) => westernSigns[sign.charCodeAt(0) - 0x80] ?? sign);
}

/** The charset to decode with: the label if it is meaningful, else the detected one. */
export function effectiveCharset(bytes: Uint8Array, label: string): string {
  const wanted = label.trim().toLowerCase();
  if (!vague.has(wanted)) return decoderOf(wanted) === undefined ? guess(bytes, false) : wanted;
  return guess(bytes, wanted.startsWith('utf'));
}

function guess(bytes: Uint8Array, claimsUtf8: boolean): 'utf-8' | 'windows-1252' {
  return isUtf8(bytes) || (claimsUtf8 && isMostlyUtf8(bytes)) ? 'utf-8' : 'windows-1252';
}

/** A character cut off at the end is no error if other multi-byte characters precede it. */
function isUtf8(bytes: Uint8Array): boolean {
  // Creating a decoder costs as much as the rest of a short message.
  if (isWholeUtf8(bytes)) return true;
  try {
    const decoder = new TextDecoder('utf-8', { fatal: true });
    const text = decoder.decode(bytes, { stream: true });
    if (!/\P{ASCII}/u.test(text)) decoder.decode();
    return true;
  } catch {
    return false;
  }
}

/** One broken byte must not turn a whole UTF-8 text into mojibake. */
function isMostlyUtf8(bytes: Uint8Array): boolean {
  const text = lenientUtf8.decode(bytes);
  let broken = 0;
  let international = 0;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code === 0xfffd) broken++;
    else if (code > 0x7f) international++;
  }
  return international >= broken;
}

function decoderOf(label: string): TextDecoder | undefined {
  const found = known.get(label);
  if (found !== undefined) return found;
  try {
    const decoder = new TextDecoder(label);
    if (known.size < maxKnown) known.set(label, decoder);
    return decoder;
  } catch {
    return undefined;
  }
}
