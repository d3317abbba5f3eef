import assert from 'node:assert/strict';
import fc from 'fast-check';
import type { EntryState } from '../../../../core/contracts/queue-entry.js';
import type { Lease, OpenedRelayQueue } from '../../../../core/contracts/relay-queue-store.js';
import type { SpooledMessage } from '../../../../core/spool/spool.js';
import { claiming, newEntry, settlement } from '../../../kit/relay-queue/entries.js';
import { memoryMessage, type QueueHarness } from '../../../kit/relay-queue/harness.js';

interface ModelRecipient {
  readonly destination: string;
  state: EntryState;
  attempts: number;
  due: number;
  manual: boolean;
  /** A server, or we, have said something about it. */
  replied: boolean;
}

interface ModelEntry {
  readonly recipients: ModelRecipient[];
  pending: 'delete' | 'hold' | null;
  crashes: number;
}

/** What may happen to a queue; numbers choose among what there is. */
export type Step =
  | { readonly kind: 'accept'; readonly destinations: readonly number[] }
  | { readonly kind: 'abort' }
  | { readonly kind: 'claim'; readonly limit: number }
  | { readonly kind: 'settle'; readonly which: number; readonly fate: 'delivered' | 'deferred' | 'bounced' | 'back' }
  | { readonly kind: 'mutate'; readonly which: number; readonly operation: 'retry' | 'delete' | 'hold' | 'release' }
  | { readonly kind: 'wait'; readonly seconds: number }
  | { readonly kind: 'crash' | 'reopen' | 'housekeep' };

const which = fc.nat(50);
export const steps: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant('accept' as const),
      destinations: fc.array(fc.nat(3), { minLength: 1, maxLength: 4 }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('abort' as const) }) },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('claim' as const), limit: fc.integer({ min: 1, max: 8 }) }) },
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant('settle' as const),
      which,
      fate: fc.constantFrom('delivered' as const, 'deferred' as const, 'bounced' as const, 'back' as const),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant('mutate' as const),
      which,
      operation: fc.constantFrom('retry' as const, 'delete' as const, 'hold' as const, 'release' as const),
    }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('wait' as const), seconds: fc.constantFrom(1, 299, 301) }) },
  { weight: 1, arbitrary: fc.constant({ kind: 'housekeep' as const }) },
);

export const restarts: fc.Arbitrary<Step> = fc.record({ kind: fc.constantFrom('crash' as const, 'reopen' as const) });

const open = new Set<EntryState>(['queued', 'active', 'deferred', 'held']);
const waiting = new Set<EntryState>(['queued', 'deferred']);

/** With the queue that it was claimed by: its `queue` may be another one each time. */
interface ModelLease {
  readonly lease: Lease;
  readonly queue: OpenedRelayQueue;
}

/** What the queue should hold, in the plainest form, beside the queue itself. */
export class QueueModel {
  readonly #fixture: QueueHarness;
  readonly #entries = new Map<string, ModelEntry>();
  #leases: ModelLease[] = [];
  #number = 0;

  readonly #dueIsExact: boolean;

  /** @param dueIsExact otherwise `nextDue` may be too early, which costs an empty claim */
  constructor(fixture: QueueHarness, { dueIsExact = true } = {}) {
    this.#fixture = fixture;
    this.#dueIsExact = dueIsExact;
  }

  async take(step: Step): Promise<void> {
    switch (step.kind) {
      case 'accept':
        return this.#accept(step.destinations);
      case 'abort':
        return this.#abort();
      case 'claim':
        return this.#claim(step.limit);
      case 'settle':
        return this.#settle(step.which, step.fate);
      case 'mutate':
        return this.#mutate(step.which, step.operation);
      case 'wait':
        return this.#fixture.clock.advance(step.seconds);
      case 'housekeep':
        return this.#fixture.queue.housekeep(this.#now);
      case 'crash':
      case 'reopen':
        return this.#restart(step.kind === 'crash');
    }
  }

  get #now(): number {
    return this.#fixture.clock.now();
  }

  async #message(): Promise<SpooledMessage> {
    return this.#fixture.message?.() ?? memoryMessage();
  }

  async #accept(destinations: readonly number[]): Promise<void> {
    this.#number += 1;
    const uid = `e${this.#number}`;
    const to = destinations.map((number, index) => `r${index}@d${number}.example`);
    // Nobody is warned and nothing expires: that has tests of its own.
    const prepared = await this.#fixture.queue.prepare(
      newEntry(this.#now, { uid, to, warnAt: null, expiresAt: this.#now + 1e12 }),
      await this.#message(),
    );
    await prepared.commit();
    prepared.release();
    const recipients = destinations.map((number): ModelRecipient => {
      return {
        destination: `d${number}.example`,
        state: 'queued',
        attempts: 0,
        due: this.#now,
        manual: false,
        replied: false,
      };
    });
    this.#entries.set(uid, { recipients, pending: null, crashes: 0 });
  }

  async #abort(): Promise<void> {
    this.#number += 1;
    const entry = newEntry(this.#now, { uid: `e${this.#number}` });
    const prepared = await this.#fixture.queue.prepare(entry, await this.#message());
    if (this.#number % 2 === 0) await prepared.commit();
    await prepared.abort();
  }

  async #claim(limit: number): Promise<void> {
    await this.#fixture.current?.();
    const { queue } = this.#fixture;
    const leases: Lease[] = [];
    // What another server has taken costs an empty claim.
    for (let more = limit > 0; more;) {
      const given = await queue.claim(claiming(this.#now, { limit: limit - leases.length, leaseMs: 1e12 }));
      leases.push(...given);
      more = leases.length < limit && (given.length > 0 || (queue.nextDue() ?? Infinity) <= this.#now);
    }
    for (const { uid, recipients, destination, manual } of leases) {
      for (const { index } of recipients) {
        const one = this.#entries.get(uid)?.recipients[index];
        assert.ok(one !== undefined && waiting.has(one.state) && one.due <= this.#now, 'it was due');
        assert.deepEqual([one.destination, one.manual], [destination, manual]);
        one.state = 'active';
      }
    }
    this.#leases.push(...leases.map((lease) => ({ lease, queue })));
    if (leases.length < limit) assert.equal(this.#due().length, 0, 'nobody who is due was passed over');
  }

  #due(): readonly ModelRecipient[] {
    return this.#recipients().filter(({ state, due }) => waiting.has(state) && due <= this.#now);
  }

  #recipients(): readonly ModelRecipient[] {
    return [...this.#entries.values()].flatMap(({ recipients }) => recipients);
  }

  async #settle(which: number, fate: 'delivered' | 'deferred' | 'bounced' | 'back'): Promise<void> {
    const held = this.#leases[which % this.#leases.length];
    if (held === undefined) return;
    this.#leases = this.#leases.filter((other) => other !== held);
    const { lease, queue } = held;
    const at = this.#now;
    await queue.settle(lease, fate === 'back' ? { results: [] } : settlement(lease, fate, { at }));
    const entry = this.#entries.get(lease.uid);
    if (entry === undefined) return;
    for (const { index } of lease.recipients) {
      const one = entry.recipients[index];
      if (one === undefined) continue;
      if (fate === 'back') one.state = wasTried(one) ? 'deferred' : 'queued';
      else {
        one.state = fate;
        one.attempts += lease.manual ? 0 : 1;
        one.manual = false;
        one.replied = true;
        one.due = at + 300_000;
      }
    }
    entry.crashes = 0;
    this.#performPending(entry);
  }

  #performPending(entry: ModelEntry): void {
    if (entry.pending === null) return;
    this.#endOrHold(entry, entry.pending);
    if (!entry.recipients.some(({ state }) => state === 'active')) entry.pending = null;
  }

  #endOrHold({ recipients }: ModelEntry, operation: 'delete' | 'hold'): void {
    for (const one of recipients) {
      if (open.has(one.state) && one.state !== 'active') one.state = operation === 'delete' ? 'deleted' : 'held';
    }
  }

  async #mutate(which: number, operation: 'retry' | 'delete' | 'hold' | 'release'): Promise<void> {
    const uids = [...this.#entries.keys()];
    const uid = uids[which % uids.length];
    const entry = uid === undefined ? undefined : this.#entries.get(uid);
    if (uid === undefined || entry === undefined) return;
    await this.#fixture.queue.mutate({ uids: [uid] }, { operation }, this.#now);
    if (!entry.recipients.some(({ state }) => open.has(state))) return;
    if (operation === 'delete' || operation === 'hold') {
      entry.pending = operation;
      this.#performPending(entry);
      return;
    }
    if (operation === 'release' && entry.pending === 'hold') entry.pending = null;
    if (operation === 'release') entry.crashes = 0;
    for (const one of entry.recipients) {
      if (!(operation === 'retry' ? waiting.has(one.state) : one.state === 'held')) continue;
      if (operation === 'release') one.state = wasTried(one) ? 'deferred' : 'queued';
      one.due = this.#now;
      one.manual = true;
    }
  }

  async #restart(crashed: boolean): Promise<void> {
    await (crashed ? this.#fixture.afterCrash() : this.#fixture.reopen());
    const touched = new Set<ModelEntry>();
    for (const {
      lease: { uid, recipients },
    } of this.#leases) {
      const entry = this.#entries.get(uid);
      if (entry === undefined) continue;
      for (const { index } of recipients) this.#lose(entry.recipients[index]);
      if (crashed) touched.add(entry);
    }
    for (const entry of touched) {
      // One that is tried alone after two deaths is held at the third.
      entry.crashes = Math.min(entry.crashes + 1, touched.size === 1 ? 3 : 2);
      if (entry.crashes >= 3) this.#endOrHold(entry, 'hold');
    }
    for (const entry of this.#entries.values()) this.#performPending(entry);
    this.#leases = [];
  }

  #lose(one: ModelRecipient | undefined): void {
    if (one === undefined) return;
    one.state = 'deferred';
    one.attempts += one.manual ? 0 : 1;
    one.due = this.#now;
  }

  /** The queue shows what the model says. */
  async compare(): Promise<void> {
    await this.#fixture.current?.();
    const { queue } = this.#fixture;
    for (const [uid, { recipients }] of this.#entries) {
      const found = await queue.find(uid);
      const shown = recipients.map(({ state, attempts, due }) => [state, attempts, waiting.has(state) ? due : null]);
      assert.deepEqual(
        found?.recipients.map(({ state, attempts, nextAttempt }) => [state, attempts, nextAttempt]),
        shown,
        uid,
      );
    }
    const opened = [...this.#entries.values()].filter(({ recipients }) =>
      recipients.some(({ state }) => open.has(state)),
    );
    assert.equal(queue.size, opened.length);
    assert.equal(await queue.count({}), opened.length);
    const dues = this.#recipients().flatMap(({ state, due }) => (waiting.has(state) ? [due] : []));
    const next = queue.nextDue();
    const due = dues.length === 0 ? null : Math.min(...dues);
    if (due !== null && due <= this.#now) assert.ok(next !== null && next <= this.#now);
    else if (this.#dueIsExact) assert.equal(next, due);
    else assert.ok(due === null || (next !== null && next <= due));
    const { byState, open: openCount } = await queue.statistics(this.#now);
    assert.equal(openCount, opened.length);
    assert.equal(
      Object.values(byState).reduce((sum, count) => sum + count, 0),
      this.#entries.size,
    );
  }
}

function wasTried({ attempts, replied }: ModelRecipient): boolean {
  return attempts > 0 || replied;
}
