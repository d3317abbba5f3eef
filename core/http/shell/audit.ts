import {
  closeSync,
  constants,
  createWriteStream,
  existsSync,
  fstatSync,
  mkdirSync,
  openSync,
  readSync,
  renameSync,
  rmSync,
  statSync,
  type WriteStream,
} from 'node:fs';
import { auditPath } from '../../log/file.js';
import type { Clock } from '../../clock.js';
import type { Log } from '../../log/log.js';
import type { PluginContext } from '../../plugin.js';
import type { Context, Next, Middleware } from '../exchange.js';

/** Writes one line without its line end. */
export interface AuditSink {
  write(line: string): void;
  close(): Promise<void>;
}

/**
 * A file that has grown to `maxFileBytes` is set aside as `audit.1.log`, that one as `audit.2.log`, up to `keepFiles`.
 */
export interface AuditBounds {
  readonly maxFileBytes: number;
  /** Including the current one. */
  readonly keepFiles: number;
}

/** Opens for appending; a pipe without a reader is an error instead of an endless wait. */
const flags = constants.O_APPEND | constants.O_CREAT | constants.O_WRONLY | constants.O_NONBLOCK;

const defaultBounds: AuditBounds = { maxFileBytes: 16 * 1024 * 1024, keepFiles: 10 };

/** Appends to files that only this user may read; the first is created with the first line. */
export class AuditFile implements AuditSink {
  readonly #folder: string;
  readonly #log: Log;
  readonly #bounds: AuditBounds;
  #stream: WriteStream | undefined;
  /** Settles when the file that was set aside is complete. */
  #setAsideDone: Promise<void> = Promise.resolve();
  #size = 0;

  constructor(folder: string, log: Log, bounds = defaultBounds) {
    this.#folder = folder;
    this.#log = log;
    this.#bounds = bounds;
  }

  write(line: string): void {
    try {
      const bytes = Buffer.from(`${line}\n`);
      if (this.#stream !== undefined && this.#size + bytes.length > this.#bounds.maxFileBytes) this.#setAside();
      this.#stream ??= this.#open();
      this.#size += bytes.length;
      this.#stream.write(bytes);
    } catch (error) {
      this.#fail(error);
    }
  }

  async close(): Promise<void> {
    const stream = this.#stream;
    this.#stream = undefined;
    await this.#setAsideDone;
    if (stream !== undefined && !stream.destroyed) await new Promise<void>((resolve) => stream.end(() => resolve()));
  }

  #open(): WriteStream {
    mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
    const path = auditPath(this.#folder, 0);
    // Opened synchronously: a file set aside must be the one that the stream writes to.
    const stream = createWriteStream(path, { fd: openSync(path, flags, 0o600) });
    // The end of a line that a full disk or a crash has cut off.
    if (endsInLine(path)) stream.write('\n');
    this.#size = statSync(path).size;
    // Who reads the files in their order finds each complete before the next one has a line.
    stream.cork();
    void this.#setAsideDone.then(() => stream.uncork());
    stream.on('error', (error) => {
      if (this.#stream === stream) this.#stream = undefined;
      this.#fail(error);
    });
    return stream;
  }

  /** When setting aside fails, the file grows, and it is retried at a larger size. */
  #setAside(): void {
    const { keepFiles } = this.#bounds;
    this.#size = 0;
    try {
      rmSync(auditPath(this.#folder, keepFiles - 1), { force: true });
      for (let number = keepFiles - 2; number >= 0; number -= 1) {
        const path = auditPath(this.#folder, number);
        if (existsSync(path)) renameSync(path, auditPath(this.#folder, number + 1));
      }
    } catch (error) {
      this.#fail(error, 'the audit log cannot be set aside');
      return;
    }
    const stream = this.#stream;
    this.#stream = undefined;
    if (stream === undefined) return;
    const closed = new Promise<void>((resolve) => stream.once('close', () => resolve()));
    this.#setAsideDone = this.#setAsideDone.then(() => closed);
    stream.end();
  }

  #fail(error: unknown, what = 'the audit log cannot be written'): void {
    this.#log.error({ err: error }, what);
  }
}

/** Whether the last line of the file has no end. */
function endsInLine(path: string): boolean {
  const file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    const { size } = fstatSync(file);
    const last = Buffer.alloc(1);
    return size > 0 && readSync(file, last, 0, 1, size - 1) === 1 && last[0] !== 0x0a;
  } finally {
    closeSync(file);
  }
}

const mutating = new Set(['POST', 'PUT', 'PATCH', 'DELETE']);

/** Characters of a path parameter that are logged. */
const maxParameterLength = 300;

/**
 * One line for every request of an account that could change something and reached an endpoint, done or refused.
 * Strangers write nothing here, so that they cannot rotate the lines of others away: they are in the access log, and
 * counted.
 */
export function auditTrail(sink: AuditSink, clock: Clock, metrics: PluginContext['metrics']): Middleware {
  const anonymous = metrics.counter(
    'http_anonymous_changes_total',
    'Requests that could change something, of callers who had not signed in, by class of status.',
    ['status'],
  );
  async function writeAudit(ctx: Context, next: Next): Promise<void> {
    let status = 500;
    try {
      await next(ctx);
      ({ status } = ctx);
    } finally {
      write(ctx, status);
    }
  }
  function write(ctx: Context, status: number): void {
    const { account, asked, route, forwarder, answeredBy, ...exchange } = ctx.state.exchange;
    // The node that has answered writes the line.
    if (route === undefined || asked || answeredBy !== undefined) return;
    if (account === null) {
      anonymous.inc({ status: `${Math.floor(status / 100)}xx` });
      return;
    }
    const { method } = route.endpoint;
    const params = Object.entries(exchange.params).map(([name, value]) => [name, value.slice(0, maxParameterLength)]);
    sink.write(
      JSON.stringify({
        at: new Date(clock.now()).toISOString(),
        by: account.username,
        from: exchange.remoteAddress,
        ...(forwarder !== undefined && { via: forwarder.node }),
        requestId: exchange.id,
        method,
        route: route.endpoint.path,
        params: Object.fromEntries(params) as Readonly<Record<string, string>>,
        status,
        ...exchange.audit,
      }),
    );
  }
  return (ctx, next) => (mutating.has(ctx.method) ? writeAudit(ctx, next) : next(ctx));
}
