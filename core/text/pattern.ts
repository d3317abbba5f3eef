import { RE2JS } from 're2js';
import { problem } from '../problem.js';

/** A pattern that somebody wrote into a configuration or a request. Matching takes time linear in the text, whatever the pattern is. */
export interface Pattern {
  readonly text: string;
  /** The whole text is of the pattern. */
  matches(text: string): boolean;
  /** Some part of the text is. */
  occursIn(text: string): boolean;
}

const maxCharacters = 1000;
/** Instructions of the compiled form: nested repetitions of counts multiply. */
const maxInstructions = 20_000;

/**
 * RE2 syntax: that of other regular expressions without lookaround and back references.
 * @throws Problem `invalid` with a sentence about what cannot be read
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
