import type { Complaint } from './complaint.js';
import type { ConfigFile } from './file.js';
import { joinPath, type KeyPath, type FilePosition } from './positions.js';

/** Several configuration files merged. */
export interface MergedLayers {
  readonly content: Readonly<Record<string, unknown>>;
  readonly places: ReadonlyMap<KeyPath, FilePosition>;
}

/** Keys that only the operator's own file may set: where data is, which code runs, where layers come from. */
const operatorKeys: readonly KeyPath[] = ['data', 'sitePlugins', 'plugins.config.sync'];

/** Merges files, the lowest first: objects are merged, other values replaced. */
export function mergeLayers(files: readonly ConfigFile[]): MergedLayers {
  const places = new Map<KeyPath, FilePosition>();
  let content: Readonly<Record<string, unknown>> = {};
  for (const file of files) {
    content = mergeObjects(content, file.content, '', places);
    for (const [key, position] of file.positions) places.set(key, { ...position, file: file.path });
  }
  return { content, places };
}

function mergeObjects(
  below: Readonly<Record<string, unknown>>,
  above: Readonly<Record<string, unknown>>,
  base: KeyPath,
  places: Map<KeyPath, FilePosition>,
): Record<string, unknown> {
  const merged = new Map(Object.entries(below));
  for (const [name, value] of Object.entries(above)) {
    const key = joinPath(base, name);
    const old = merged.get(name);
    if (isObject(old) && isObject(value)) merged.set(name, mergeObjects(old, value, key, places));
    else {
      if (merged.has(name)) forgetPositions(key, places);
      merged.set(name, value);
    }
  }
  // Keeps a key called __proto__ as an unknown key.
  return Object.fromEntries(merged);
}

/** Removes the positions inside a replaced value. */
function forgetPositions(key: KeyPath, places: Map<KeyPath, FilePosition>): void {
  for (const place of places.keys()) if (place.startsWith(`${key}.`)) places.delete(place);
}

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Complaints about keys that a layer must not set. */
export function forbiddenKeyComplaints({ content, positions, path }: ConfigFile): readonly Complaint[] {
  return operatorKeys
    .filter((key) => valueAt(content, key) !== undefined)
    .map((key) => {
      const position = positions.get(key);
      const sentence = 'only the configuration file of the server itself may say that, not one that is synced.';
      return { key, sentence, place: position && { ...position, file: path } };
    });
}

/** Whether the operator's own file enables layers. */
export const enablesLayers = (content: Readonly<Record<string, unknown>>): boolean =>
  isObject(valueAt(content, 'plugins.config.sync'));

function valueAt(content: unknown, key: KeyPath): unknown {
  return key
    .split('.')
    .reduce<unknown>((at, step) => (isObject(at) && Object.hasOwn(at, step) ? at[step] : undefined), content);
}
