import { MASK, redactText } from '../log/redact.js';
import { isHiddenByName } from './masked.js';
import { childOutline, isSecret, type Outline } from './outline.js';
import { spansOf, type KeyPath } from './positions.js';

/**
 * A JSON5 text without its secrets: values that the schema marks or whose name gives them away, and whatever in values and
 * comments looks like one. `{env: …}` and `{file: …}` only name the place of a secret and stay.
 */
export function maskedText(text: string, outline: Outline): string {
  let shown = '';
  let at = 0;
  for (const [start, end] of secretSpans(text, outline)) {
    shown += `${text.slice(at, start)}"${MASK}"`;
    at = end;
  }
  return redactText(shown + text.slice(at));
}

function secretSpans(text: string, outline: Outline): readonly (readonly [number, number])[] {
  const spans = [...spansOf(text)]
    .filter(([key, [start]]) => isHidden(key, text.charAt(start), outline))
    .map(([, span]) => span)
    .toSorted(([a], [b]) => a - b);
  // What lies in another one goes with it.
  return spans.filter(([start], index) => !spans.slice(0, index).some(([, end]) => start < end));
}

function isHidden(key: KeyPath, first: string, outline: Outline): boolean {
  const at = key.split('.').reduce<Outline | undefined>((above, step) => above && childOutline(above, step), outline);
  if (isSecret(at)) return first !== '{';
  return isHiddenByName(key, /["'[]/.test(first) ? 'text' : /[-+.\d]/.test(first) ? 'number' : 'other');
}
