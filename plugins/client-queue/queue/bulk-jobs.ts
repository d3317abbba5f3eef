import { rename } from 'node:fs/promises';
import { z } from 'zod';
import type { Clock } from '../../../core/clock.js';
import type { MutationResult, MutationRun, RecipientIndexes } from '../../../core/contracts/relay-queue.js';
import { type Document, openDocument } from '../../../core/disk/document.js';
import { uniqueId } from '../../../core/disk/id.js';
import type { Log } from '../../../core/log/log.js';
import { isProblem, problem } from '../../../core/problem.js';

const maxJobs = 50;
/** More at once are refused. */
const maxRunning = 4;
/** Entries of all jobs whose recipients are kept for Undo; the newest holds come first. */
const maxUndoEntries = 20_000;
const saveEveryMs = 1000;

const operations = ['retry', 'delete', 'bounce', 'hold', 'release'] as const;
export const jobStates = ['running', 'done', 'cancelled', 'failed', 'interrupted'] as const;

const StoredJob = z.strictObject({
  id: z.string(),
  operation: z.enum(operations),
  selection: z.string(),
  by: z.string().nullable(),
  /** Page from which a form came. */
  back: z.string(),
  startedAt: z.number(),
  endedAt: z.number().nullable(),
  state: z.enum(jobStates),
  total: z.int(),
  done: z.int(),
  recipients: z.int(),
  messages: z.int(),
  otherRecipients: z.int(),
  active: z.int(),
  notFound: z.int(),
  error: z.string().nullable(),
  /** Recipients that Undo releases; null without Undo. */
  held: z.record(z.string(), z.array(z.int())).nullable(),
});
const StoredJobs = z.strictObject({ jobs: z.array(StoredJob) });
type StoredJobs = z.output<typeof StoredJobs>;

/** One action on many entries, running or ended. Times are milliseconds since the epoch. */
export type BulkJob = Readonly<z.output<typeof StoredJob>>;
type JobDraft = z.output<typeof StoredJob>;

export type JobOrder = Pick<BulkJob, 'operation' | 'selection' | 'by' | 'back' | 'total'>;

type Work = (run: MutationRun) => Promise<MutationResult>;

interface Running {
  readonly abort: AbortController;
  readonly ended: Promise<void>;
}

interface BulkJobsInput {
  /** Absolute path of `queue-jobs.json`. */
  readonly file: string;
  readonly clock: Clock;
  readonly log: Log;
}

/** Actions on many entries: they run after the answer to their request, and their results are kept over restarts. */
export class BulkJobs {
  readonly #input: BulkJobsInput;
  readonly #document: Document<StoredJobs>;
  readonly #running = new Map<string, Running>();
  /** Newest first. */
  #jobs: readonly JobDraft[];
  #stopping = false;

  private constructor(input: BulkJobsInput, document: Document<StoredJobs>) {
    this.#input = input;
    this.#document = document;
    this.#jobs = document.data.jobs.map((job) => (job.state === 'running' ? { ...job, state: 'interrupted' } : job));
  }

  /** A damaged file is set aside: it holds only results of the past. */
  static async open(input: BulkJobsInput): Promise<BulkJobs> {
    const { file, log } = input;
    const options = { file, schema: StoredJobs, initial: { jobs: [] } };
    try {
      return new BulkJobs(input, await openDocument(options));
    } catch (error) {
      log.warn({ err: error, file }, 'the results of bulk jobs cannot be read, and are set aside');
      await rename(file, `${file}.damaged`);
      return new BulkJobs(input, await openDocument(options));
    }
  }

  /** Newest first. */
  list(): readonly BulkJob[] {
    return this.#jobs;
  }

  get(id: string): BulkJob | undefined {
    return this.#jobs.find((job) => job.id === id);
  }

  /** Starts the work when its record is durable. @throws Problem `unavailable` while too many run, `storage-full` */
  async start(order: JobOrder, work: Work): Promise<BulkJob> {
    if (this.#stopping || this.#running.size >= maxRunning) {
      const detail = `${this.#running.size} bulk jobs are running. Wait until one ends, or cancel one.`;
      throw problem('unavailable', { detail, headers: { 'Retry-After': '5' } });
    }
    const job = this.#begin(order);
    const abort = new AbortController();
    const saved = this.#save();
    const run = async (): Promise<void> => {
      await saved;
      await this.#run(job, abort.signal, work);
    };
    const ended = run()
      .catch(() => undefined)
      .finally(() => this.#running.delete(job.id));
    this.#running.set(job.id, { abort, ended });
    try {
      await saved;
    } catch (error) {
      this.#jobs = this.#jobs.filter((one) => one !== job);
      throw error;
    }
    return job;
  }

  /** Records an action that is done, so that it can be undone. Never rejects. */
  async record(order: JobOrder, result: MutationResult): Promise<BulkJob> {
    const job = this.#begin(order);
    this.#end(job, 'done', result);
    await this.#trySave();
    return job;
  }

  /** Ends a running job before its next batch; false when it is not running. */
  async cancel(id: string): Promise<boolean> {
    const running = this.#running.get(id);
    // One that has ended may still be on its way to the disk.
    if (running === undefined || this.get(id)?.state !== 'running') return false;
    running.abort.abort();
    await running.ended;
    return true;
  }

  /** Takes the recipients of a hold for their release: undefined for what cannot be undone, or was already. */
  async takeUndo(id: string): Promise<RecipientIndexes | undefined> {
    const job = this.#jobs.find((one) => one.id === id);
    const held = job?.held ?? undefined;
    if (job === undefined || held === undefined) return undefined;
    job.held = null;
    await this.#trySave();
    return held;
  }

  /** Interrupts what runs; resolves when that is on disk. */
  async stop(): Promise<void> {
    this.#stopping = true;
    for (const { abort } of this.#running.values()) abort.abort();
    await Promise.all([...this.#running.values()].map(({ ended }) => ended));
  }

  #begin(order: JobOrder): JobDraft {
    const nothing = { done: 0, recipients: 0, messages: 0, otherRecipients: 0, active: 0, notFound: 0 };
    const startedAt = this.#input.clock.now();
    const job: JobDraft = {
      ...order,
      ...nothing,
      id: uniqueId(),
      startedAt,
      endedAt: null,
      state: 'running',
      error: null,
      held: null,
    };
    this.#jobs = [job, ...this.#jobs].filter(({ state }, index) => index < maxJobs || state === 'running');
    return job;
  }

  async #run(job: JobDraft, signal: AbortSignal, work: Work): Promise<void> {
    const { clock, log } = this.#input;
    let savedAt = clock.monotonic();
    const progress: MutationRun['progress'] = (reached) => {
      Object.assign(job, reached);
      if (clock.monotonic() - savedAt < saveEveryMs) return;
      savedAt = clock.monotonic();
      void this.#trySave();
    };
    try {
      const result = await work({ signal, progress });
      const isWhole = result.results.length >= result.requested;
      this.#end(job, isWhole ? 'done' : this.#stopping ? 'interrupted' : 'cancelled', result);
    } catch (error) {
      log.warn({ err: error, job: job.id }, 'a bulk job failed');
      job.state = 'failed';
      job.endedAt = clock.now();
      job.error = isProblem(error) ? (error.details.detail ?? error.message) : 'A fault of this server; see its log.';
    }
    await this.#trySave();
  }

  #end(job: JobDraft, state: BulkJob['state'], result: MutationResult): void {
    const { requested, results, recipients, messages, otherRecipients, newlyHeld = {} } = result;
    const count = (wanted: string): number => results.filter(({ outcome }) => outcome === wanted).length;
    Object.assign(job, { total: requested, done: results.length, recipients, messages, otherRecipients });
    job.active = count('active');
    job.notFound = count('notFound');
    job.state = state;
    job.endedAt = this.#input.clock.now();
    if (Object.keys(newlyHeld).length > 0)
      job.held = Object.fromEntries(Object.entries(newlyHeld).map(([uid, indexes]) => [uid, [...indexes]]));
    this.#boundUndo();
  }

  #boundUndo(): void {
    let entries = 0;
    for (const job of this.#jobs) {
      if (job.held === null) continue;
      entries += Object.keys(job.held).length;
      if (entries > maxUndoEntries) job.held = null;
    }
  }

  #save(): Promise<void> {
    return this.#document.update(() => ({ jobs: [...this.#jobs] }));
  }

  /** What is in memory is shown until the disk has it. */
  async #trySave(): Promise<void> {
    try {
      await this.#save();
    } catch (error) {
      this.#input.log.warn({ err: error }, 'the result of a bulk job could not be written');
    }
  }
}
