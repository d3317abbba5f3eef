import { invalid } from './username.js';

/** Bytes of a quota as somebody gave it: a number, or a size such as `1.5 GB`. Throws `invalid`. */
export function quotaOf(given: number | string | null): number | null {
  if (typeof given !== 'string') return given;
  const bytes = bytesOf(given);
  if (bytes === undefined) throw invalid('quota', 'The quota is a number of bytes, or a size such as 500 MB.');
  return bytes;
}

const steps: Readonly<Record<string, number>> = { '': 1, k: 2 ** 10, m: 2 ** 20, g: 2 ** 30, t: 2 ** 40 };

/** `1.5 GB` → bytes, in steps of 1024 as pages show them. */
function bytesOf(text: string): number | undefined {
  const [, count, unit = ''] = /^\s*(\d{1,9}(?:\.\d{1,3})?)\s*([kmgt]?)i?b?\s*$/i.exec(text) ?? [];
  const bytes = Math.round(Number(count) * (steps[unit.toLowerCase()] ?? Number.NaN));
  return Number.isSafeInteger(bytes) && bytes > 0 ? bytes : undefined;
}
