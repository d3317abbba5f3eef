import type { MessagePart } from '../../../core/contracts/message-viewer.js';
import { type JobLimits, type RunJob, WorkerJobs } from '../../../core/worker-jobs.js';
import type { DraftContent } from './draft-content.js';

export interface ParserLimits extends JobLimits {
  /** Maximum bytes of a message; a larger one is not parsed. */
  readonly messageBytes: number;
}

const maxMessageBytes = 128 * 1024 * 1024;

/** Why a message could not be parsed; its source can still be shown. */
export interface Unparsed {
  readonly unparsed: 'too large' | 'took too long' | 'failed';
}

export function isUnparsed(value: object): value is Unparsed {
  return 'unparsed' in value;
}

/** Parses one message. @throws Problem `unavailable` when too many are waiting */
export type Parse = <K extends ParseTask['kind']>(
  task: Extract<ParseTask, { kind: K }>,
) => Promise<ParseResults[K] | Unparsed>;

type ParseResult = ParseResults[ParseTask['kind']];

/** Parses messages in threads, so that no message can block the server or exhaust its memory. */
export class MessageParser {
  readonly #messageBytes: number;
  readonly #jobs: WorkerJobs<ParseTask, ParseResult>;
  readonly parse: Parse;

  constructor({ messageBytes = maxMessageBytes, ...limits }: Partial<ParserLimits> = {}) {
    this.#messageBytes = messageBytes;
    this.#jobs = new WorkerJobs(new URL('./parse-worker.js', import.meta.url), limits);
    this.parse = this.#parseBy(this.#jobs.run);
  }

  /**
   * For mail of the stranger at this address: behind what others parse, in turns.
   *
   * @throws Problem `unavailable` when too many are waiting
   */
  forStranger<T>(address: string, task: (parse: Parse) => Promise<T>): Promise<T> {
    return this.#jobs.forStranger(address, (run) => task(this.#parseBy(run)));
  }

  close(): Promise<void> {
    return this.#jobs.close();
  }

  #parseBy(run: RunJob<ParseTask, ParseResult>): Parse {
    return async <K extends ParseTask['kind']>(task: Extract<ParseTask, { kind: K }>) => {
      const isWhole = !('bytes' in task) || task.bytes.length === task.size;
      if (!isWhole || task.size > this.#messageBytes) return { unparsed: 'too large' };
      const outcome = await run(task, 'bytes' in task ? [task.bytes.buffer] : []);
      return 'result' in outcome ? (outcome.result as ParseResults[K]) : { unparsed: outcome.failure };
    };
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
