import { Worker } from 'node:worker_threads';
import { problem } from '../../../core/problem.js';
import type {
  FolderAnswers,
  FolderQuestion,
  FolderReply,
  FoldersTask,
  FolderTask,
  FoundInFolders,
} from './folder-task.js';
import type { WorkerMessage } from './folder-worker.js';

export interface ThreadLimits {
  /** Time limit of one question in milliseconds. */
  readonly timeLimitMs: number;
  /** Heap limit of the thread in megabytes. */
  readonly memoryMb: number;
  /** Maximum number of waiting questions; more are refused. */
  readonly waiting: number;
}

const threadLimits: ThreadLimits = { timeLimitMs: 180_000, memoryMb: 512, waiting: 1000 };

/** The default of 48 MB would double the memory of the thread. */
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

/** The thread that reads folders. Started on first use and replaced when it ends. */
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
    return (await this.#answer(task)) as FolderAnswers[Q['kind']] | null;
  }

  /** @throws Problem `unavailable` */
  async search(task: FoldersTask): Promise<FoundInFolders> {
    return (await this.#answer(task)) as FoundInFolders;
  }

  async #answer(task: FolderTask | FoldersTask) {
    const reply = await this.#send({ task });
    if (reply.ok) return reply.answer;
    throw problem('unavailable', {
      detail: 'The folder could not be read just now.',
      headers: { 'Retry-After': '2' },
      cause: new Error(reply.error),
    });
  }

  /** Closes the folders of a site and writes their cache files. */
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
    // No caller waits, so the thread need not keep the process alive.
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
