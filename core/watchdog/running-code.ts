/** What of a plugin may hold up the main thread. */
export interface RunningCode {
  readonly plugin: string;
  /** What is called: `hook rcptTo`, `GET /greylist`, `timer`. */
  readonly doing: string;
}

/** Stands for some code of a plugin; 0 for the server itself. */
export type Mark = number;

/** The mark of the code that runs on the main thread now, where other threads can see it. */
export const running = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));

const codes: RunningCode[] = [{ plugin: '', doing: '' }];
const known = new Map<string, Mark>();
const listeners = new Set<(mark: Mark, code: RunningCode) => void>();

/** The same for the same code, so that what comes and goes with reloads does not add up. */
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

/** Tells all marks, those to come too; returns the undo. */
export function followMarks(tell: (mark: Mark, code: RunningCode) => void): () => void {
  for (const [mark, code] of codes.entries()) if (mark > 0) tell(mark, code);
  listeners.add(tell);
  return () => void listeners.delete(tell);
}

/**
 * Runs code of a plugin under its mark: as far as it is synchronous, for what comes behind an `await` is another turn. Two
 * stores to memory and a `finally`, so that a hook can afford it.
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
