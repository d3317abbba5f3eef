import type { Log } from '../../../core/log/log.js';

/** A log that records its messages. */
export function rememberingLog(): { readonly log: Log; readonly sentences: string[] } {
  const sentences: string[] = [];
  const line = (...given: readonly unknown[]): void => {
    sentences.push(given.filter((part) => typeof part === 'string').join(' '));
  };
  const log: Log = { trace: line, debug: line, info: line, warn: line, error: line, fatal: line, child: () => log };
  return { log, sentences };
}
