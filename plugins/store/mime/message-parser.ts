import { Worker } from 'node:worker_threads';
import type { MessagePart } from '../../../core/contracts/message-viewer.js';
import { problem } from '../../../core/problem.js';
import type { DraftContent } from './draft-content.js';

export interface ParserLimits {
  /** Maximum number of threads. */
  readonly workers: number;
  /** Time limit of one message in milliseconds, without the start of a thread. */
  readonly timeLimitMs: number;
  /** Heap limit of a thread in megabytes. */
  readonly memoryMb: number;
  /** Maximum bytes of a message; a larger one is not parsed. */
  readonly messageBytes: number;
  /** Maximum number of waiting messages; more are refused. */
  readonly queue: number;
  /** Milliseconds after which an idle thread ends. */
  readonly idleMs: number;
}

const parserLimits: ParserLimits = {
  workers: 2,
  timeLimitMs: 2000,
  memoryMb: 256,
  messageBytes: 128 * 1024 * 1024,
  queue: 64,
  idleMs: 60_000,
};

/** Why a message could not be parsed; its source can still be shown. */
export interface Unparsed {
  readonly unparsed: 'too large' | 'took too long' | 'failed';
}

export function isUnparsed(value: object): value is Unparsed {
  return 'unparsed' in value;
}

interface Job {
  readonly task: ParseTask;
  readonly settle: (outcome: ParseReply | Unparsed) => void;
}

interface Thread {
  readonly worker: Worker;
  ready: boolean;
  job: Job | undefined;
  timer: NodeJS.Timeout | undefined;
}

/** Time limit for loading the modules of a thread. */
const startLimitMs = 15_000;

/** Parses messages in threads, so that no message can block the server or exhaust its memory. */
export class MessageParser {
  readonly #limits: ParserLimits;
  readonly #threads = new Set<Thread>();
  readonly #waiting: Job[] = [];
  #closed = false;

  constructor(limits: Partial<ParserLimits> = {}) {
    this.#limits = { ...parserLimits, ...limits };
  }

  /** @throws Problem `unavailable` when too many are waiting */
  async parse<K extends ParseTask['kind']>(task: Extract<ParseTask, { kind: K }>): Promise<ParseResults[K] | Unparsed> {
    const isWhole = !('bytes' in task) || task.bytes.length === task.size;
    if (!isWhole || task.size > this.#limits.messageBytes) return { unparsed: 'too large' };
    if (this.#closed || this.#waiting.length >= this.#limits.queue) {
      throw problem('unavailable', {
        detail: 'Too many messages are being read at once.',
        headers: { 'Retry-After': '2' },
      });
    }
    const outcome = await new Promise<ParseReply | Unparsed>((settle) => {
      this.#waiting.push({ task, settle });
      this.#dispatch();
    });
    if (isUnparsed(outcome)) return outcome;
    return outcome.ok ? (outcome.result as ParseResults[K]) : { unparsed: 'failed' };
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const job of this.#waiting.splice(0)) job.settle({ unparsed: 'failed' });
    await Promise.all([...this.#threads].map((thread) => this.#end(thread, 'failed')));
  }

  #dispatch(): void {
    while (this.#waiting.length > 0) {
      const idle = [...this.#threads].find((thread) => thread.job === undefined);
      const thread = idle ?? (this.#threads.size < this.#limits.workers ? this.#start() : undefined);
      const job = thread === undefined ? undefined : this.#waiting.shift();
      if (thread === undefined || job === undefined) return;
      thread.job = job;
      thread.worker.ref();
      if (thread.ready) this.#give(thread, job);
      else this.#expire(thread, startLimitMs);
    }
  }

  #give(thread: Thread, job: Job): void {
    this.#expire(thread, this.#limits.timeLimitMs);
    thread.worker.postMessage(job.task, 'bytes' in job.task ? [job.task.bytes.buffer] : []);
  }

  #expire(thread: Thread, ms: number): void {
    clearTimeout(thread.timer);
    thread.timer = setTimeout(() => void this.#end(thread, 'took too long'), ms);
  }

  #start(): Thread {
    const worker = new Worker(new URL('./parse-worker.js', import.meta.url), {
      resourceLimits: { maxOldGenerationSizeMb: this.#limits.memoryMb, maxYoungGenerationSizeMb: 32, stackSizeMb: 4 },
      env: {},
      stdin: false,
    });
    const thread: Thread = { worker, ready: false, job: undefined, timer: undefined };
    this.#threads.add(thread);
    worker.on('message', (reply: ParseReply | 'ready') => {
      if (reply === 'ready') this.#welcome(thread);
      else this.#finish(thread, reply);
    });
    worker.on('error', () => void this.#end(thread, 'failed'));
    worker.on('exit', () => void this.#end(thread, 'failed'));
    return thread;
  }

  #welcome(thread: Thread): void {
    thread.ready = true;
    if (thread.job !== undefined) this.#give(thread, thread.job);
  }

  #finish(thread: Thread, outcome: ParseReply): void {
    const job = thread.job;
    thread.job = undefined;
    clearTimeout(thread.timer);
    thread.worker.unref();
    thread.timer = setTimeout(() => void this.#end(thread, 'failed'), this.#limits.idleMs).unref();
    job?.settle(outcome);
    this.#dispatch();
  }

  /** Ends a thread; its message is unparsed. The next message starts another thread. */
  async #end(thread: Thread, why: Unparsed['unparsed']): Promise<void> {
    if (!this.#threads.delete(thread)) return;
    clearTimeout(thread.timer);
    const job = thread.job;
    thread.job = undefined;
    // The caller closes the descriptor that the thread may be reading, so this waits for its end.
    await thread.worker.terminate().catch(() => undefined);
    job?.settle({ unparsed: why });
    if (!this.#closed) this.#dispatch();
  }
}

/**
 * A file that is open in this process, of which the worker only reads the descriptor, or the bytes themselves, which
 * then belong to the worker. `bytes` shorter than `size` are not parsed: the message is too large.
 */
export type ParseSource = { readonly size: number } & (
  { readonly fd: number } | { readonly bytes: Uint8Array<ArrayBuffer> }
);

/** A task of a parse worker. */
export type ParseTask = ParseSource &
  (
    | { readonly kind: 'message' }
    | { readonly kind: 'draft' }
    | { readonly kind: 'html'; readonly remote: boolean }
    | { readonly kind: 'part'; readonly part: string }
  );

/** The parsed message. */
export interface MessageContent {
  /** Null when there is no such body. */
  readonly text: string | null;
  /** Sanitised, without remote content; `cid:` references are kept. */
  readonly html: string | null;
  readonly parts: readonly MessagePart[];
  /** A limit of structure or body length was reached, and something is missing. */
  readonly truncated: boolean;
}

export interface HtmlDocument {
  /** A complete document, safe in a sandbox; null when the message has no HTML. */
  readonly document: string | null;
  /** Remote content was removed. */
  readonly remoteRemoved: boolean;
}

export interface PartBytes {
  /** Decoded. Null when there is no leaf part of that number. */
  readonly bytes: Uint8Array<ArrayBuffer> | null;
  readonly contentType: string;
  readonly charset: string | null;
  readonly filename: string | null;
}

export interface ParseResults {
  readonly message: MessageContent;
  readonly draft: DraftContent;
  readonly html: HtmlDocument;
  readonly part: PartBytes;
}

/** Replies of the worker. */
export type ParseReply =
  | { readonly ok: true; readonly result: ParseResults[ParseTask['kind']] }
  | { readonly ok: false; readonly error: string };
