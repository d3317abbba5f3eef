import { printable } from '../../../core/text/format.js';

/** A stack that was seen in some of the samples. */
export interface SeenStack {
  readonly seen: number;
  /** The innermost first: `function (file:line:column)`. */
  readonly frames: readonly string[];
}

/** Equal stacks together, the most frequent first. */
export function grouped(stacks: readonly (readonly string[])[]): readonly SeenStack[] {
  const seen = new Map<string, { seen: number; readonly frames: readonly string[] }>();
  for (const frames of stacks) {
    const key = frames.join('\n');
    const known = seen.get(key) ?? { seen: 0, frames: frames.map(printable) };
    known.seen += 1;
    seen.set(key, known);
  }
  return [...seen.values()].toSorted((a, b) => b.seen - a.seen);
}
