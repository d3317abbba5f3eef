import { problem } from '../problem.js';

/** Bytes `start` to `end`, both inclusive. */
export interface ByteRange {
  readonly start: number;
  readonly end: number;
}

/**
 * The one range of a `Range` field (RFC 9110 §14.2). Undefined means the whole: no field, another unit, several ranges,
 * or a malformed one. Throws 416 when it lies behind the end.
 */
export function parseRange(field: string, size: number): ByteRange | undefined {
  const match = /^bytes=\s*(\d{0,15})-(\d{0,15})\s*$/i.exec(field);
  const [, from = '', to = ''] = match ?? [];
  if (from === '' && to === '') return undefined;
  if (from !== '' && to !== '' && Number(to) < Number(from)) return undefined;
  const start = from === '' ? Math.max(0, size - Number(to)) : Number(from);
  const end = from === '' || to === '' ? size - 1 : Math.min(Number(to), size - 1);
  if (start >= size || (from === '' && Number(to) === 0)) {
    throw problem('range-not-satisfiable', { headers: { 'Content-Range': `bytes */${size}` } });
  }
  return { start, end };
}

/** Types that a browser only shows: pictures, sound, plain text. Everything else is saved instead of opened. */
const passive = /^(?:image\/(?:png|jpeg|gif|webp|avif|bmp)|audio\/[\w.+-]+|video\/[\w.+-]+|text\/plain)$/;
/** Types that could act when opened are not even named. */
const active = /html|xml|svg|script|flash|java|wasm|mhtml|multipart/;

export interface SafeBytes {
  readonly contentType: string;
  readonly disposition: string;
}

/** How bytes of unknown origin go out: type and Content-Disposition (RFC 6266, RFC 8187). */
export function safeBytes(
  contentType: string,
  filename: string | undefined,
  wished: 'inline' | 'attachment' | undefined,
): SafeBytes {
  const type = (contentType.split(';')[0] ?? '').trim().toLowerCase();
  const known = /^[\w.+-]+\/[\w.+-]+$/.test(type) && !active.test(type);
  // Text of any kind is shown as what it is made of; no browser runs that.
  const shown = type.startsWith('text/') ? 'text/plain' : known ? type : 'application/octet-stream';
  const disposition = passive.test(type) && wished !== 'attachment' ? 'inline' : 'attachment';
  return {
    contentType: withCharset(shown, contentType),
    disposition: filename === undefined ? disposition : `${disposition}; ${dispositionName(filename)}`,
  };
}

function withCharset(type: string, contentType: string): string {
  const charset = /;\s*charset="?([\w.:-]{1,40})"?/i.exec(contentType)?.[1];
  return type === 'text/plain' ? `${type}; charset=${charset ?? 'utf-8'}` : type;
}

function dispositionName(filename: string): string {
  const clean = filename
    .normalize('NFC')
    .replaceAll(/[\p{Cc}\p{Cf}\p{Cs}/\\]/gu, '_')
    .slice(0, 200);
  const ascii = clean.replaceAll(/[^\x20-\x7e]|["%;]/g, '_');
  const encoded = encodeURIComponent(clean).replaceAll(/['()*]/g, (mark) => `%${mark.charCodeAt(0).toString(16)}`);
  return `filename="${ascii || 'file'}"; filename*=UTF-8''${encoded || 'file'}`;
}
