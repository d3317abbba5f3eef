import { z } from 'zod';
import { type InvalidPlace, startError, type StartError } from '../problem.js';
import type { ConfigFile } from './file.js';
import { childOutline, knownKeys, type Outline } from '../contracts/outline.js';
import { firstPositionText, joinPath, type KeyPath, type FilePosition } from './positions.js';

/** A mistake in the configuration, as a line for an operator: place, key, reason, what to write instead. */
export interface Complaint {
  readonly key: KeyPath;
  readonly sentence: string;
  readonly place: FilePosition | undefined;
}

/** Complaints from the issues of zod. `base` is the path of the checked part. */
export function complaintsOf(
  error: z.ZodError,
  base: KeyPath,
  outline: Outline,
  places: ReadonlyMap<KeyPath, FilePosition>,
): readonly Complaint[] {
  return error.issues.flatMap(furthestIssues).flatMap((issue) => {
    const path = issue.path.map(String);
    const key = path.reduce<KeyPath>(joinPath, base);
    if (issue.code === 'unrecognized_keys') {
      const at = path.reduce<Outline | undefined>((above, step) => above && childOutline(above, step), outline);
      return issue.keys.map((name) => unknownKey(joinPath(key, name), name, at, places));
    }
    return [{ key, sentence: lowerFirst(issue.message), place: nearestPosition(key, places) }];
  });
}

/** A union reports the issues of all its branches; the branch that matched furthest is the most useful. */
function furthestIssues(issue: z.core.$ZodIssue): readonly z.core.$ZodIssue[] {
  if (issue.code !== 'invalid_union') return [issue];
  const deepest = issue.errors.toSorted((a, b) => depth(b) - depth(a))[0] ?? [];
  if (depth(deepest) === 0) return [issue];
  return deepest.map((inner) => ({ ...inner, path: [...issue.path, ...inner.path] })).flatMap(furthestIssues);
}

const depth = (issues: readonly z.core.$ZodIssue[]): number =>
  Math.max(0, ...issues.map(({ path, code }) => path.length + (code === 'unrecognized_keys' ? 1 : 0)));

function unknownKey(
  key: KeyPath,
  name: string,
  at: Outline | undefined,
  places: ReadonlyMap<KeyPath, FilePosition>,
): Complaint {
  const known = at === undefined ? [] : knownKeys(at);
  const close = known.toSorted((a, b) => editDistance(name, a) - editDistance(name, b))[0];
  const hint =
    close !== undefined && editDistance(name, close) <= Math.max(2, name.length / 3)
      ? `did you mean ${close}?`
      : `known keys here: ${known.join(', ') || 'none'}.`;
  return { key, sentence: `unknown key; ${hint}`, place: nearestPosition(key, places) };
}

export function repeatedKeyComplaints({
  path: file,
  repeated,
}: Pick<ConfigFile, 'path' | 'repeated'>): readonly Complaint[] {
  return repeated.map(({ path, position, first }) => ({
    key: path.reduce<KeyPath>(joinPath, ''),
    sentence: `${firstPositionText(first)}.`,
    place: { file, ...position },
  }));
}

/** The position of the key, or of its closest ancestor. */
function nearestPosition(key: KeyPath, places: ReadonlyMap<KeyPath, FilePosition>): FilePosition | undefined {
  for (let path = key; path !== ''; path = path.slice(0, Math.max(0, path.lastIndexOf('.')))) {
    const found = places.get(path);
    if (found !== undefined) return found;
  }
  return undefined;
}

const lowerFirst = (text: string): string => text.charAt(0).toLowerCase() + text.slice(1);

/** Levenshtein distance of two keys, case-insensitive. */
function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i += 1) {
    const above = row;
    row = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const substitution = (above[j - 1] ?? 0) + (a[i - 1]?.toLowerCase() === b[j - 1]?.toLowerCase() ? 0 : 1);
      row.push(Math.min(substitution, (above[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1));
    }
  }
  return row[b.length] ?? 0;
}

/** `postern.json5:3:5: smtp.listeners.0.prot: unknown key; did you mean port?` */
function printComplaint({ key, place, sentence }: Complaint, file: string | null): string {
  const at = place === undefined ? (file === null ? '' : `${file}: `) : `${place.file}:${place.line}:${place.column}: `;
  return `${at}${key === '' ? '' : `${key}: `}${sentence}`;
}

/** A refused configuration: one text for a terminal, and each mistake. */
interface ConfigurationError extends StartError {
  readonly places: readonly InvalidPlace[];
}

export function configurationError(complaints: readonly Complaint[], file: string | null): ConfigurationError {
  const places = complaints.map((complaint) => ({
    pointer: pointerOf(complaint.key),
    message: printComplaint(complaint, file),
  }));
  return Object.assign(startError(places.map(({ message }) => message).join('\n')), { places });
}

/** The mistakes of a start error; one without keys is one mistake at `key`. */
export function invalidPlacesOf(error: StartError, key: KeyPath = ''): readonly InvalidPlace[] {
  return 'places' in error
    ? (error as ConfigurationError).places
    : [{ pointer: pointerOf(key), message: error.message }];
}

/** RFC 6901. */
const pointerOf = (key: KeyPath): string =>
  key === ''
    ? ''
    : `/${key
        .split('.')
        .map((step) => step.replaceAll('~', '~0').replaceAll('/', '~1'))
        .join('/')}`;

/**
 * Like `safeParse`, without the code that zod generates for a schema: a schema used once is faster interpreted. An
 * error thrown by a schema, or an asynchronous one, becomes an issue.
 */
export function checkAgainst<S extends z.ZodType>(schema: S, value: unknown): z.ZodSafeParseResult<z.output<S>> {
  try {
    return schema.safeParse(value, { jitless: true });
  } catch (error) {
    const why = `its schema cannot check it: ${error instanceof Error ? error.message : String(error)}`;
    return z.custom<z.output<S>>(() => false, why).safeParse(value);
  }
}
