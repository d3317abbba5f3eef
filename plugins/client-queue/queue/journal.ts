import { setImmediate } from 'node:timers/promises';
import { z } from 'zod';
import { problem } from '../../../core/problem.js';
import { CommitLog, type CommitLogOptions } from '../../../core/spool/commit-log.js';
import { EntryChange } from './change.js';
import type { QueuedEntry } from './queued-entry.js';
import { StoredAccept, type StoredAcceptInput, StoredEntry, storeEntry } from './stored-entry.js';
import { StoredAttempt } from './envelope.js';

/** Record kinds. */
const acceptKind = 1;
const changesKind = 2;
const markerKind = 3;
const putKind = 4;
const dropKind = 5;
const sweptKind = 6;

/** Maximum bytes of changes in one record, unless a single change is larger. */
const changesBytes = 1024 * 1024;

/** Whole entries whose changes could not be written. */
const Put = z.array(z.object({ entry: StoredEntry, envelope: z.string(), recent: z.array(StoredAttempt) }));
const Drop = z.array(z.string());

/** The snapshot that the journal continues. */
interface Marker {
  /** Name of the file; null for an empty queue. */
  readonly snapshot: string | null;
  /** Number of the last record that it contains. */
  readonly upTo: number;
}

export interface JournalVisitor {
  accept(accepted: StoredAccept): void;
  change(change: EntryChange): void;
  put(entry: StoredEntry, envelope: string, recent: readonly z.output<typeof StoredAttempt>[]): void;
  drop(uid: string): void;
  /** Receives a record that cannot be decoded. */
  damaged(bytes: Buffer): Promise<void>;
}

/** Changes of the entries since the last snapshot: records in a commit log of their own, which share an fdatasync. */
export class Journal {
  readonly #commits: CommitLog;
  #marker: Marker | undefined;
  #sweptAt = Infinity;
  #bytes = 0;
  #closed = false;
  readonly #appending = new Set<Promise<number>>();

  private constructor(commits: CommitLog) {
    this.#commits = commits;
  }

  static async open(folder: string, options: CommitLogOptions): Promise<Journal> {
    const journal = new Journal(await CommitLog.open(folder, options));
    await journal.#readMarkers();
    return journal;
  }

  async #readMarkers(): Promise<void> {
    await this.#commits.replay(({ kind, payload }) => {
      this.#bytes += payload.length;
      if (kind === markerKind) this.#marker = decodeMarker(payload) ?? this.#marker;
      if (kind === sweptKind) this.#sweptAt = Number(payload.toString('latin1'));
    });
  }

  /** Undefined when there is none: the journal is new, or its beginning is missing. */
  get marker(): Marker | undefined {
    return this.#marker;
  }

  /** When the message folder was last swept; `Infinity` for never. */
  get sweptAt(): number {
    return this.#sweptAt;
  }

  /** Acknowledged records that cannot be read. */
  get damage(): CommitLog['damage'] {
    return this.#commits.damage;
  }

  /** Number of the newest durable record. */
  get last(): number {
    return this.#commits.last;
  }

  /** Bytes of the records since the last snapshot. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Writes a note about damage beside the quarantined files. */
  note(name: string, sentence: string): Promise<void> {
    return this.#commits.note(name, sentence);
  }

  countAside(): Promise<number> {
    return this.#commits.countAside();
  }

  /** Visits the records after that number. */
  async replay(upTo: number, visitor: JournalVisitor): Promise<void> {
    await this.#commits.replay(async ({ kind, number, payload }) => {
      if (number <= upTo || kind === markerKind || kind === sweptKind) return;
      try {
        show(kind, JSON.parse(payload.toString('utf8')), visitor);
      } catch {
        await visitor.damaged(payload);
      }
    });
  }

  accept(accepted: StoredAcceptInput): Promise<void> {
    return this.#append(acceptKind, accepted);
  }

  async changes(changes: readonly EntryChange[]): Promise<void> {
    const most = Math.min(changesBytes, this.#commits.maxPayload);
    const records = joined(changes, most).map((text) => this.#appendText(changesKind, text));
    for (const result of await Promise.allSettled(records)) if (result.status === 'rejected') throw result.reason;
  }

  /** Whole entries, with their attempts since the last snapshot. */
  put(entries: readonly QueuedEntry[]): Promise<void> {
    const texts = entries.map((entry) => {
      const recent = `[${entry.details.recent.join(',')}]`;
      return `{"entry":${JSON.stringify(storeEntry(entry))},"envelope":${JSON.stringify(entry.envelope)},"recent":${recent}}`;
    });
    return this.#appendText(putKind, `[${texts.join(',')}]`);
  }

  drop(uids: readonly string[]): Promise<void> {
    return this.#append(dropKind, uids);
  }

  async swept(at: number): Promise<void> {
    await this.#appendText(sweptKind, String(at));
    this.#sweptAt = at;
  }

  /** Continues the journal from that snapshot and releases its records. */
  async mark(marker: Marker): Promise<void> {
    const before = this.#bytes;
    await this.#appendText(markerKind, `${marker.snapshot ?? '-'} ${marker.upTo}`);
    this.#marker = marker;
    this.#bytes -= before;
    if (this.#sweptAt !== Infinity) await this.swept(this.#sweptAt);
    if (marker.upTo > 0) await this.#commits.release(marker.upTo);
  }

  /** Returns segments that a burst has left. */
  shrink(): Promise<void> {
    return this.#commits.shrink();
  }

  /** Reserves space before the first record. */
  prepare(): Promise<void> {
    return this.#commits.prepare();
  }

  /** Resolves when all waiting callers have been notified. */
  async idle(): Promise<void> {
    await Promise.allSettled(this.#appending);
    await setImmediate();
  }

  close(): Promise<void> {
    this.#closed = true;
    return this.#commits.close();
  }

  #append(kind: number, content: unknown): Promise<void> {
    return this.#appendText(kind, JSON.stringify(content));
  }

  async #appendText(kind: number, text: string): Promise<void> {
    if (this.#closed) throw problem('unavailable', 'The queue is closed.');
    const payload = Buffer.from(text);
    const appending = this.#commits.append(kind, [payload]);
    this.#appending.add(appending);
    try {
      await appending;
    } finally {
      this.#appending.delete(appending);
    }
    this.#bytes += payload.length;
  }
}

/** The changes as JSON arrays, in order, each up to `most` bytes or a single change. */
function joined(changes: readonly EntryChange[], most: number): readonly string[] {
  const arrays: string[] = [];
  let texts: string[] = [];
  let bytes = 0;
  for (const change of changes) {
    const text = JSON.stringify(change);
    const size = Buffer.byteLength(text) + 2;
    if (texts.length > 0 && bytes + size > most) {
      arrays.push(`[${texts.join(',')}]`);
      texts = [];
      bytes = 0;
    }
    texts.push(text);
    bytes += size;
  }
  return texts.length === 0 ? arrays : [...arrays, `[${texts.join(',')}]`];
}

function show(kind: number, content: unknown, visitor: JournalVisitor): void {
  switch (kind) {
    case acceptKind:
      visitor.accept(StoredAccept.parse(content));
      return;
    case changesKind:
      for (const change of z.array(EntryChange).parse(content)) visitor.change(change);
      return;
    case putKind:
      for (const { entry, envelope, recent } of Put.parse(content)) visitor.put(entry, envelope, recent);
      return;
    case dropKind:
      for (const uid of Drop.parse(content)) visitor.drop(uid);
      return;
    default:
      throw new Error('a record of an unknown kind');
  }
}

/** Short, so that it fits into a full journal. */
function decodeMarker(payload: Buffer): Marker | undefined {
  const [, name, upTo] = /^(\S+) (\d+)$/.exec(payload.toString('latin1')) ?? [];
  if (name === undefined) return undefined;
  return { snapshot: name === '-' ? null : name, upTo: Number(upTo) };
}
