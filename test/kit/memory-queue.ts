import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import type { Timers } from '../../core/clock.js';
import type { LocalDelivery } from '../../core/contracts/local-delivery.js';
import { localDelivery } from '../../core/contracts/local-delivery.js';
import { type MailQueue, type QueuedMessage, queue } from '../../core/contracts/mail-queue.js';
import type { EntryState } from '../../core/contracts/queue-entry.js';
import { submission, type SubmissionService } from '../../core/contracts/submission.js';
import { targets } from '../../core/contracts/targets.js';
import type { Address } from '../../core/mime/address.js';
import type { DeliveryTarget, RecipientOutcome } from '../../core/pipeline/delivery-target.js';
import type { FinishedAttempt } from '../../core/pipeline/events.js';
import type { Recipient, Transaction } from '../../core/pipeline/transaction.js';
import { type Hop, next, queuedHop, route } from '../../core/pipeline/verdict.js';
import { definePlugin, type Plugin, type PluginContext } from '../../core/plugin.js';
import { problem } from '../../core/problem.js';
import type { DeliveredMail } from './delivered-mail.js';
import { MemoryTarget } from './memory-target.js';

interface Entry {
  readonly id: string;
  readonly reversePath: Address | null;
  readonly address: Address;
  readonly hop: Hop;
  readonly content: Buffer;
  readonly smtputf8: boolean;
  readonly queuedAt: number;
  state: EntryState;
  attempts: number;
  /** Infinity when there is none. */
  nextAttempt: number;
  reply: QueuedMessage['recipients'][number]['reply'];
}

/** The defaults of `client-queue`, without chance. */
const [firstMs, maxMs, expireMs] = [300_000, 14_400_000, 432_000_000];

type State = 'queue' | 'retry' | 'bounce' | 'hold';

/**
 * Stands where `client-queue` stands in a server, under its name: relays for users, and tries again at the targets of
 * this server, when the clock is advanced. Other servers are never called: what is for them is in `delivered`.
 */
export function queueStandIn(input: {
  readonly delivered: DeliveredMail[];
  readonly domains: readonly string[];
  readonly timers: Timers;
  /** Another plugin provides the service `queue`. */
  readonly isTaken: boolean;
}): Plugin {
  const { delivered, domains, timers, isTaken } = input;
  return definePlugin({
    name: 'client-queue',
    needs: { localDelivery, submission },
    provides: isTaken ? {} : { queue },
    setup(context, { localDelivery, submission }) {
      const { smtp } = context;
      smtp.on('rcptTo', { order: 'route', before: 'users', after: '*' }, ({ address, transaction: { session } }) =>
        domains.includes(address.domain) || (session.user === undefined && session.internal !== true)
          ? next()
          : route({ target: targets.relay, destination: address.domain }),
      );
      const waiting = new MemoryQueue({ ...context, timers }, localDelivery, submission);
      smtp.deliverTo(targets.queue, waiting.target('queue'));
      for (const name of ['retry', 'bounce', 'hold'] as const) {
        smtp.deliverTo(targets[name], waiting.target(name, new MemoryTarget(name, delivered)));
      }
      return { queue: waiting };
    },
  });
}

interface QueueContext extends Pick<PluginContext, 'clock' | 'smtp'> {
  readonly timers: Timers;
}

const attemptOf = ({ address, hop, content, ...entry }: Entry): FinishedAttempt['attempt'] => ({
  id: entry.id,
  reversePath: entry.reversePath,
  recipients: [address],
  target: hop.target,
  destination: `target:${hop.target}`,
  attempts: entry.attempts,
  queuedAt: entry.queuedAt,
  size: content.length,
});

class MemoryQueue implements MailQueue {
  readonly #context: QueueContext;
  readonly #local: LocalDelivery;
  readonly #submission: SubmissionService;
  readonly #entries: Entry[] = [];

  constructor(context: QueueContext, local: LocalDelivery, submission: SubmissionService) {
    this.#context = context;
    this.#local = local;
    this.#submission = submission;
  }

  /** Also notes in `delivered` what it takes, as a target in memory does. */
  target(name: State, noted?: DeliveryTarget): DeliveryTarget {
    return {
      start: async (transaction, recipients) => {
        const note = await noted?.start(transaction, recipients);
        let content = Buffer.alloc(0);
        return {
          body: async (message) => {
            content = await buffer(message.open(message.traceOffset));
            await note?.body(message);
          },
          commit: async () => {
            for (const one of recipients) this.#add(this.#entry(name, transaction, one, content));
            await note?.commit();
            return recipients.map((recipient) => ({ recipient, outcome: 'delivered' as const }));
          },
          abort: async () => note?.abort(),
        };
      },
    };
  }

  #entry(name: State, { id, reversePath, smtputf8 }: Transaction, recipient: Recipient, content: Buffer): Entry {
    const now = this.#context.clock.now();
    const { hop = { target: '', destination: '' } } = (recipient.hop?.data ?? {}) as { readonly hop?: Hop };
    const pause = name === 'retry' ? firstMs : 0;
    const isOver = name === 'bounce' || name === 'hold';
    return {
      id: `${id}-${name}`,
      reversePath,
      address: recipient.address,
      hop,
      content,
      smtputf8,
      queuedAt: now,
      state: name === 'bounce' ? 'bounced' : name === 'hold' ? 'held' : 'queued',
      attempts: 0,
      nextAttempt: isOver ? Infinity : now + pause,
      reply: null,
    };
  }

  #add(entry: Entry): void {
    this.#entries.push(entry);
    this.#wait(entry);
  }

  /** Tries the entry when the clock comes to its time, unless that has changed meanwhile. */
  #wait(entry: Entry): void {
    const { clock, timers } = this.#context;
    const due = entry.nextAttempt;
    if (due === Infinity) return;
    timers.after(due - clock.now(), async () => {
      if (entry.nextAttempt !== due) return;
      entry.nextAttempt = Infinity;
      const attempt = attemptOf(entry);
      this.#record(entry, await this.#attempt(entry, attempt));
      this.#emitAttempted(entry, attempt);
      this.#wait(entry);
    });
  }

  #emitAttempted({ address, state, reply, nextAttempt }: Entry, attempt: FinishedAttempt['attempt']): void {
    if (state === 'queued' || state === 'active') return;
    const nextAttemptAt = Number.isFinite(nextAttempt) ? nextAttempt : null;
    this.#local.attempted({
      attempt,
      at: this.#context.clock.now(),
      ms: 0,
      results: [{ recipient: address, status: state, reply, nextAttemptAt }],
      host: null,
      tls: null,
      possibleDuplicate: false,
    });
  }

  async #attempt(
    { id, reversePath, address, hop, smtputf8, content, attempts }: Entry,
    attempt: FinishedAttempt['attempt'],
  ): Promise<RecipientOutcome | 'held'> {
    const recipient = { address, hop, discarded: false };
    const open = () => Promise.resolve(Readable.from([content]));
    const decision = await this.#local.mayAttempt({ ...attempt, open });
    if (decision.outcome === 'refuse') {
      const { code, status, lines } = decision.reply;
      const outcome = code < 500 ? 'deferred' : 'refused';
      return { recipient, outcome, code, status: status ?? '4.0.0', text: lines.join(' ') };
    }
    if (decision.outcome === 'pass' && decision.hop !== undefined) return 'held';
    try {
      const [outcome] = await this.#local.deliver({
        id,
        reversePath,
        recipients: [{ address, hop }],
        smtputf8,
        fresh: attempts === 0,
        content: () => Readable.from([content]),
      });
      if (outcome !== undefined) return outcome;
    } catch {
      // As live: a fault of a target is temporary.
    }
    return { recipient, outcome: 'deferred', code: 451, status: '4.3.0', text: 'Local error, try again later' };
  }

  #record(entry: Entry, outcome: RecipientOutcome | 'held'): void {
    const now = this.#context.clock.now();
    if (outcome === 'held') {
      entry.state = 'held';
      this.#tell(entry, 'Held by a rule');
      return;
    }
    entry.attempts += 1;
    if (outcome.outcome === 'delivered') entry.state = 'delivered';
    else if (outcome.outcome === 'refused') entry.state = 'bounced';
    else if (now >= entry.queuedAt + expireMs) entry.state = 'expired';
    else {
      entry.state = 'deferred';
      entry.nextAttempt = now + Math.min(firstMs * 2 ** (entry.attempts - 1), maxMs);
    }
    const { code = 250, status = '2.1.5', text = 'Delivered' } = outcome.outcome === 'delivered' ? {} : outcome;
    entry.reply = { code, status, text, host: null, at: now };
    this.#tell(entry);
  }

  #tell({ id, reversePath, address, hop, state, attempts, nextAttempt, reply }: Entry, reason?: string): void {
    if (state === 'queued' || state === 'active') return;
    this.#context.smtp.tell(() => ({
      id,
      reversePath,
      recipient: address,
      status: state,
      reply,
      attempts,
      ...(reason !== undefined && { reason }),
      nextAttemptAt: Number.isFinite(nextAttempt) ? nextAttempt : null,
      at: this.#context.clock.now(),
      target: hop.target,
    }));
  }

  list({ limit = 100 } = {}): Promise<readonly QueuedMessage[]> {
    const open = this.#entries.filter(({ state }) => ['queued', 'deferred', 'held'].includes(state));
    return Promise.resolve([...new Set(open.map(({ id }) => id))].slice(0, limit).map((id) => this.#message(id)));
  }

  show(id: string): Promise<QueuedMessage | undefined> {
    return Promise.resolve(this.#entries.some((entry) => entry.id === id) ? this.#message(id) : undefined);
  }

  async enqueue({ hop, ...message }: Parameters<MailQueue['enqueue']>[0]): Promise<string> {
    const { id } = await this.#submission.submit({
      username: undefined,
      ...message,
      hop: ({ domain }) => (hop === undefined ? { target: targets.relay, destination: domain } : queuedHop(hop)),
    });
    return hop === undefined ? id : `${id}-queue`;
  }

  retry(id: string): Promise<void> {
    return this.#change(id, (entry) => Object.assign(entry, { nextAttempt: this.#context.clock.now() }));
  }

  hold(id: string, reason: string): Promise<void> {
    return this.#change(id, (entry) => {
      Object.assign(entry, { state: 'held', nextAttempt: Infinity });
      this.#tell(entry, reason);
    });
  }

  release(id: string): Promise<void> {
    return this.#change(id, (entry) =>
      Object.assign(entry, { state: 'queued', nextAttempt: this.#context.clock.now() }),
    );
  }

  bounce(id: string, reason: string): Promise<void> {
    return this.#change(id, (entry) => {
      Object.assign(entry, { state: 'bounced', nextAttempt: Infinity });
      this.#tell(entry, reason);
    });
  }

  #change(id: string, change: (entry: Entry) => void): Promise<void> {
    const found = this.#entries.filter((entry) => entry.id === id);
    if (found.length === 0) return Promise.reject(problem('not-found'));
    for (const entry of found) {
      const before = entry.nextAttempt;
      change(entry);
      if (entry.nextAttempt !== before) this.#wait(entry);
    }
    return Promise.resolve();
  }

  #message(id: string): QueuedMessage {
    const entries = this.#entries.filter((entry) => entry.id === id);
    const [first] = entries;
    if (first === undefined) throw problem('not-found');
    const { state, reversePath, content, queuedAt } = first;
    return {
      id,
      state,
      sender: reversePath?.address ?? null,
      recipients: entries.map(({ address, hop, state: its, attempts, nextAttempt, reply }) => ({
        address: address.address,
        target: hop.target,
        state: its,
        attempts,
        nextAttempt: Number.isFinite(nextAttempt) ? nextAttempt : null,
        reply,
      })),
      size: content.length,
      queuedAt,
      expiresAt: queuedAt + expireMs,
    };
  }
}
