import { RE2JS } from 're2js';
import { problem } from '../problem.js';

/** A pattern from a configuration or a request. Matching takes time linear in the text. */
export interface Pattern {
  readonly text: string;
  /** Whether the whole text matches. */
  matches(text: string): boolean;
  /** Whether a part of the text matches. */
  occursIn(text: string): boolean;
}

const maxCharacters = 1000;
/** Limit on the compiled form: nested repetition counts multiply. */
const maxInstructions = 20_000;

/**
 * Compiles RE2 syntax: no lookaround, no back references.
 *
 * @throws Problem `invalid` for a syntax error
 */
export function compilePattern(text: string, { ignoreCase = false }: { readonly ignoreCase?: boolean } = {}): Pattern {
  if (text.length > maxCharacters) throw problem('invalid', `A pattern may have ${maxCharacters} characters at most.`);
  const compiled = compile(text, ignoreCase ? RE2JS.CASE_INSENSITIVE : 0);
  if (compiled.programSize() > maxInstructions)
    throw problem('invalid', 'The pattern is too large: its repetitions multiply.');
  return Object.freeze({
    text,
    matches: (value: string) => compiled.testExact(value),
    occursIn: (value: string) => compiled.test(value),
  });
}

function compile(text: string, flags: number): RE2JS {
  try {
    return RE2JS.compile(text, flags);
  } catch (error) {
    const why = error instanceof Error ? error.message.replace(/^error parsing regexp: /, '') : 'cannot be read';
    throw problem('invalid', { detail: `The pattern cannot be read: ${why}.`, cause: error });
  }
}
