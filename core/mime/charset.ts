import { isUtf8 as isWholeUtf8 } from 'node:buffer';
import { TextDecoder } from 'node:util';

const known = new Map<string, TextDecoder>();
const maxKnown = 100;
const lenientUtf8 = new TextDecoder('utf-8');
/** What windows-1252 has in the place of the controls 0x80 to 0x9f; the platform's decoder gives the controls. */
const westernSigns = '€\x81‚ƒ„…†‡ˆ‰Š‹Œ\x8dŽ\x8f\x90‘’“”•–—˜™š›œ\x9džŸ';

/** Labels that say nothing, or are often a lie: what is in them is found by looking. */
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
 * Text of `bytes` in that charset. An unknown, missing or lying label is met by UTF-8 when the bytes are UTF-8, else by
 * windows-1252, which knows every byte. Never throws.
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

/** The label that the text is really in: the given one if it means something, else what the bytes look like. */
export function effectiveCharset(bytes: Uint8Array, label: string): string {
  const wanted = label.trim().toLowerCase();
  if (!vague.has(wanted)) return decoderOf(wanted) === undefined ? guess(bytes, false) : wanted;
  return guess(bytes, wanted.startsWith('utf'));
}

function guess(bytes: Uint8Array, claimsUtf8: boolean): 'utf-8' | 'windows-1252' {
  return isUtf8(bytes) || (claimsUtf8 && isMostlyUtf8(bytes)) ? 'utf-8' : 'windows-1252';
}

/** A character that is cut off by the end of the bytes is no fault, if there are others in front of it. */
function isUtf8(bytes: Uint8Array): boolean {
  // A decoder is made in as much time as all the rest of a short message takes.
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
