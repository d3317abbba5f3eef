import { createHash, type Hash } from 'node:crypto';
import { mkdirSync, readdirSync, statSync } from 'node:fs';
import { readFile, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline, type Readable, Transform, type TransformCallback } from 'node:stream';
import type { Clock } from '../../clock.js';
import { writeFileAtomic } from '../../disk/atomic.js';
import type { KeptAnswer, KeptAnswers } from '../../contracts/http-records.js';
import type { Log } from '../../log/log.js';
import { problem } from '../../problem.js';
import type { Context, Next, ReadBody, Middleware } from '../exchange.js';

const keptHeaders = ['Content-Type', 'Location', 'ETag', 'Cache-Control'];

/**
 * For endpoints that say `idempotent`: work whose `Idempotency-Key` has an answer already is not done again. Keys of
 * different accounts, methods and paths have nothing to do with each other.
 */
export function idempotency(answersInForce: () => KeptAnswers): Middleware {
  return async function answerOnce(ctx: Context, next: Next) {
    const key = ctx.get('Idempotency-Key');
    const { idempotent, method } = ctx.state.matched.route.endpoint;
    if (idempotent !== true || key === '') {
      await next(ctx);
      return;
    }
    if (!/^[\x21-\x7e]{1,255}$/.test(key)) {
      throw problem('bad-request', 'The Idempotency-Key must be 1 to 255 printable ASCII characters without blanks.');
    }
    const scope = [ctx.state.exchange.account?.username ?? '', method, ctx.path, key];
    const name = createHash('sha256').update(JSON.stringify(scope)).digest('hex');
    const answers = answersInForce();
    const release = await answers.claim(name);
    if (release === undefined) {
      throw problem('conflict', {
        detail: 'A request with this Idempotency-Key is still being worked on. Ask again in a moment.',
        headers: { 'Retry-After': '1' },
      });
    }
    try {
      const fingerprint = new Fingerprint(ctx.state.body, ctx.querystring);
      const kept = await answers.find(name);
      if (kept !== undefined) {
        replay(ctx, kept, await fingerprint.digest());
        return;
      }
      ctx.state.body = fingerprint.body;
      ctx.state.once = name.slice(0, 32);
      await next(ctx);
      if (isDone(ctx)) await answers.keep(name, { ...responseOf(ctx), fingerprint: await fingerprint.digest() });
    } finally {
      await release();
    }
  };
}

/** A confirmation page or a refusal is not what was asked for. */
function isDone(ctx: Context): boolean {
  const { body, status } = ctx;
  if (body !== null && body !== undefined && typeof body !== 'string') return false;
  return (
    status === 201 || status === 202 || status === 303 || (status >= 200 && status < 300 && ctx.type !== 'text/html')
  );
}

function responseOf(ctx: Context): Omit<KeptAnswer, 'fingerprint'> {
  const headers = keptHeaders
    .map((name) => [name, ctx.response.get(name)] as const)
    .filter(([, value]) => value !== '');
  return {
    status: ctx.status,
    headers: Object.fromEntries(headers),
    body: typeof ctx.body === 'string' ? ctx.body : '',
  };
}

function replay(ctx: Context, kept: KeptAnswer, fingerprint: string): void {
  if (kept.fingerprint !== fingerprint) {
    throw problem('invalid', 'This Idempotency-Key was used with another payload. Take a new key for a new request.');
  }
  ctx.status = kept.status;
  ctx.set(kept.headers);
  ctx.body = kept.body;
  // Koa takes a body for 200 or for text, unless told again.
  ctx.status = kept.status;
  ctx.set({ ...kept.headers, 'Idempotency-Replayed': 'true' });
}

/** Tells one payload from another. A streamed body is looked at while its reader takes it. */
class Fingerprint {
  /** To be read in place of the body that was given. */
  readonly body: ReadBody;
  readonly #hash = createHash('sha256');
  readonly #tap: Tap | undefined;

  /** @param about what the answer depends on beside the body: the query, say */
  constructor(body: ReadBody, about: string) {
    this.#hash.update(`${about.length}:${about}\n${body.kind}\n`);
    this.#tap = body.kind === 'raw' && body.stream !== undefined ? tapped(body.stream, this.#hash) : undefined;
    this.body = body.kind === 'raw' ? { ...body, stream: this.#tap } : body;
  }

  /** Once the body was read; reads what is left of it. */
  async digest(): Promise<string> {
    const { body } = this;
    if (this.#tap !== undefined && !this.#tap.readableEnded) await drained(this.#tap);
    if (body.kind === 'json') this.#hash.update(JSON.stringify(body.value));
    if (body.kind === 'form') this.#hash.update(JSON.stringify(body.fields));
    if (body.kind === 'raw') {
      this.#hash.update(JSON.stringify(body.fields));
      for (const file of body.files) {
        this.#hash.update(JSON.stringify([file.field, file.filename, file.contentType]));
        for await (const chunk of file.open()) this.#hash.update(chunk as Buffer);
      }
    }
    return this.#hash.digest('hex');
  }
}

class Tap extends Transform {
  readonly #hash: Hash;

  constructor(hash: Hash) {
    super();
    this.#hash = hash;
  }

  override _transform(chunk: Buffer, _encoding: string, done: TransformCallback): void {
    this.#hash.update(chunk);
    done(null, chunk);
  }
}

function tapped(stream: Readable, hash: Hash): Tap {
  const tap = new Tap(hash);
  // The reader of the tap receives the error.
  pipeline(stream, tap, () => undefined);
  tap.on('error', () => undefined);
  return tap;
}

async function drained(stream: Readable): Promise<void> {
  for await (const chunk of stream) void chunk;
}

interface FileAnswersInput {
  readonly folder: string;
  readonly clock: Clock;
  readonly log: Log;
  readonly most?: number;
  readonly maxBytes?: number;
}

const lifeMs = 24 * 3600 * 1000;
const nameOf = (key: string): string => `${key}.json`;
const named = /^[0-9a-f]{64}\.json$/;
/** What may lie in the folder: answers, and what a dead process left of one. */
export const keptAnswerNames: readonly RegExp[] = [named, /^\.[0-9a-f]{64}\.json\.[0-9a-z]{20}\.tmp$/];

interface Known {
  readonly at: number;
  readonly bytes: number;
}

/** Answers in files, kept over restarts. The oldest are dropped when there are too many. */
export class FileAnswers implements KeptAnswers {
  readonly #folder: string;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #most: number;
  readonly #maxBytes: number;
  readonly #running = new Set<string>();
  /** In the order of age. */
  readonly #known = new Map<string, Known>();
  #bytes = 0;

  constructor({ folder, clock, log, most = 10_000, maxBytes = 256 * 1024 * 1024 }: FileAnswersInput) {
    this.#folder = folder;
    this.#clock = clock;
    this.#log = log;
    this.#most = most;
    this.#maxBytes = maxBytes;
  }

  /** Loads the responses of an earlier process. Without a usable folder nothing is stored. */
  load(): void {
    try {
      this.#look();
    } catch (error) {
      this.#log.error({ err: error, folder: this.#folder }, 'answers cannot be kept for their Idempotency-Key');
    }
  }

  #look(): void {
    mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
    const found = readdirSync(this.#folder, { withFileTypes: true })
      .filter((entry) => entry.isFile() && named.test(entry.name))
      .map(({ name }) => ({ name, stat: statSync(join(this.#folder, name)) }))
      .sort((a, b) => a.stat.mtimeMs - b.stat.mtimeMs);
    for (const { name, stat } of found) this.#note(name, { at: stat.mtimeMs, bytes: stat.size });
  }

  claim(key: string): Promise<(() => Promise<void>) | undefined> {
    if (this.#running.has(key)) return Promise.resolve(undefined);
    this.#running.add(key);
    return Promise.resolve(() => {
      this.#running.delete(key);
      return Promise.resolve();
    });
  }

  async find(key: string): Promise<KeptAnswer | undefined> {
    const name = nameOf(key);
    const known = this.#known.get(name);
    if (known === undefined || known.at + lifeMs <= this.#clock.now()) return undefined;
    try {
      return JSON.parse(await readFile(join(this.#folder, name), 'utf8')) as KeptAnswer;
    } catch (error) {
      this.#log.warn({ err: error }, 'a kept answer cannot be read');
      return undefined;
    }
  }

  async keep(key: string, answer: KeptAnswer): Promise<void> {
    const name = nameOf(key);
    const text = JSON.stringify(answer);
    try {
      await writeFileAtomic(join(this.#folder, name), text);
      this.#note(name, { at: this.#clock.now(), bytes: Buffer.byteLength(text) });
      await this.#trim();
    } catch (error) {
      this.#log.error({ err: error }, 'an answer could not be kept for its Idempotency-Key');
    }
  }

  #note(name: string, known: Known): void {
    this.#forget(name);
    this.#known.set(name, known);
    this.#bytes += known.bytes;
  }

  #forget(name: string): void {
    this.#bytes -= this.#known.get(name)?.bytes ?? 0;
    this.#known.delete(name);
  }

  async #trim(): Promise<void> {
    const oldest = this.#clock.now() - lifeMs;
    for (const [name, { at }] of this.#known) {
      if (this.#known.size <= this.#most && this.#bytes <= this.#maxBytes && at > oldest) return;
      this.#forget(name);
      await unlink(join(this.#folder, name)).catch(() => undefined);
    }
  }
}
