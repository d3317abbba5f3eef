import type { EffectiveValue } from '../contracts/server.js';
import { isSecretName, MASK, redact, redactText } from '../log/redact.js';
import { childOutline, isSecret, type Outline } from '../contracts/outline.js';
import { type KeyPath, spansOf } from './positions.js';

/** Masks an effective value: by the schema, or by its name or form where a plugin's author did not mark it. */
export function maskedValue(entry: EffectiveValue): EffectiveValue {
  const secret = entry.secret || isHiddenByName(entry.key, isText(entry.value) ? 'text' : typeof entry.value);
  const show = secret ? hidden : redact;
  return {
    ...entry,
    value: show(entry.value),
    default: secret ? (isText(entry.default) ? MASK : entry.default) : redact(entry.default),
    ...(entry.atStart !== undefined && { atStart: show(entry.atStart) }),
    ...(entry.pending !== undefined && { pending: show(entry.pending) }),
    secret,
  };
}

/** Text below a secret name is secret; a number only when its own name is; a boolean never. */
function isHiddenByName(key: KeyPath, kind: string): boolean {
  if (kind === 'text') return isSecretName(key);
  return kind === 'number' && isSecretName(key.slice(key.lastIndexOf('.') + 1));
}

const hidden = (value: unknown): unknown => (value === null || value === '' ? value : MASK);

const isText = (value: unknown): boolean =>
  (typeof value === 'string' && value !== '') || (typeof value === 'object' && value !== null);

/**
 * A JSON5 text with secrets masked: values that the schema marks or whose name is secret, and whatever looks like a
 * secret in values and comments. `{env: …}` and `{file: …}` only name where a secret is, and stay.
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

/** Keys whose value is a secret in clear text, by schema, name or form. */
export function literalSecrets(text: string, outline: Outline): readonly KeyPath[] {
  const spans = spansOf(text);
  const above = (key: KeyPath): KeyPath => key.slice(0, Math.max(0, key.lastIndexOf('.')));
  const counts = new Map<KeyPath, number>();
  for (const key of spans.keys()) counts.set(above(key), (counts.get(above(key)) ?? 0) + 1);
  const isReference = (key: KeyPath): boolean => /\.(?:file|env)$/.test(key) && counts.get(above(key)) === 1;
  return [...spans]
    .filter(([key, [start, end]]) => {
      const value = text.slice(start, end);
      if (/^(?:null$|""$|''$|[[{])/.test(value)) return false;
      return (!isReference(key) && isHidden(key, value.charAt(0), outline)) || redactText(value) !== value;
    })
    .map(([key]) => key);
}

function secretSpans(text: string, outline: Outline): readonly (readonly [number, number])[] {
  const spans = [...spansOf(text)]
    .filter(([key, [start]]) => isHidden(key, text.charAt(start), outline))
    .map(([, span]) => span)
    .toSorted(([a], [b]) => a - b);
  let last = 0;
  // Drops spans inside of others.
  return spans.filter(([start, end]) => {
    if (start < last) return false;
    last = end;
    return true;
  });
}

function isHidden(key: KeyPath, first: string, outline: Outline): boolean {
  const at = key.split('.').reduce<Outline | undefined>((above, step) => above && childOutline(above, step), outline);
  if (isSecret(at)) return first !== '{';
  return isHiddenByName(key, /["'[]/.test(first) ? 'text' : /[-+.\d]/.test(first) ? 'number' : 'other');
}
