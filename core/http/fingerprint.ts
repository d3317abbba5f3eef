import { createHash, type Hash } from 'node:crypto';
import { pipeline, Transform, type Readable, type TransformCallback } from 'node:stream';
import type { ReadBody } from './body.js';

/** Tells one payload from another. A streamed body is looked at while its reader takes it. */
export class Fingerprint {
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
  // A failure reaches whoever reads the tap.
  pipeline(stream, tap, () => undefined);
  tap.on('error', () => undefined);
  return tap;
}

async function drained(stream: Readable): Promise<void> {
  for await (const chunk of stream) void chunk;
}
