import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { childOutline, isSecret, type Outline } from '../contracts/outline.js';
import { joinPath, type KeyPath } from './positions.js';

/** Where a secret was found, other than in the configuration file. */
export interface SecretSource {
  readonly origin: 'environment' | 'file';
  readonly where: string;
}

/** Placeholder of a missing secret; the configuration is then refused. */
const missingSecret = 'not found';

export interface ResolvedSecrets {
  readonly value: unknown;
  readonly sources: ReadonlyMap<KeyPath, SecretSource>;
  /** Unresolved secrets by path. */
  readonly complaints: ReadonlyMap<KeyPath, string>;
}

/**
 * Replaces `{env: "NAME"}` and `{file: "path"}` where the schema marks a secret. Paths are relative to `folder`.
 *
 * @param outline of the value; called only when needed, since it is expensive
 */
export function resolveSecrets(
  value: unknown,
  outline: () => Outline,
  folder: string,
  env: Readonly<Record<string, string | undefined>>,
): ResolvedSecrets {
  const sources = new Map<KeyPath, SecretSource>();
  const complaints = new Map<KeyPath, string>();

  function walk(node: unknown, at: Outline | undefined, path: KeyPath): unknown {
    if (typeof node !== 'object' || node === null) return node;
    if (isSecret(at)) return lookUp(node as Record<string, unknown>, path);
    if (Array.isArray(node))
      return node.map((element, index) => walk(element, child(at, `${index}`), joinPath(path, index)));
    return Object.fromEntries(
      Object.entries(node).map(([key, below]) => [key, walk(below, child(at, key), joinPath(path, key))]),
    );
  }

  function lookUp(node: Record<string, unknown>, path: KeyPath): unknown {
    const { env: name, file } = referenceIn(node);
    if (name !== undefined) {
      const found = env[name];
      sources.set(path, { origin: 'environment', where: name });
      if (found !== undefined && found !== '') return found;
      complaints.set(path, `the environment variable ${name} is ${found === '' ? 'empty' : 'not set'}`);
      return missingSecret;
    }
    if (file !== undefined) {
      const place = resolve(folder, file);
      sources.set(path, { origin: 'file', where: place });
      const found = readSecret(place);
      if (found !== undefined && found !== '') return found;
      complaints.set(path, `the file ${place} ${found === '' ? 'is empty' : 'cannot be read'}`);
      return missingSecret;
    }
    return node;
  }

  return { value: holdsReference(value) ? walk(value, outline(), '') : value, sources, complaints };
}

/** Where a secret is; empty when the object is no such reference. */
function referenceIn(node: object): { readonly env?: string; readonly file?: string } {
  const [[name, place] = [], ...others] = Object.entries(node) as readonly (readonly [string, unknown])[];
  if (others.length > 0 || typeof place !== 'string') return {};
  return name === 'env' ? { env: place } : name === 'file' ? { file: place } : {};
}

const holdsReference = (value: unknown): boolean =>
  typeof value === 'object' &&
  value !== null &&
  (Object.keys(referenceIn(value)).length > 0 || Object.values(value).some(holdsReference));

const child = (outline: Outline | undefined, key: string): Outline | undefined =>
  outline === undefined ? undefined : childOutline(outline, key);

function readSecret(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8').replace(/\r?\n$/, '');
  } catch {
    return undefined;
  }
}
