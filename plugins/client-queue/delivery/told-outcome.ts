import type { QueueOutcome } from '../../../core/contracts/queue-outcome.js';
import { parseAddress } from '../../../core/mime/address.js';
import type { Outcome } from '../../../core/pipeline/outcome.js';
import { readDestination } from './destination-key.js';
import { relayTarget } from './relay-hook.js';

/** An outcome of the queue as watchers hear of it. */
export function toldOutcome({ uid, sender, state, reply, hold, ...outcome }: QueueOutcome): Outcome {
  const { address, destination, attempts, nextAttempt, at } = outcome;
  const { envelopeId } = outcome.accepted();
  const read = readDestination(destination);
  return {
    id: uid,
    reversePath: sender === null ? null : parseAddress(sender),
    recipient: parseAddress(address),
    status: state,
    reply: reply && { code: reply.code, status: reply.status, text: reply.text, host: reply.host },
    ...(hold !== null && { reason: hold }),
    attempts,
    nextAttemptAt: nextAttempt,
    at,
    target: read.kind === 'target' ? read.target : relayTarget,
    ...(envelopeId !== undefined && { envelopeId }),
  };
}
