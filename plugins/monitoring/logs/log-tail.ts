import { PassThrough, type Readable } from 'node:stream';
import type { ServerLog } from '../../../core/contracts/server-log.js';
import { problem } from '../../../core/problem.js';
import { LineMatcher, type LogFilter } from './log-filter.js';

/** Maximum buffered bytes of a slow client; further lines are dropped and counted. */
const MAX_WAITING = 256 * 1024;

const MAX_TAILS = 20;

/** Streams lines of the log as server-sent events. */
export class LogTail {
  readonly #log: Pick<ServerLog, 'subscribe'>;
  readonly #tails = new Set<Tail>();
  #closed = false;

  constructor(log: Pick<ServerLog, 'subscribe'>) {
    this.#log = log;
  }

  get size(): number {
    return this.#tails.size;
  }

  /** Ends when the signal aborts. Throws a problem when there are too many streams, or the server stops. */
  open(filter: LogFilter, signal: AbortSignal): Readable {
    if (this.#closed || this.#tails.size >= MAX_TAILS) {
      const detail = this.#closed ? 'The server stops.' : `No more than ${MAX_TAILS} may watch the log at once.`;
      throw problem('unavailable', { detail, headers: { 'Retry-After': '10' } });
    }
    const tail = new Tail(filter);
    this.#tails.add(tail);
    const forget = this.#log.subscribe((line) => tail.tell(line));
    const leave = (): void => {
      forget();
      this.#tails.delete(tail);
      tail.end();
    };
    tail.stream.once('close', leave);
    signal.addEventListener('abort', leave, { once: true });
    return tail.stream;
  }

  /** Keeps the connection alive. */
  beat(): void {
    for (const tail of this.#tails) tail.beat();
  }

  close(): void {
    this.#closed = true;
    for (const tail of this.#tails) tail.end();
  }
}

class Tail {
  readonly stream = new PassThrough({ highWaterMark: MAX_WAITING });
  readonly #matcher: LineMatcher;
  #dropped = 0;

  constructor(filter: LogFilter) {
    this.#matcher = new LineMatcher(filter);
    this.stream.write(': the log, one event "line" for each line\n\n');
  }

  tell(line: string): void {
    if (this.stream.writableEnded || this.#matcher.judge(Buffer.from(line)) !== 'match') return;
    if (this.stream.writableLength + line.length > MAX_WAITING) {
      this.#dropped += 1;
      return;
    }
    if (this.#dropped > 0) this.#send('dropped', JSON.stringify({ lines: this.#dropped }));
    this.#dropped = 0;
    this.#send('line', line);
  }

  beat(): void {
    if (!this.stream.writableEnded && this.stream.writableLength < MAX_WAITING) this.stream.write(': beat\n\n');
  }

  end(): void {
    if (this.stream.writableEnded) return;
    this.stream.end('event: end\ndata: \n\n');
  }

  /** A log line has no line end inside, so it is one data field. */
  #send(event: string, data: string): void {
    this.stream.write(`event: ${event}\ndata: ${data.replace(/[\r\n]+/g, ' ')}\n\n`);
  }
}
