import { setImmediate } from 'node:timers/promises';
import { compilePattern, type Pattern } from '../../../core/text/pattern.js';
import type { TranscriptEntry } from '../../../core/smtp/client/channel.js';
import { at } from './invalid-place.js';

export interface AssertionResult {
  readonly verb: string;
  readonly expected: string;
  /** The last reply to the verb; null when it was not sent. */
  readonly actual: string | null;
  readonly passed: boolean;
}

/** What a case expects of the replies to a verb, and where the case says so. */
export interface Assertion {
  readonly verb: string;
  readonly expected: string;
  readonly pointer: string;
}

export interface CompiledAssertion extends Assertion {
  readonly pattern: Pattern;
}

/**
 * Before anything is sent. Compiling one pattern may take tens of milliseconds, so the event loop has a turn after each.
 * @throws Problem `invalid` with the place of a pattern that cannot be read
 */
export async function compileAssertions(wanted: readonly Assertion[]): Promise<readonly CompiledAssertion[]> {
  const compiled: CompiledAssertion[] = [];
  for (const assertion of wanted) {
    compiled.push({ ...assertion, pattern: at(assertion.pointer, () => compilePattern(assertion.expected)) });
    await setImmediate();
  }
  return compiled;
}

/** Each holds when some reply to its verb has the pattern in it. */
export function checkAssertions(
  wanted: readonly CompiledAssertion[],
  transcript: readonly TranscriptEntry[],
): readonly AssertionResult[] {
  return wanted.map(({ verb, expected, pattern }) => {
    const replies = transcript.filter((entry) => verbOf(entry) === verb).flatMap(({ response }) => response ?? []);
    const passed = replies.some((reply) => pattern.occursIn(reply));
    return { verb, expected, actual: replies.at(-1) ?? null, passed };
  });
}

/** As assertions name it: the greeting is the answer to the connection. */
function verbOf({ command, step }: TranscriptEntry): string {
  if (step === 'connect' || step === 'greeting') return 'CONNECT';
  return step === 'final' || step === 'body' ? '.' : command;
}
