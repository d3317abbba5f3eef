import type { Clock } from '../../../core/clock.js';
import type { MailQueue, QueuedMessage } from '../../../core/contracts/mail-queue.js';
import type { EntrySummary, QueuedRecipient } from '../../../core/contracts/queue-entry.js';
import type { Mutation } from '../../../core/contracts/relay-queue.js';
import type { SubmissionService } from '../../../core/contracts/submission.js';
import { queuedHop } from '../../../core/pipeline/verdict.js';
import { problem } from '../../../core/problem.js';
import type { RelayQueue } from '../../../core/contracts/relay-queue-store.js';
import { type DestinationRules, readDestination } from './destination.js';
import type { Outbound } from './outbound.js';
import { relayTarget } from './relay-hook.js';

interface MailQueueDeps {
  readonly queue: Pick<RelayQueue, 'list' | 'find' | 'mutate'>;
  readonly submission: SubmissionService;
  readonly rules: () => DestinationRules;
  readonly outbound: Pick<Outbound, 'forgetFailures' | 'sendNotices'>;
  readonly clock: Clock;
}

/** The queue for other plugins. */
export function mailQueue({ queue, submission, rules, outbound, clock }: MailQueueDeps): MailQueue {
  async function change(id: string, mutation: Mutation): Promise<void> {
    const { results } = await queue.mutate({ uids: [id] }, mutation, clock.now());
    if (results.some(({ outcome }) => outcome === 'notFound')) throw problem('not-found');
  }
  return {
    async list({ limit = 100 } = {}) {
      const { items } = await queue.list({ filter: {}, limit, sort: 'queuedAt', order: 'asc' });
      return items.map(asMessage);
    },
    async show(id) {
      const entry = await queue.find(id);
      return entry && asMessage(entry);
    },
    async enqueue({ hop, ...message }) {
      const { id } = await submission.submit({
        username: undefined,
        ...message,
        hop: (address) =>
          hop === undefined ? { target: relayTarget, destination: rules().keyOf(address) } : queuedHop(hop),
      });
      return hop === undefined ? id : `${id}-queue`;
    },
    async retry(id) {
      outbound.forgetFailures((await queue.find(id))?.recipients.map(({ destination }) => destination) ?? []);
      await change(id, { operation: 'retry' });
    },
    hold: (id, reason) => change(id, { operation: 'hold', reason }),
    release: (id) => change(id, { operation: 'release' }),
    async bounce(id, reason) {
      await change(id, { operation: 'bounce', reason });
      outbound.sendNotices();
    },
  };
}

function asMessage({ uid, state, sender, recipients, size, queuedAt, expiresAt }: EntrySummary): QueuedMessage {
  return { id: uid, state, sender, recipients: recipients.map(asRecipient), size, queuedAt, expiresAt };
}

function asRecipient({ address, destination, state, attempts, nextAttempt, lastReply }: QueuedRecipient) {
  const read = readDestination(destination);
  const target = read.kind === 'target' ? read.target : relayTarget;
  return { address, target, state, attempts, nextAttempt, reply: lastReply };
}
