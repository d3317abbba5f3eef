import { createWriteStream, mkdirSync, type WriteStream } from 'node:fs';
import { dirname } from 'node:path';
import type { Clock } from '../clock.js';
import type { Log } from '../log.js';
import type { Context, Next, Stage } from './exchange.js';

/** Takes one line without its line end. */
export interface AuditSink {
  write(line: string): void;
  close(): Promise<void>;
}

/** Appends to a file that only this user may read; it is made with the first line. */
export class AuditFile implements AuditSink {
  readonly #path: string;
  readonly #log: Log;
  #stream: WriteStream | undefined;

  constructor(path: string, log: Log) {
    this.#path = path;
    this.#log = log;
  }

  write(line: string): void {
    this.#stream ??= this.#open();
    this.#stream.write(`${line}\n`);
  }

  async close(): Promise<void> {
    const stream = this.#stream;
    this.#stream = undefined;
    if (stream !== undefined) await new Promise<void>((resolve) => stream.end(() => resolve()));
  }

  #open(): WriteStream {
    mkdirSync(dirname(this.#path), { recursive: true, mode: 0o700 });
    const stream = createWriteStream(this.#path, { flags: 'a', mode: 0o600 });
    stream.on('error', (error) => this.#log.error({ err: error }, 'the audit log cannot be written'));
    return stream;
  }
}

const mutating = new Set(['POST', 'PUT', 'PATCH', 'DELETE']);

/** One line for every request that could change something and reached an endpoint, done or refused. */
export function auditTrail(sink: AuditSink, clock: Clock): Stage {
  return async function writeAudit(ctx: Context, next: Next) {
    await next();
    const { exchange } = ctx.state;
    const { route } = exchange;
    const method = route?.endpoint.method ?? ctx.method;
    if (!mutating.has(ctx.method) || route === undefined) return;
    sink.write(
      JSON.stringify({
        at: new Date(clock.now()).toISOString(),
        by: exchange.account?.username ?? null,
        from: exchange.remoteAddress,
        requestId: exchange.id,
        method,
        route: route.endpoint.path,
        params: exchange.params,
        status: ctx.status,
        ...exchange.audit,
      }),
    );
  };
}
