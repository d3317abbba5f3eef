import { Worker } from 'node:worker_threads';
import type { PartDescription } from '../../../core/mime/content-type.js';
import { problem } from '../../../core/problem.js';
import type { DraftContent } from '../drafts/draft-content.js';

export interface ParserLimits {
  /** Threads at most. */
  readonly workers: number;
  /** Milliseconds that one message may take, the start of a thread not counted. */
  readonly timeLimitMs: number;
  /** Megabytes of JavaScript objects that a thread may hold. */
  readonly memoryMb: number;
  /** Bytes of a message; a larger one is not parsed. */
  readonly messageBytes: number;
  /** Messages that may wait for a thread; more are refused. */
  readonly queue: number;
  /** Milliseconds after which a thread without work is ended. */
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

/** Why a message could not be parsed; it can still be shown raw. */
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

/** How long a thread may take to load its modules. */
const startLimitMs = 15_000;

/** Parses messages in threads of their own, so that no message can hold up the server or take its memory. */
export class MessageParser {
  readonly #limits: ParserLimits;
  readonly #threads = new Set<Thread>();
  readonly #waiting: Job[] = [];
  #closed = false;

  constructor(limits: Partial<ParserLimits> = {}) {
    this.#limits = { ...parserLimits, ...limits };
  }

  /** @throws Problem `unavailable` when too many wait already */
  async parse<K extends ParseTask['kind']>(task: Extract<ParseTask, { kind: K }>): Promise<ParseResults[K] | Unparsed> {
    if (task.size > this.#limits.messageBytes) return { unparsed: 'too large' };
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
    thread.worker.postMessage(job.task, []);
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

  /** Ends a thread; its message, if it has one, is unparsed. The next message starts another thread. */
  async #end(thread: Thread, why: Unparsed['unparsed']): Promise<void> {
    if (!this.#threads.delete(thread)) return;
    clearTimeout(thread.timer);
    const job = thread.job;
    thread.job = undefined;
    // The descriptor that it may be reading is closed by whom it answers: not before it has really ended.
    await thread.worker.terminate().catch(() => undefined);
    job?.settle({ unparsed: why });
    if (!this.#closed) this.#dispatch();
  }
}

/** What a parse worker is asked. The file is open in this process; the worker reads the descriptor and nothing else. */
export type ParseTask = { readonly fd: number; readonly size: number } & (
  | { readonly kind: 'message' }
  | { readonly kind: 'draft' }
  | { readonly kind: 'html'; readonly remote: boolean }
  | { readonly kind: 'part'; readonly part: string }
);

/** A node of the MIME tree as pages and JSON show it. */
export interface PartView {
  readonly part: string;
  /** 0 for the message itself. */
  readonly depth: number;
  readonly contentType: string;
  readonly charset: string | null;
  readonly encoding: string;
  readonly disposition: PartDescription['disposition'] | null;
  readonly filename: string | null;
  readonly cid: string | null;
  /** Bytes when decoded. */
  readonly size: number;
  readonly attachment: boolean;
  /** It only holds other parts. */
  readonly container: boolean;
}

/** The parsed message. */
export interface MessageContent {
  /** Null when there is no such body. */
  readonly text: string | null;
  /** Sanitised, without remote content; `cid:` references are kept. */
  readonly html: string | null;
  readonly parts: readonly PartView[];
  /** Something was left out: a limit of the structure or of the length of a body was met. */
  readonly truncated: boolean;
}

export interface HtmlDocument {
  /** A whole document, safe to be shown in a sandbox; null when the message has no HTML. */
  readonly document: string | null;
  /** It refers to something on other servers that was left out. */
  readonly remoteRemoved: boolean;
}

export interface PartBytes {
  /** Decoded. Null when there is no part of that number with a body of its own. */
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

/** What comes back from the worker. */
export type ParseReply =
  | { readonly ok: true; readonly result: ParseResults[ParseTask['kind']] }
  | { readonly ok: false; readonly error: string };
