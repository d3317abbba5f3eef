import type { Readable } from 'node:stream';
import { emptyLineLength, endOfName, isFolding, maxNameBytes } from '../mime/header.js';
import { LineEndings } from '../mime/line-endings.js';
import { type BodyEdit, BodyError, type MessageEdit, type SpoolWriter } from './spool.js';

/** Writes the message of `source` with other header fields or another body. Errors of the plugin are a `BodyError`. */
export async function writeEdited(
  source: Readable,
  writer: Pick<SpoolWriter, 'write'>,
  { remove, body }: Pick<MessageEdit, 'remove' | 'body'>,
): Promise<void> {
  const filter = new HeaderFilter(remove);
  const pieces = source[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
  let rest: Buffer = Buffer.alloc(0);
  const header = body === undefined ? undefined : new HeaderEnd();
  for (let piece = await pieces.next(); piece.done !== true; piece = await pieces.next()) {
    const end = header?.find(piece.value);
    for (const kept of filter.push(piece.value.subarray(0, end))) await writer.write(kept);
    if (end === undefined) continue;
    rest = piece.value.subarray(end);
    break;
  }
  await writer.write(filter.end());
  if (body === undefined) return;
  if (header?.isFound !== true) await writer.write(Buffer.from('\r\n'));
  try {
    await writeBody(body, bodyFrom(rest, pieces), writer);
  } finally {
    source.destroy();
  }
}

async function* bodyFrom(first: Buffer, pieces: AsyncIterator<Buffer>): AsyncGenerator<Buffer> {
  if (first.length > 0) yield first;
  for (let piece = await pieces.next(); piece.done !== true; piece = await pieces.next()) yield piece.value;
}

/** One piece at a time: what the disk has not taken is not asked for. */
async function writeBody(
  { write, maxBytes, limitMs }: BodyEdit,
  body: AsyncIterable<Buffer>,
  writer: Pick<SpoolWriter, 'write'>,
): Promise<void> {
  const lines = new LineEndings();
  const late = lateness(limitMs);
  let written: AsyncIterator<Uint8Array | string> | undefined;
  let size = 0;
  let isDone = false;
  try {
    for (;;) {
      const text = await asked(async () => {
        written ??= write(body)[Symbol.asyncIterator]();
        const piece: IteratorResult<unknown, unknown> = await Promise.race([written.next(), late.passed]);
        return piece.done === true ? undefined : lines.push(bytesOf(piece.value));
      });
      if (text === undefined) break;
      size += text.length;
      if (size > maxBytes) throw new BodyError(`its body is longer than ${maxBytes} bytes`);
      await writer.write(text);
    }
    isDone = true;
    await writer.write(lines.end());
  } finally {
    late.end();
    // A generator that hangs never returns, so it is not waited for.
    if (!isDone) void written?.return?.()?.catch(() => undefined);
  }
}

async function asked<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw error instanceof BodyError ? error : new BodyError('its body threw', { cause: error });
  }
}

function bytesOf(piece: unknown): Buffer {
  if (typeof piece === 'string') return Buffer.from(piece);
  if (piece instanceof Uint8Array) return Buffer.from(piece.buffer, piece.byteOffset, piece.byteLength);
  throw new BodyError('its body is neither text nor bytes');
}

function lateness(limitMs: number): { readonly passed: Promise<never>; readonly end: () => void } {
  const { promise, reject } = deferred();
  const timer = setTimeout(() => reject(new BodyError(`its body took longer than ${limitMs} ms`)), limitMs);
  promise.catch(() => undefined);
  return { passed: promise, end: () => clearTimeout(timer) };
}

function deferred(): { readonly promise: Promise<never>; readonly reject: (error: Error) => void } {
  let reject: (error: Error) => void = () => undefined;
  const promise = new Promise<never>((_, no) => (reject = no));
  return { promise, reject };
}

/** Finds the end of the empty line after the header, in pieces of any size with CRLF line ends. */
class HeaderEnd {
  /** The last bytes before the piece; a message may begin with its empty line. */
  #before = Buffer.from('\r\n');
  isFound = false;

  /** The offset of the body in the piece; undefined while the header goes on. */
  find(piece: Buffer): number | undefined {
    const joined = Buffer.concat([this.#before, piece]);
    const at = joined.indexOf('\r\n\r\n');
    if (at < 0) {
      this.#before = Buffer.from(joined.subarray(-3));
      return undefined;
    }
    this.isFound = true;
    return at + 4 - (joined.length - piece.length);
  }
}

const lineFeed = 0x0a;
const carriageReturn = 0x0d;

/**
 * Removes header fields from a message that comes in pieces of any size; holds back at most the start of one line.
 * Removes each field that `scanHeader` would read, and lines that have the name without a colon.
 */
export class HeaderFilter {
  readonly #remove: ReadonlySet<string>;
  /** The start of a line that is not decided yet. */
  #start = Buffer.alloc(0);
  #inHeader = true;
  #undecided = true;
  /** Applies to continuation lines too. */
  #dropping = false;

  constructor(remove: readonly string[]) {
    this.#remove = new Set(remove.map((name) => name.toLowerCase()));
  }

  /** The bytes of the next piece that stay. */
  push(piece: Buffer): readonly Buffer[] {
    const kept: Buffer[] = [];
    let rest = this.#start.length === 0 ? piece : Buffer.concat([this.#start, piece]);
    this.#start = Buffer.alloc(0);
    while (rest.length > 0 && this.#inHeader) {
      if (this.#undecided && !this.#decide(rest)) {
        this.#start = Buffer.from(rest);
        return kept;
      }
      const feed = rest.indexOf(lineFeed);
      const end = feed < 0 ? rest.length : feed + 1;
      if (!this.#dropping) kept.push(rest.subarray(0, end));
      this.#undecided = feed >= 0;
      rest = rest.subarray(end);
    }
    if (rest.length > 0) kept.push(rest);
    return kept;
  }

  /** The bytes held back when the message ends within a field name. */
  end(): Buffer {
    return this.#start;
  }

  /** Decides whether the line at the start of `rest` stays; false when more bytes are needed. */
  #decide(rest: Buffer): boolean {
    if (isFolding(rest[0])) return true;
    if (rest.length === 1 && rest[0] === carriageReturn) return false;
    const nameEnd = endOfName(rest);
    if (nameEnd === rest.length && nameEnd < maxNameBytes) return false;
    this.#inHeader = emptyLineLength(rest, 0) === 0;
    this.#dropping = this.#remove.has(rest.toString('latin1', 0, nameEnd).toLowerCase());
    return true;
  }
}
