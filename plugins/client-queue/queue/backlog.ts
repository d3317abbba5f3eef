import type { Log } from '../../../core/log/log.js';
import { problem } from '../../../core/problem.js';
import type { Journal } from './journal.js';
import type { QueuedEntry } from './queued-entry.js';

const firstPauseMs = 50;
const maxPauseMs = 15_000;
const entriesInRecord = 50;

export interface BacklogInput {
  readonly journal: Journal;
  readonly log: Log;
  /** Brings everything into a snapshot, which makes room in the journal; whether that has worked. Never rejects. */
  readonly makeRoom: () => Promise<boolean>;
}

/** What the disk has refused: written again and again, with pauses that grow, until it is there. */
export class Backlog {
  readonly #input: BacklogInput;
  readonly #entries = new Set<QueuedEntry>();
  readonly #drops = new Set<string>();
  #waiting: { readonly resolve: () => void; readonly reject: (error: Error) => void }[] = [];
  #timer: NodeJS.Timeout | undefined;
  #pauseMs = firstPauseMs;
  #closed = false;

  constructor(input: BacklogInput) {
    this.#input = input;
  }

  get size(): number {
    return this.#entries.size + this.#drops.size;
  }

  /** These entries are to be written as they are then. */
  keep(entries: readonly QueuedEntry[]): void {
    for (const entry of entries) this.#entries.add(entry);
    this.#schedule();
  }

  /** An entry that must not come back. */
  drop(uid: string): void {
    this.#drops.add(uid);
    this.#schedule();
  }

  /** Resolves when everything is on the disk. Rejects when the queue is closed before. */
  settled(): Promise<void> {
    if (this.size === 0) return Promise.resolve();
    if (this.#closed) return Promise.reject(closing());
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
  }

  /** One last try. */
  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    if (this.size > 0) await this.#try();
    for (const { reject } of this.#waiting) reject(closing());
    this.#waiting = [];
  }

  #schedule(): void {
    if (this.#closed) return;
    this.#timer ??= setTimeout(() => void this.#try(), this.#pauseMs);
  }

  async #try(): Promise<void> {
    const { log } = this.#input;
    try {
      await this.#write();
      this.#pauseMs = firstPauseMs;
    } catch (error) {
      log.error({ err: error, entries: this.size }, 'the queue cannot be written; it is tried again');
      this.#pauseMs = Math.min(2 * this.#pauseMs, maxPauseMs);
      await this.#bypass();
    }
    this.#timer = undefined;
    if (this.size > 0) this.#schedule();
    else this.#release();
  }

  /** What is in a snapshot need not be in the journal. */
  async #bypass(): Promise<void> {
    const entries = revisionsOf(this.#entries);
    if (await this.#input.makeRoom()) this.#forget(entries);
  }

  #forget(written: ReturnType<typeof revisionsOf>): void {
    for (const { entry, revision } of written) if (entry.revision === revision) this.#entries.delete(entry);
  }

  async #write(): Promise<void> {
    const { journal } = this.#input;
    while (this.#drops.size > 0) {
      const uids = [...this.#drops].slice(0, entriesInRecord);
      await journal.drop(uids);
      for (const uid of uids) this.#drops.delete(uid);
    }
    while (this.#entries.size > 0) {
      const entries = [...this.#entries].slice(0, entriesInRecord);
      const written = revisionsOf(entries);
      await journal.put(entries);
      this.#forget(written);
    }
  }

  #release(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const { resolve } of waiting) resolve();
  }
}

const revisionsOf = (entries: Iterable<QueuedEntry>) =>
  Array.from(entries, (entry) => ({ entry, revision: entry.revision }));

const closing = (): Error => problem('unavailable', 'The queue is closing.');
