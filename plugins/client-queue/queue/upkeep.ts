import { join } from 'node:path';
import type { Clock } from '../../../core/clock.js';
import { TimeSlice } from '../../../core/concurrency.js';
import type { QueueBounds } from '../../../core/contracts/relay-queue-store.js';
import { isUnwritable } from '../../../core/disk/fault.js';
import type { FileLayer } from '../../../core/disk/file-layer.js';
import type { Log } from '../../../core/log/log.js';
import { LogFull } from '../../../core/spool/commit-log.js';
import type { Acceptance } from './acceptance.js';
import { type Bodies, shards } from './bodies.js';
import { type EntryChange, type ChangeDeps, draftOf } from './change.js';
import { ClockWatch } from './clock-watch.js';
import { damageHolds } from './hold-reasons.js';
import { ageEntry, broughtBack, FutureArrivals, sweep } from './housekeeping.js';
import type { Journal } from './journal.js';
import { type Leases, loseLease, suspectCrashes } from './leases.js';
import type { Ledger } from './ledger.js';
import type { Loaded } from './loading.js';
import type { Quarantine } from './quarantine.js';
import { isWaiting, type QueuedEntry } from './queued-entry.js';
import type { Snapshots } from './snapshots.js';

/** Changes per commit. */
const together = 250;
const trimEveryMs = 3_600_000;
/** Mail that is due later than the longest pause got its time from a clock that was wrong. */
export const defaultLongestPauseMs = 6 * 3_600_000;

export interface UpkeepInput extends FileRelayQueueInput {
  readonly ledger: Ledger;
  readonly leases: Leases;
  readonly acceptance: Acceptance;
}

/** Work at the start and at intervals. */
export class Upkeep {
  readonly #input: UpkeepInput;
  readonly #clock: Clock;
  #swept = false;
  #ready: boolean;
  #trimmedAt = -Infinity;
  #isBegun = true;
  readonly #watch: ClockWatch;
  readonly #arrivals = new FutureArrivals();
  /** The time before the clock went back, until it was handled. */
  #before: number | undefined;

  constructor(input: UpkeepInput) {
    this.#input = input;
    this.#clock = input.clock;
    this.#ready = input.ready === undefined;
    void this.#become(input.ready);
    this.#watch = new ClockWatch(this.#clock);
  }

  async #become(ready: Promise<void> | undefined): Promise<void> {
    await ready;
    this.#ready = true;
  }

  /** The journal has been written since the start. */
  get begun(): boolean {
    return this.#isBegun;
  }

  /** The commit log of the spool has restored every message. */
  get ready(): boolean {
    return this.#ready;
  }

  /** Repairs what a dead process left. */
  async start(): Promise<void> {
    const { journal, loaded, snapshots, log } = this.#input;
    snapshots.held = !loaded.whole;
    try {
      await journal.prepare();
      await this.#begin();
    } catch (error) {
      if (!isUnwritable(error) && !(error instanceof LogFull)) throw error;
      log.error({ err: error }, 'the queue cannot be written: what is in it can be read, and nothing is accepted');
      this.#isBegun = false;
    }
    if (!loaded.whole)
      log.error('the journal of the queue is damaged: what is found without an entry goes to quarantine');
    const downMs = this.#downMs();
    if (downMs > 0)
      log.warn({ hours: Math.round(downMs / 3_600_000) }, 'the queue was down for long: its mail gets that time again');
    const alone = this.#leasedEntries() === 1;
    await this.#change((entry) => this.#atStart(entry, { downMs, alone }), true);
    if (this.#input.crowded) await this.#input.ledger.snapshot();
  }

  /** Continues the journal from the snapshot that was found. */
  async #begin(): Promise<void> {
    const { journal, loaded, folder, files } = this.#input;
    const isNew = journal.marker === undefined;
    const snapshot = loaded.snapshot?.name ?? null;
    if (journal.marker?.snapshot !== snapshot) await journal.mark({ snapshot, upTo: loaded.upTo });
    this.#isBegun = true;
    if (isNew) {
      if (!(await isEmpty(folder, files))) {
        const now = this.#clock.now();
        await journal.note(
          `damage-${now}.txt`,
          `At ${new Date(now).toISOString()} the journal of the queue was gone or had lost its beginning, though messages are there.`,
        );
      } else if (loaded.whole) await journal.swept(this.#clock.now());
    }
  }

  /** Downtime according to the entries; 0 if it may be a pause between attempts. */
  #downMs(): number {
    const { ledger, bounds } = this.#input;
    const now = this.#clock.now();
    let last = -Infinity;
    for (const entries of [ledger.open, ledger.finished]) {
      for (const { queuedAt, lastAttempt } of entries.values()) {
        for (const at of [queuedAt, lastAttempt ?? queuedAt]) if (at > last && at <= now) last = at;
      }
    }
    const { maxPauseMs = defaultLongestPauseMs } = bounds;
    return last === -Infinity || now - last <= maxPauseMs ? 0 : now - last;
  }

  /** Entries that the dead process held. */
  #leasedEntries(): number {
    let count = 0;
    for (const { details } of this.#input.ledger.open.values()) if (details.leases.length > 0) count += 1;
    return count;
  }

  *#atStart(
    entry: QueuedEntry,
    { downMs, alone }: { readonly downMs: number; readonly alone: boolean },
  ): Generator<EntryChange> {
    const now = this.#clock.now();
    const later = extended(entry, { now, downMs });
    if (later !== undefined) yield later;
    const { random, spreadMs, bounds } = this.#input;
    const { maxPauseMs = defaultLongestPauseMs } = bounds;
    let crashed = true;
    for (const lease of entry.details.leases) {
      // A suspect is tried first.
      const due = entry.details.crashes + 1 >= suspectCrashes ? now : now + random(spreadMs);
      yield loseLease(entry, lease, { now, due, crashed, alone });
      crashed = false;
    }
    const near = broughtBack(entry, { now, maxPauseMs, random });
    if (near !== undefined) yield near;
  }

  async housekeep(now: number): Promise<void> {
    const { ledger, leases, bounds, maxFinished, random, spreadMs } = this.#input;
    if (!this.#isBegun) await this.#tryToBegin();
    if (!this.#swept && this.#ready && this.#isBegun) await this.#tryToSweep(now);
    for (const lease of leases.takeOverdue()) {
      const due = now + random(spreadMs);
      await ledger.commitEventually(() => loseLease(lease.entry, lease, { now, due, crashed: false }));
    }
    await this.#followClock(now);
    const { isSteady: steady, hasJumped: jumped } = this.#watch;
    const { keepDeadLetterMs = 0 } = bounds;
    if (!steady) this.#arrivals.forget();
    const aheadOf = (entry: QueuedEntry): number => (steady ? this.#arrivals.aheadOf(entry, now) : 0);
    if (!ledger.stalled) {
      await this.#change(function* (entry) {
        const change = ageEntry(entry, { now, steady, jumped, keepDeadLetterMs, aheadOf });
        if (change !== undefined) yield change;
      });
    }
    if (steady) await this.#trim(now);
    await this.#input.journal.shrink();
    await ledger.forgetFinished(now - bounds.keepFinishedMs, maxFinished);
  }

  async #tryToBegin(): Promise<void> {
    try {
      await this.#begin();
    } catch {
      // Still full, or read-only.
    }
  }

  /** Runs at intervals: the quarantine is bounded. */
  async #trim(now: number): Promise<void> {
    const { quarantine, bounds } = this.#input;
    const { quarantineMs: maxAgeMs = Infinity, quarantineBytes: maxBytes = Infinity } = bounds;
    if (quarantine.count === 0 || now - this.#trimmedAt < trimEveryMs) return;
    this.#trimmedAt = now;
    await quarantine.trim({ now, maxAgeMs, maxBytes });
  }

  async #tryToSweep(now: number): Promise<void> {
    try {
      await this.#sweep(now);
    } catch (error) {
      this.#input.log.error({ err: error }, 'the messages of the queue could not all be looked at; it is tried again');
    }
  }

  async #sweep(now: number): Promise<void> {
    const { ledger, acceptance, journal, loaded, snapshots } = this.#input;
    const { complaints } = await sweep(
      {
        ...this.#input,
        find: (uid) => ledger.find(uid),
        isPreparing: (uid) => acceptance.isPreparing(uid),
        whole: loaded.whole,
        sweptAt: journal.sweptAt,
      },
      ledger.open.values(),
    );
    const broken = new Map(complaints.map(({ entry, complaint }) => [entry.uid, complaint]));
    await this.#change(function* (entry) {
      const complaint = broken.get(entry.uid);
      const waiting = entry.recipients.filter(isWaiting);
      if (complaint === undefined || waiting.length === 0) return;
      yield {
        ...draftOf(entry),
        hold: damageHolds[complaint],
        recipients: waiting.map(({ index }) => ({ index, state: 'held' as const })),
      };
    });
    await journal.swept(now);
    this.#swept = true;
    snapshots.held = false;
    if (!loaded.whole) await ledger.snapshot();
  }

  /** Reschedules attempts with the times of a wrong clock; detects a clock that was wrong between two rounds. */
  async #followClock(now: number): Promise<void> {
    const jump = this.#watch.look();
    if (jump < 0) this.#before = Math.max(now - jump, this.#before ?? 0);
    if (this.#input.ledger.stalled) return;
    const before = this.#before ?? -Infinity;
    this.#before = undefined;
    const { random, bounds } = this.#input;
    const { maxPauseMs = defaultLongestPauseMs } = bounds;
    await this.#change(function* (entry) {
      const near = broughtBack(entry, { now, before, maxPauseMs, random });
      if (near !== undefined) yield near;
    });
  }

  /** Changes open entries, in batches. */
  async #change(changesOf: (entry: QueuedEntry) => Iterable<EntryChange>, isEventual = false): Promise<void> {
    const { ledger } = this.#input;
    const slice = new TimeSlice();
    let some: QueuedEntry[] = [];
    const commit = async (): Promise<void> => {
      const entries = some;
      some = [];
      try {
        await ledger.commit(eachOf(entries, changesOf));
      } catch (error) {
        // It stays in memory and is written later.
        if (!isEventual || !isUnwritable(error)) throw error;
      }
    };
    for (const entry of ledger.open.values()) {
      if (!changesOf(entry)[Symbol.iterator]().next().done) some.push(entry);
      if (some.length >= together) await commit();
      const pause = slice.yieldIfDue();
      if (pause !== undefined) await pause;
    }
    await commit();
  }
}

/** Downtime does not count; but no entry gets more than one lifetime from now. */
function extended(
  entry: QueuedEntry,
  { now, downMs }: { readonly now: number; readonly downMs: number },
): EntryChange | undefined {
  const { queuedAt, warnAt } = entry;
  const expiresAt = Math.min(entry.expiresAt + downMs, now + entry.expiresAt - queuedAt);
  if (downMs === 0 || expiresAt <= entry.expiresAt) return undefined;
  return { ...draftOf(entry), expiresAt, ...(warnAt !== null && { warnAt: warnAt + downMs }) };
}

function* eachOf(
  entries: readonly QueuedEntry[],
  changesOf: (entry: QueuedEntry) => Iterable<EntryChange>,
): Generator<EntryChange> {
  for (const entry of entries) yield* changesOf(entry);
}

async function isEmpty(folder: string, files: FileLayer): Promise<boolean> {
  for (const shard of shards) if ((await files.readdir(join(folder, shard))).length > 0) return false;
  return true;
}

export interface FileRelayQueueInput {
  readonly folder: string;
  readonly files: FileLayer;
  readonly clock: Clock;
  readonly log: Log;
  /** Changed by `bound`. */
  readonly bounds: { -readonly [name in keyof QueueBounds]: QueueBounds[name] };
  readonly maxFinished: number;
  readonly spreadMs: number;
  readonly random: (limit: number) => number;
  readonly ready?: Promise<void>;
  readonly journal: Journal;
  readonly snapshots: Snapshots;
  readonly bodies: Bodies;
  readonly quarantine: Quarantine;
  readonly deps: ChangeDeps;
  readonly loaded: Loaded;
  /** The journal consisted of many files: each process that died left one. */
  readonly crowded: boolean;
  /** Unreadable journal files, found now or at earlier starts. */
  readonly aside: number;
}
