import { z } from 'zod';
import { type FileLayer, nodeFiles } from '../../../core/disk/file-layer.js';
import type { Settlement } from '../../../core/contracts/relay-queue-store.js';
import type { Log } from '../../../core/log/log.js';
import { CommitLog } from '../../../core/spool/commit-log.js';
import { StoredAttempt, StoredNotice, StoredReply } from '../queue/envelope.js';

/** Record kinds: a record of the first two, and the numbers of those that are needed no more. */
const kinds = { outcomes: 1, doubts: 2 } as const;
const doneKind = 3;

const limits = { segmentBytes: 4 * 1024 * 1024, maxSegments: 16 };

const Result = z.object({
  index: z.int().min(0),
  state: z.enum(['delivered', 'deferred', 'bounced', 'expired', 'held']),
  reply: StoredReply.nullable(),
  nextAttempt: z.exactOptional(z.number()),
  hold: z.exactOptional(z.string()),
  discardAt: z.exactOptional(z.number()),
});

const StoredOutcome = z.object({
  token: z.int(),
  uid: z.string(),
  settlement: z.object({
    attempt: z.exactOptional(StoredAttempt),
    results: z.array(Result),
    notices: z.exactOptional(z.array(StoredNotice.omit({ id: true }))),
  }),
});
const StoredDoubt = z.object({ uid: z.string(), birth: z.string() });
const Done = z.array(z.int());

/** What came of a lease. */
export interface KeptOutcome {
  readonly token: number;
  readonly uid: string;
  readonly settlement: Settlement;
}

interface Contents {
  readonly outcomes: KeptOutcome;
  /** Entries whose clients were refused, though they may be committed. */
  readonly doubts: Readonly<z.output<typeof StoredDoubt>>;
}

/** What this node has to tell the database when it is back: on the disk, so that a process that is killed tells the next. */
export class OutageLog {
  /** By the number of their records. */
  readonly outcomes = new Map<number, Contents['outcomes']>();
  readonly doubts = new Map<number, Contents['doubts']>();
  readonly #log: Log;
  /** Undefined when it could not be opened. */
  #commits: CommitLog | undefined;
  /** Records on their way to the disk. */
  #appending = 0;

  /** Without a folder: `open` gives one that has it. */
  constructor(log: Log) {
    this.#log = log;
  }

  /** Never rejects: a server whose disk is full or damaged keeps in memory what it cannot write. */
  static async open(
    folder: string,
    { log, files = nodeFiles }: { readonly log: Log; readonly files?: FileLayer },
  ): Promise<OutageLog> {
    const opened = new OutageLog(log);
    try {
      const commits = await CommitLog.open(folder, { files, log, ...limits });
      await commits.replay(({ kind, number, payload }) => opened.#read(kind, number, payload));
      opened.#commits = commits;
      // Now there may be room for it.
      await commits.prepare();
    } catch (error) {
      log.error({ err: error, folder }, 'the log for outages of the database cannot be opened, or has no room');
    }
    return opened;
  }

  #read(kind: number, number: number, payload: Buffer): void {
    try {
      const content: unknown = JSON.parse(payload.toString('utf8'));
      if (kind === kinds.outcomes) this.outcomes.set(number, StoredOutcome.parse(content));
      else if (kind === kinds.doubts) this.doubts.set(number, StoredDoubt.parse(content));
      else for (const done of Done.parse(content)) this.#forget(done);
    } catch (error) {
      this.#log.error({ err: error, number }, 'a record for the time after an outage of the database cannot be read');
    }
  }

  #forget(number: number): void {
    this.outcomes.delete(number);
    this.doubts.delete(number);
  }

  /** On the disk when it resolves with its number. Rejects when the disk does not take it. */
  async keep<K extends keyof Contents>(kind: K, content: Contents[K]): Promise<number> {
    if (this.#commits === undefined) throw new Error('the log could not be opened');
    this.#appending += 1;
    try {
      const number = await this.#commits.append(kinds[kind], [Buffer.from(JSON.stringify(content))]);
      (this[kind] as Map<number, Contents[K]>).set(number, content);
      return number;
    } finally {
      this.#appending -= 1;
    }
  }

  /** Forgets records. Never rejects: what the disk does not take is offered to the database twice at most, which knows it. */
  async done(numbers: readonly number[]): Promise<void> {
    for (const number of numbers) this.#forget(number);
    const commits = this.#commits;
    if (commits === undefined || numbers.length === 0) return;
    try {
      const isEmpty = this.outcomes.size + this.doubts.size + this.#appending === 0;
      if (isEmpty) await commits.release(commits.last);
      else await commits.append(doneKind, [Buffer.from(JSON.stringify(numbers))]);
    } catch (error) {
      this.#log.warn({ err: error }, 'the log for outages of the database cannot be cleared');
    }
  }

  async close(): Promise<void> {
    await this.#commits?.close();
  }
}
