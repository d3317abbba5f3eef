import { compilePattern } from '../../../core/pattern.js';
import type { TranscriptEntry } from '../../../core/smtp/client/transcript.js';

export interface AssertionResult {
  readonly verb: string;
  readonly expected: string;
  /** The last reply to the verb; null when it was not sent. */
  readonly actual: string | null;
  readonly passed: boolean;
}

/** Each holds when some reply to its verb has the pattern in it. */
export function checkAssertions(
  wanted: readonly (readonly [verb: string, expected: string])[],
  transcript: readonly TranscriptEntry[],
): readonly AssertionResult[] {
  return wanted.map(([verb, expected]) => {
    const replies = transcript.filter((entry) => verbOf(entry) === verb).flatMap(({ response }) => response ?? []);
    const pattern = compilePattern(expected);
    const passed = replies.some((reply) => pattern.occursIn(reply));
    return { verb, expected, actual: replies.at(-1) ?? null, passed };
  });
}

/** As assertions name it: the greeting is the answer to the connection. */
function verbOf({ command, step }: TranscriptEntry): string {
  if (step === 'connect' || step === 'greeting') return 'CONNECT';
  return step === 'final' || step === 'body' ? '.' : command;
}
