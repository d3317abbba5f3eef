import type { Readable } from 'node:stream';
import type { Entry, NewEntry, Notice } from '../../../core/contracts/queue-entry.js';
import type {
  ClaimOptions,
  Lease,
  OpenedRelayQueue,
  PreparedEntry,
  QueueBounds,
  QueueQuarantine,
  RecoverOptions,
  RelayQueue,
  Settlement,
} from '../../../core/contracts/relay-queue-store.js';
import type {
  EntryFilter,
  EntryPage,
  ListOptions,
  Mutation,
  MutationPreview,
  MutationResult,
  MutationRun,
  QueueStatistics,
  Selector,
} from '../../../core/contracts/relay-queue.js';
import { isProblem, problem } from '../../../core/problem.js';
import type { LinkTarget, SpooledMessage } from '../../../core/spool/spool.js';
import { pluralize } from '../../../core/text/format.js';
import { Acceptance } from './acceptance.js';
import { draftOf } from './change.js';
import { EntryReader, recipientTestOf } from './entry-list.js';
import { leaseChange, Leases, loseLease, Suspects } from './leases.js';
import { Ledger, OutcomeListeners, settleLease } from './ledger.js';
import type { MovableQueue, MovedEntry, WholeEntry } from './moving.js';
import { mutateAll, previewAll } from './mutations.js';
import { recover } from './quarantine.js';
import { type QueuedEntry, type RecipientTest, versionOf } from './queued-entry.js';
import { DueSignal, type Picked } from './schedule.js';
import { restoreEntry, StoredEntry, storeEntry } from './stored-entry.js';
import { type FileRelayQueueInput, Upkeep } from './upkeep.js';

/** The relay queue on the disk of one server, see docs/on-disk.md. */
export class FileRelayQueue implements OpenedRelayQueue, MovableQueue {
  readonly quarantine: QueueQuarantine;
  readonly #input: FileRelayQueueInput;
  readonly #ledger: Ledger;
  readonly #leases: Leases;
  readonly #acceptance: Acceptance;
  readonly #reader: EntryReader;
  readonly #upkeep: Upkeep;
  readonly #signal: DueSignal;
  readonly #outcomes = new OutcomeListeners();
  #suspects: Suspects;
  #aside: number;
  #closed = false;

  /** Prefer `openRelayQueue`. */
  constructor(input: FileRelayQueueInput) {
    const { bodies, clock, loaded, quarantine, snapshots } = input;
    this.#input = input;
    this.quarantine = {
      list: () => quarantine.list(),
      read: (name) => quarantine.read(name),
      discard: (name) => quarantine.discard(name),
      recover: async (options) => this.#recover(options),
    };
    this.#aside = input.aside;
    this.#signal = new DueSignal(clock);
    const ledger = new Ledger({
      ...input,
      outcomes: this.#outcomes,
      scheduled: (due) => this.#signal.scheduled(due),
      done: ({ uid }) => bodies.remove(uid),
    });
    this.#ledger = ledger;
    this.#leases = new Leases(clock, loaded.token);
    this.#suspects = new Suspects([], clock);
    this.#acceptance = new Acceptance({ ...input, ledger });
    this.#reader = new EntryReader(ledger, snapshots, clock);
    this.#upkeep = new Upkeep({ ...input, ledger, leases: this.#leases, acceptance: this.#acceptance });
  }

  async start(): Promise<void> {
    await this.#ledger.fill(this.#input.loaded.entries);
    await this.#upkeep.start();
    this.#suspects = new Suspects(this.#ledger.open.values(), this.#input.clock);
  }

  get size(): number {
    return this.#ledger.open.size;
  }

  async prepare(entry: NewEntry, message: SpooledMessage): Promise<PreparedEntry> {
    if (this.#closed) throw problem('unavailable', 'The queue is closing.');
    return this.#acceptance.prepare(entry, message);
  }

  async claim(options: ClaimOptions): Promise<readonly Lease[]> {
    const ledger = this.#ledger;
    if (this.#closed || ledger.stalled) return [];
    const leases: Lease[] = [];
    const begin = function* (picked: ReturnType<Ledger['schedule']['pick']>, given: Leases) {
      for (const one of picked) {
        const lease = given.begin(one, options);
        leases.push(lease);
        yield leaseChange(one.entry, lease, options.now);
      }
    };
    const picked = this.#suspects.count > 0 ? this.#pickAlone(options) : ledger.schedule.pick(options);
    if (picked.length === 0) return [];
    try {
      await ledger.commit(begin(picked, this.#leases));
      return leases;
    } catch (error) {
      this.#input.log.warn({ err: error }, 'nothing is sent while the queue cannot be written');
      for (const lease of leases) void this.settle(lease, { results: [] }).catch(() => undefined);
      return [];
    }
  }

  /** Picks an entry that may crash the process, while no other is leased. */
  #pickAlone(options: ClaimOptions): readonly Picked[] {
    if (this.#leases.count > 0) return [];
    const picked = this.#suspects.pick(options);
    if (picked === undefined) return [];
    this.#ledger.schedule.remove(picked.recipients);
    return [picked];
  }

  async settle(lease: Lease, settlement: Settlement): Promise<void> {
    const active = this.#leases.end(lease);
    const now = this.#input.clock.now();
    await this.#ledger.commitEventually(() => settleLease(active.entry, active, settlement, now));
  }

  nextDue(): number | null {
    return this.#signal.say(this.#ledger.schedule.nextDue());
  }

  onDue(listener: () => void): () => void {
    return this.#signal.listen(listener);
  }

  onOutcome(listener: Parameters<RelayQueue['onOutcome']>[0]): () => void {
    return this.#outcomes.add(listener);
  }

  open(uid: string): Promise<Readable> {
    return this.#message(uid, (entry) => this.#input.bodies.stream(entry));
  }

  bytes(uid: string): Promise<Buffer | undefined> {
    return this.#message(uid, (entry) => this.#input.bodies.bytes(entry));
  }

  async #message<T>(uid: string, read: (entry: QueuedEntry) => Promise<T>): Promise<T> {
    const entry = this.#ledger.find(uid);
    if (entry === undefined) throw problem('not-found', 'There is no such entry in the queue.');
    try {
      return await read(entry);
    } catch (error) {
      // The commit log of the spool may still restore it.
      const maybeLater = isProblem(error) && error.problem === 'not-found' && !this.#upkeep.ready && !entry.isDone;
      throw maybeLater ? problem('unavailable', { detail: 'The message is not there yet.', cause: error }) : error;
    }
  }

  async find(uid: string): Promise<Entry | undefined> {
    const entry = this.#ledger.find(uid);
    return entry === undefined ? undefined : this.#reader.entry(entry);
  }

  list(options: ListOptions): Promise<EntryPage> {
    return this.#reader.list(options);
  }

  count(filter: EntryFilter): Promise<number> {
    return this.#reader.count(filter);
  }

  statistics(now: number, filter?: EntryFilter): Promise<QueueStatistics> {
    return this.#reader.statistics(now, this.#input.quarantine.count, filter);
  }

  async mutate(selector: Selector, mutation: Mutation, now: number, run?: MutationRun): Promise<MutationResult> {
    if (this.#closed) throw problem('unavailable', 'The queue is closing.');
    const uids = await this.#chosen(selector);
    this.#refuseOtherVersions(selector);
    return mutateAll(this.#ledger, uids, { mutation, now, chooses: choiceOf(selector), run });
  }

  async preview(selector: Selector, mutation: Mutation, now: number): Promise<MutationPreview> {
    const uids = await this.#chosen(selector);
    this.#refuseOtherVersions(selector);
    return previewAll(this.#ledger, uids, { mutation, now, chooses: choiceOf(selector) });
  }

  #refuseOtherVersions(selector: Selector): void {
    if (!('uids' in selector) || selector.isExpected === undefined) return;
    for (const uid of selector.uids) {
      const entry = this.#ledger.find(uid);
      if (entry !== undefined && selector.isExpected(versionOf(entry))) continue;
      throw problem('precondition-failed', 'The entry has changed since you read it. Read it again, then repeat.');
    }
  }

  async #chosen(selector: Selector): Promise<readonly string[]> {
    if ('uids' in selector) return selector.uids;
    if ('recipients' in selector) return Object.keys(selector.recipients);
    const { filter, expect } = selector;
    const uids = await this.#reader.matching(filter);
    if (expect === undefined || expect === uids.length) return uids;
    throw problem('conflict', `${pluralize(uids.length, 'entry matches', 'entries match')} now, not ${expect}.`);
  }

  async notices(limit: number): Promise<readonly { readonly entry: Entry; readonly notice: Notice }[]> {
    const found: { readonly entry: Entry; readonly notice: Notice }[] = [];
    for (const entry of this.#ledger.nextNoticing(limit)) {
      const whole = await this.#reader.entry(entry);
      for (const notice of whole.notices) found.push({ entry: whole, notice });
    }
    return found;
  }

  async noticed(uid: string, noticeIds: readonly string[]): Promise<void> {
    const entry = this.#ledger.find(uid);
    if (entry === undefined || !entry.details.notices.some(({ id }) => noticeIds.includes(id))) return;
    await this.#ledger.commitEventually(() => ({
      ...draftOf(entry),
      notices: entry.details.notices
        .filter(({ id }) => !noticeIds.includes(id))
        .map((notice) => ({ ...notice, recipients: [...notice.recipients] })),
    }));
  }

  uids(): Promise<readonly string[]> {
    return Promise.resolve([...this.#ledger.open.keys(), ...this.#ledger.finished.keys()]);
  }

  async wholes(uids: readonly string[]): Promise<readonly WholeEntry[]> {
    const found = uids.flatMap((uid) => this.#ledger.find(uid) ?? []);
    return Promise.all(
      found.map(async (entry) => {
        const { history } = await this.#reader.entry(entry);
        return { entry, history, isBusy: entry.details.leases.length > 0 };
      }),
    );
  }

  async adopt({ entry, history, content }: MovedEntry): Promise<void> {
    const { bodies, deps } = this.#input;
    const older = this.#ledger.find(entry.uid);
    if (older !== undefined) await this.#ledger.forget(older);
    const { traceOffset, checksum } = entry.isDone
      ? { traceOffset: 0, checksum: entry.checksum }
      : await bodies.write(entry.accepted, content);
    const stored = { ...storeEntry(entry), traceOffset, ...(checksum !== undefined && { checksum }) };
    const adopted = restoreEntry(StoredEntry.parse(stored), entry.envelope, deps);
    adopted.edit.recent = history.map((attempt) => JSON.stringify(attempt));
    adopted.tidy();
    await this.#ledger.adopt(adopted);
  }

  async drop(wholes: readonly WholeEntry[]): Promise<readonly string[]> {
    const isSame = ({ entry }: WholeEntry): boolean => this.#ledger.find(entry.uid)?.revision === entry.revision;
    const dropped = wholes.filter(isSame);
    const entries = dropped.flatMap(({ entry: { uid } }) => this.#ledger.find(uid) ?? []);
    await Promise.all(entries.map((entry) => this.#ledger.forget(entry)));
    this.#ledger.refuseWhileStalled();
    for (const { uid } of entries) this.#input.bodies.remove(uid);
    return wholes.filter((one) => !dropped.includes(one)).map(({ entry: { uid } }) => uid);
  }

  async housekeep(now: number): Promise<void> {
    if (!this.#closed) await this.#upkeep.housekeep(now);
  }

  bound(bounds: QueueBounds): void {
    Object.assign(this.#input.bounds, bounds);
  }

  complaint(): string | undefined {
    const { journal, quarantine } = this.#input;
    const found: string[] = [];
    if (this.#ledger.stalled || !this.#upkeep.begun)
      found.push('The queue cannot be written. Nothing is accepted or sent until it can.');
    if (quarantine.count > 0) {
      void quarantine.open().catch(() => undefined);
      const files = pluralize(quarantine.count, 'file of the queue is', 'files of the queue are');
      found.push(`${files} in quarantine. To make entries of its messages again: postern queue recover --dry-run`);
    }
    if (this.#aside > 0) {
      void journal.countAside().then(
        (count) => (this.#aside = count),
        () => undefined,
      );
      const files = pluralize(this.#aside, 'file');
      found.push(
        `The journal of the queue was damaged. Look at what was set aside in queue/journal/aside (${files}, notes of what is lost among them), then remove it: rm queue/journal/aside/*`,
      );
    }
    if (this.#suspects.count > 0) {
      const messages = pluralize(this.#suspects.count, 'message was', 'messages were');
      found.push(`${messages} being sent when the server ended, twice in a row: now each is tried alone, others wait.`);
    }
    const damaged = this.#ledger.damagedCount;
    if (damaged > 0) {
      const messages = pluralize(damaged, 'message is', 'messages are');
      found.push(
        `${messages} held because of damage, or because the server ended while sending. See /client/queue/list?state=held`,
      );
    }
    return found.length === 0 ? undefined : found.join(' ');
  }

  figures(): ReturnType<OpenedRelayQueue['figures']> {
    return { quarantined: this.#input.quarantine.count, damaged: this.#ledger.damagedCount };
  }

  #recover(options: RecoverOptions): ReturnType<typeof recover> {
    if (this.#closed) throw problem('unavailable', 'The queue is closing.');
    return recover({ ...this.#input, ledger: this.#ledger, acceptance: this.#acceptance }, options);
  }

  async locate({ name }: LinkTarget): Promise<string | null | undefined> {
    const { bodies } = this.#input;
    const entry = this.#ledger.find(bodies.uidOf(name));
    // A message without an entry goes to quarantine: the journal may have lost the entry.
    return entry?.isDone === true ? null : bodies.locate(name);
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    for (const lease of this.#leases.takeAll()) {
      const now = this.#input.clock.now();
      const moment = { now, due: now, crashed: false };
      void this.#ledger.commitEventually(() => loseLease(lease.entry, lease, moment)).catch(() => undefined);
    }
    await this.#ledger.close();
    await this.#input.bodies.close();
  }
}

export function choiceOf(selector: Selector): RecipientTest | undefined {
  if ('recipients' in selector) {
    const { recipients } = selector;
    return ({ entry, index }) => recipients[entry.uid]?.includes(index) ?? false;
  }
  const filter = 'uids' in selector ? selector.within : selector.filter;
  return filter === undefined ? undefined : recipientTestOf(filter);
}
