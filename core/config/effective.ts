import type { EffectiveValue, Origin } from '../contracts/server.js';
import { MASK } from '../log/redact.js';
import {
  alternatives,
  childOutline,
  defaultOf,
  descriptionOf,
  isSecret,
  knownKeys,
  type Outline,
} from '../contracts/outline.js';
import { joinPath, type KeyPath, type FilePosition } from './positions.js';

/** Origins of values that are not defaults. */
export interface Origins {
  readonly places: ReadonlyMap<KeyPath, FilePosition>;
  /** Keys that override the files. */
  readonly overrides: ReadonlyMap<KeyPath, { readonly origin: Origin; readonly where: string | null }>;
}

/**
 * Every key of `settings` below `base` with value, origin, default and description, those that are not set among them.
 * Masks values that the schema marks as secret.
 */
export function effectiveValues(
  settings: unknown,
  defaults: unknown,
  outline: Outline,
  base: KeyPath,
  origins: Origins,
): readonly EffectiveValue[] {
  const found: EffectiveValue[] = [];

  function walk(value: unknown, defaultValue: unknown, at: Outline | undefined, key: KeyPath): void {
    if (isSecret(at)) {
      found.push({ ...describe(key, at), value: value === undefined ? null : MASK, default: null, secret: true });
      return;
    }
    const unset = unsetKeys(value, at);
    const entries = entriesOf(value);
    if (entries === undefined && unset.length === 0) {
      // Beside an option that has no default, and in a record, only the schema knows the others.
      const usual = defaultValue ?? (at && defaultOf(at)) ?? null;
      found.push({ ...describe(key, at), value: value ?? null, default: usual, secret: false });
      return;
    }
    for (const [name, below] of [...(entries ?? []), ...unset]) {
      walk(below, memberAt(defaultValue, name), at && childOutline(at, name), joinPath(key, name));
    }
  }

  function describe(key: KeyPath, at: Outline | undefined) {
    const { origin, where } = originOf(key, origins);
    return { key, origin, where, description: descriptionOf(at) };
  }

  walk(settings, defaults, outline, base);
  return found;
}

/** Every value of `settings` by its key, as granular as `effectiveValues`; secrets are not masked. */
export function leavesOf(settings: unknown): ReadonlyMap<KeyPath, unknown> {
  const found = new Map<KeyPath, unknown>();
  function walk(value: unknown, key: KeyPath): void {
    const entries = entriesOf(value);
    if (entries === undefined) found.set(key, value);
    else for (const [name, below] of entries) walk(below, joinPath(key, name));
  }
  walk(settings, '');
  return found;
}

/** Members to descend into; undefined for what is one value: scalars, lists of scalars, empty containers. */
function entriesOf(value: unknown): readonly (readonly [string, unknown])[] | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  if (Array.isArray(value) && value.every((element) => typeof element !== 'object')) return undefined;
  const entries = Object.entries(value);
  return entries.length === 0 ? undefined : entries;
}

/** Keys of an object that its schema has; none where the schema has objects of several kinds. */
function unsetKeys(value: unknown, at: Outline | undefined): readonly (readonly [string, undefined])[] {
  if (at === undefined || typeof value !== 'object' || value === null || Array.isArray(value)) return [];
  const [kind, ...others] = alternatives(at).filter(({ properties }) => properties !== undefined);
  if (kind === undefined || others.length > 0) return [];
  return knownKeys(kind).flatMap((name) => (Object.hasOwn(value, name) ? [] : [[name, undefined] as const]));
}

const memberAt = (value: unknown, name: string): unknown =>
  typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[name] : undefined;

function originOf(key: KeyPath, origins: Origins): { readonly origin: Origin; readonly where: string | null } {
  for (let path = key; path !== ''; path = path.slice(0, Math.max(0, path.lastIndexOf('.')))) {
    const override = origins.overrides.get(path);
    if (override !== undefined) return override;
    const place = path === key ? origins.places.get(path) : undefined;
    if (place !== undefined) return { origin: 'file', where: `${place.file}:${place.line}` };
  }
  return { origin: 'default', where: null };
}
