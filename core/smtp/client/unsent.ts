import type { ClientFailure } from './failure.js';
import type { MessageResult, OutgoingMessage, SendOptions } from './message.js';

/** The result of a message that failed for all its recipients before anything was said of it. */
export function unsent(
  { recipients }: OutgoingMessage,
  failure: ClientFailure,
  settled: SendOptions['settled'],
): MessageResult {
  const results = recipients.map((recipient) => ({ recipient, outcome: 'failed', failure }) as const);
  results.forEach((result, index) => settled?.(index, result));
  return { recipients: results, failure, bytes: 0 };
}
