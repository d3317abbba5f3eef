import { isProblem } from '../problem.js';
import { isStartError } from '../cli/start-error.js';

/** What an operator can act on is a sentence; only a fault of the program itself shows its stack. */
export function sentenceOf(error: unknown): string {
  if (isProblem(error))
    return [...new Set([error.message, ...(error.details.errors ?? []).map(({ message }) => message)])].join('\n');
  if (isStartError(error)) return error.message;
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
