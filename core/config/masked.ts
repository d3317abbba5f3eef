import type { EffectiveValue } from '../contracts/server.js';
import type { KeyPath } from './positions.js';
import { isSecretName, MASK, redact } from '../log/redact.js';

/** The schema has marked most secrets; an option of a plugin whose author forgot is known by its name or its looks. */
export function masked(entry: EffectiveValue): EffectiveValue {
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

/** Text below a secret name is a secret; a number only when that is its own name, a yes or no never. */
export function isHiddenByName(key: KeyPath, kind: string): boolean {
  if (kind === 'text') return isSecretName(key);
  return kind === 'number' && isSecretName(key.slice(key.lastIndexOf('.') + 1));
}

const hidden = (value: unknown): unknown => (value === null || value === '' ? value : MASK);

const isText = (value: unknown): boolean =>
  (typeof value === 'string' && value !== '') || (typeof value === 'object' && value !== null);
