import { Worker, type Transferable } from 'node:worker_threads';
import { FairQueue } from './fair-queue.js';
import { problem } from './problem.js';
import { clientPath } from './turns.js';

export interface JobLimits {
  /** Maximum number of threads. */
  readonly workers: number;
  /** Time limit of one job in milliseconds, without the start of a thread. */
  readonly timeLimitMs: number;
  /** Heap limit of a thread in megabytes. */
  readonly memoryMb: number;
  /** Maximum number of waiting jobs; more are refused. */
  readonly queue: number;
  /** Milliseconds after which an idle thread ends. */
  readonly idleMs: number;
}

const jobLimits: JobLimits = { workers: 2, timeLimitMs: 2000, memoryMb: 256, queue: 64, idleMs: 60_000 };

/** A result of the job, or why there is none. */
export type JobOutcome<Result> =
  { readonly result: Result } | { readonly failure: 'took too long' | 'failed'; readonly reason: string };

/** What a thread sends (`worker-thread.ts`). */
export type JobReply<Result> =
  { readonly ok: true; readonly result: Result } | { readonly ok: false; readonly error: string };

/** Runs one job. @throws Problem `unavailable` when too many wait */
export type RunJob<Job, Result> = (job: Job, transfer?: readonly Transferable[]) => Promise<JobOutcome<Result>>;

interface Waiting<Job, Result> {
  readonly job: Job;
  readonly transfer: readonly Transferable[];
  readonly settle: (outcome: JobOutcome<Result>) => void;
}

interface Thread<Job, Result> {
  readonly worker: Worker;
  ready: boolean;
  job: Waiting<Job, Result> | undefined;
  timer: NodeJS.Timeout | undefined;
}

/** Time limit for loading the modules of a thread. */
const startLimitMs = 15_000;

/** Each waiting task keeps a client of SMTP waiting. */
const tooMany = 'Too many messages are being read at once.';
const strangersTurns = {
  concurrency: 1,
  maxWaitingPerClient: 32,
  maxWaiting: 256,
  retryAfterSeconds: 2,
  detail: tooMany,
};

/**
 * Runs jobs in threads, so that none can block the server or exhaust its memory: a thread whose job exceeds a limit is
 * ended, and the next job starts another one. Jobs for strangers run one at a time behind all others, in turns by network.
 */
export class WorkerJobs<Job, Result> {
  readonly #module: URL;
  readonly #limits: JobLimits;
  readonly #threads = new Set<Thread<Job, Result>>();
  readonly #waiting: Waiting<Job, Result>[] = [];
  /** Of strangers. One at most: they take turns. */
  readonly #behind: Waiting<Job, Result>[] = [];
  readonly #turns = new FairQueue(strangersTurns);
  #closed = false;

  /** @param module runs in the threads, with `answerJobs` */
  constructor(module: URL, limits: Partial<JobLimits> = {}) {
    this.#module = module;
    this.#limits = { ...jobLimits, ...limits };
  }

  /** @throws Problem `unavailable` when too many are waiting */
  readonly run: RunJob<Job, Result> = (job, transfer = []) => {
    if (this.#closed || this.#waiting.length >= this.#limits.queue) return Promise.reject(refusal());
    return this.#enqueue(this.#waiting, job, transfer);
  };

  /**
   * For mail of the stranger at this address. What a job needs is made in its turn, so that only one lies in memory.
   *
   * @throws Problem `unavailable` when too many of the same client or of all are waiting
   */
  async forStranger<T>(address: string, task: (run: RunJob<Job, Result>) => Promise<T>): Promise<T> {
    let isInTurn = false;
    try {
      return await this.#turns.run(['strangers', ...clientPath(address)], () => {
        isInTurn = true;
        return task(this.#runBehind);
      });
    } catch (error) {
      throw isInTurn ? error : refusal();
    }
  }

  readonly #runBehind: RunJob<Job, Result> = (job, transfer = []) =>
    this.#closed ? Promise.reject(refusal()) : this.#enqueue(this.#behind, job, transfer);

  #enqueue(queue: Waiting<Job, Result>[], job: Job, transfer: readonly Transferable[]): Promise<JobOutcome<Result>> {
    return new Promise((settle) => {
      queue.push({ job, transfer, settle });
      this.#dispatch();
    });
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const { settle } of [...this.#waiting.splice(0), ...this.#behind.splice(0)]) settle(ended);
    await Promise.all([...this.#threads].map((thread) => this.#end(thread, ended)));
  }

  #dispatch(): void {
    while (this.#waiting.length + this.#behind.length > 0) {
      const idle = [...this.#threads].find((thread) => thread.job === undefined);
      const thread = idle ?? (this.#threads.size < this.#limits.workers ? this.#start() : undefined);
      const job = thread === undefined ? undefined : (this.#waiting.shift() ?? this.#behind.shift());
      if (thread === undefined || job === undefined) return;
      thread.job = job;
      thread.worker.ref();
      if (thread.ready) this.#give(thread, job);
      else this.#expire(thread, startLimitMs);
    }
  }

  #give(thread: Thread<Job, Result>, { job, transfer }: Waiting<Job, Result>): void {
    this.#expire(thread, this.#limits.timeLimitMs);
    thread.worker.postMessage(job, transfer);
  }

  #expire(thread: Thread<Job, Result>, ms: number): void {
    clearTimeout(thread.timer);
    const outcome = { failure: 'took too long', reason: `it took more than ${ms} ms` } as const;
    thread.timer = setTimeout(() => void this.#end(thread, outcome), ms);
  }

  #start(): Thread<Job, Result> {
    const worker = new Worker(this.#module, {
      resourceLimits: { maxOldGenerationSizeMb: this.#limits.memoryMb, maxYoungGenerationSizeMb: 32, stackSizeMb: 4 },
      env: {},
      stdin: false,
    });
    const thread: Thread<Job, Result> = { worker, ready: false, job: undefined, timer: undefined };
    this.#threads.add(thread);
    worker.on('message', (reply: JobReply<Result> | 'ready') => {
      if (reply === 'ready') this.#welcome(thread);
      else this.#finish(thread, reply);
    });
    worker.on('error', (error) => void this.#end(thread, { failure: 'failed', reason: String(error) }));
    worker.on('exit', () => void this.#end(thread, ended));
    return thread;
  }

  #welcome(thread: Thread<Job, Result>): void {
    thread.ready = true;
    if (thread.job !== undefined) this.#give(thread, thread.job);
  }

  #finish(thread: Thread<Job, Result>, reply: JobReply<Result>): void {
    const job = thread.job;
    thread.job = undefined;
    clearTimeout(thread.timer);
    thread.worker.unref();
    thread.timer = setTimeout(() => void this.#end(thread, ended), this.#limits.idleMs).unref();
    job?.settle(reply.ok ? { result: reply.result } : { failure: 'failed', reason: reply.error });
    this.#dispatch();
  }

  /** Ends a thread and its job. The next job starts another thread. */
  async #end(thread: Thread<Job, Result>, outcome: JobOutcome<Result>): Promise<void> {
    if (!this.#threads.delete(thread)) return;
    clearTimeout(thread.timer);
    const job = thread.job;
    thread.job = undefined;
    // The caller closes the descriptor that the thread may be reading, so this waits for its end.
    await thread.worker.terminate().catch(() => undefined);
    job?.settle(outcome);
    if (!this.#closed) this.#dispatch();
  }
}

const ended = { failure: 'failed', reason: 'its thread has ended' } as const;

const refusal = () => problem('unavailable', { detail: tooMany, headers: { 'Retry-After': '2' } });
