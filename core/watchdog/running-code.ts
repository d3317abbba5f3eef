/** Code of a plugin that may block the main thread. */
export interface RunningCode {
  readonly plugin: string;
  /** What is called: `hook rcptTo`, `GET /greylist`, `timer`. */
  readonly doing: string;
}

/** Identifies some code of a plugin; 0 is the server itself. */
export type Mark = number;

/** The mark of the code that the main thread runs now, in memory that other threads can read. */
export const running = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));

const codes: RunningCode[] = [{ plugin: '', doing: '' }];
const known = new Map<string, Mark>();
const listeners = new Set<(mark: Mark, code: RunningCode) => void>();

/** Equal for equal code, so that reloads do not add marks. */
export function markOf(plugin: string, doing: string): Mark {
  const key = `${plugin}\n${doing}`;
  const before = known.get(key);
  if (before !== undefined) return before;
  const code = { plugin, doing };
  const mark = codes.push(code) - 1;
  known.set(key, mark);
  for (const tell of listeners) tell(mark, code);
  return mark;
}

/** Reports all marks, present and future; returns the undo. */
export function followMarks(tell: (mark: Mark, code: RunningCode) => void): () => void {
  for (const [mark, code] of codes.entries()) if (mark > 0) tell(mark, code);
  listeners.add(tell);
  return () => void listeners.delete(tell);
}

/**
 * Runs code of a plugin under its mark. Only the synchronous part is marked: after an `await` it is another turn. Costs
 * two stores and a `finally`, cheap enough for hooks.
 */
export function runAs<T>(mark: Mark, run: () => T): T {
  const before = running[0] ?? 0;
  running[0] = mark;
  try {
    return run();
  } finally {
    running[0] = before;
  }
}

/** Where the code of a plugin is: the URL of a file, or of a folder with a `/` at its end. */
export interface CodeLocation {
  readonly plugin: string;
  readonly url: string;
}

/**
 * The plugin that owns the innermost file of a stack.
 *
 * @param frames `function (file:///folder/index.js:7:3)`, the innermost first
 */
export function pluginAt(frames: readonly string[], places: readonly CodeLocation[]): string | undefined {
  for (const frame of frames) {
    const place = places.find(({ url }) => frame.includes(url.endsWith('/') ? `(${url}` : `(${url}:`));
    if (place !== undefined) return place.plugin;
  }
  return undefined;
}
