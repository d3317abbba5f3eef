import type { SourceFile } from './source-file.js';

/** One rule of the house. Its `breach` is a text that it must find fault with, so that the rule itself is tested. */
export interface Rule {
  readonly title: string;
  /** What is wrong in that file, one phrase each; nothing when all is well. */
  readonly faults: (file: SourceFile) => readonly string[];
  readonly breach: { readonly path: string; readonly text: string };
  /** A text that looks alike and is allowed. */
  readonly allowed?: { readonly path: string; readonly text: string };
}

/** Each match as `line 7: the matched text`. */
export function matches(code: string, pattern: RegExp): readonly string[] {
  return [...code.matchAll(pattern)].map(
    (match) => `line ${code.slice(0, match.index).split('\n').length}: ${match[0].trim()}`,
  );
}
