import { Worker } from 'node:worker_threads';
import { problem } from '../../../core/problem.js';
import type { FolderAnswers, FolderQuestion, FolderReply, FolderTask } from './folder-task.js';
import type { WorkerMessage } from './folder-worker.js';

export interface ThreadLimits {
  /** Milliseconds that one question may take. */
  readonly timeLimitMs: number;
  /** Megabytes of JavaScript objects that the thread may hold. */
  readonly memoryMb: number;
  /** Questions that may wait for an answer; more are refused. */
  readonly waiting: number;
}

export const threadLimits: ThreadLimits = { timeLimitMs: 180_000, memoryMb: 512, waiting: 1000 };

/** V8's 48 MB would be as much as everything else that the thread holds. */
const youngGenerationMb = 6;

interface Waiting {
  readonly settle: (reply: FolderReply) => void;
  readonly timer: NodeJS.Timeout;
}

type Message = WorkerMessage extends infer M
  ? M extends { readonly number: number }
    ? Omit<M, 'number'>
    : never
  : never;

/** The thread that reads folders. It is started when it is first needed; one that ends is replaced. */
export class FolderThread {
  readonly #limits: ThreadLimits;
  #worker: Worker | undefined;
  readonly #waiting = new Map<number, Waiting>();
  #count = 0;

  constructor(limits: Partial<ThreadLimits> = {}) {
    this.#limits = { ...threadLimits, ...limits };
  }

  /** Null when there is no such folder. @throws Problem `unavailable` */
  async ask<Q extends FolderQuestion>(
    task: FolderTask & { readonly question: Q },
  ): Promise<FolderAnswers[Q['kind']] | null> {
    const reply = await this.#send({ task });
    if (reply.ok) return reply.answer as FolderAnswers[Q['kind']] | null;
    throw problem('unavailable', {
      detail: 'The folder could not be read just now.',
      headers: { 'Retry-After': '2' },
      cause: new Error(reply.error),
    });
  }

  /** Lets go of the folders of a site; what is known of them is on the disk then. */
  async release(site: FolderTask['site']): Promise<void> {
    if (this.#worker !== undefined) await this.#send({ close: site });
  }

  async close(): Promise<void> {
    await this.#end('the thread was ended');
  }

  #send(message: Message): Promise<FolderReply> {
    if (this.#waiting.size >= this.#limits.waiting) {
      return Promise.resolve({ ok: false, error: 'too many questions are waiting' });
    }
    const worker = this.#worker ?? this.#start();
    const number = ++this.#count;
    return new Promise((settle) => {
      const timer = setTimeout(() => void this.#end('a question took too long'), this.#limits.timeLimitMs);
      this.#waiting.set(number, { settle, timer });
      worker.ref();
      worker.postMessage({ ...message, number }, []);
    });
  }

  #start(): Worker {
    const worker = new Worker(new URL('./folder-worker.js', import.meta.url), {
      resourceLimits: { maxOldGenerationSizeMb: this.#limits.memoryMb, maxYoungGenerationSizeMb: youngGenerationMb },
      env: {},
      stdin: false,
    });
    this.#worker = worker;
    worker.on('message', (message: { readonly number: number; readonly reply: FolderReply }) => {
      this.#settle(message.number, message.reply);
    });
    const ended = (error?: unknown): void => {
      if (this.#worker === worker) void this.#end(error instanceof Error ? error.message : 'the thread has ended');
    };
    worker.on('error', ended);
    worker.on('exit', ended);
    return worker;
  }

  #settle(number: number, reply: FolderReply): void {
    const waiting = this.#waiting.get(number);
    if (waiting === undefined) return;
    clearTimeout(waiting.timer);
    this.#waiting.delete(number);
    // Nobody waits: the process may end, whatever the thread still reads.
    if (this.#waiting.size === 0) this.#worker?.unref();
    waiting.settle(reply);
  }

  async #end(error: string): Promise<void> {
    const worker = this.#worker;
    this.#worker = undefined;
    for (const number of this.#waiting.keys()) this.#settle(number, { ok: false, error });
    await worker?.terminate();
  }
}
