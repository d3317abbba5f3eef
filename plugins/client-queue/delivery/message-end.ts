import { isAtMessage, type ClientFailure } from '../../../core/smtp/client/failure.js';
import type { MessageResult, RecipientResult } from '../../../core/smtp/client/message.js';

/**
 * How it ended with the text of a message: `answered` whatever the server said to it, be it of one recipient alone; `stalled` when it
 * was silent for too long, or left; `none` when it was not asked to take it, or something else went wrong.
 */
export type MessageEnd =
  { readonly end: 'answered' | 'none' } | { readonly end: 'stalled'; readonly failure: ClientFailure };

export function messageEnd({ recipients }: Pick<MessageResult, 'recipients'>): MessageEnd {
  if (recipients.some(isAnswered)) return { end: 'answered' };
  // One that was refused at RCPT has a failure of his own.
  const stalled = recipients.find((one) => one.outcome === 'failed' && isStall(one.failure));
  return stalled?.outcome === 'failed' ? { end: 'stalled', failure: stalled.failure } : { end: 'none' };
}

function isAnswered(result: RecipientResult): boolean {
  if (result.outcome === 'delivered') return true;
  const { kind, step } = result.failure;
  return kind === 'reply' && (step === 'body' || step === 'final');
}

function isStall(failure: ClientFailure): boolean {
  return isAtMessage(failure) && (failure.kind === 'timeout' || failure.kind === 'closed');
}
