import { createHash, type Hash, type KeyObject, sign } from 'node:crypto';
import { domainToASCII } from 'node:url';
import { TimeSlice } from '../../../core/concurrency.js';
import { type HeaderBlock, scanHeader } from '../../../core/mime/header.js';

export interface SigningKey {
  readonly selector: string;
  /** Private, of RSA or Ed25519. */
  readonly key: KeyObject;
}

interface SigningInput {
  readonly domain: string;
  readonly keys: readonly SigningKey[];
  /** Names in lower case: of these all fields are signed. */
  readonly fields: ReadonlySet<string>;
  readonly now: Date;
}

/**
 * A DKIM-Signature field for each key (RFC 6376; relaxed, with SHA-256), with line ends. Takes time linear in the message, in
 * slices.
 */
export async function dkimFields(message: Buffer | AsyncIterable<Buffer>, input: SigningInput): Promise<Buffer> {
  const body = new RelaxedBodyHash();
  const slice = new TimeSlice();
  let start: Buffer[] = [];
  let header: HeaderBlock | undefined;
  let head: Buffer = Buffer.alloc(0);
  for await (const piece of piecesOf(message)) {
    if (header !== undefined) body.update(piece);
    else {
      start.push(piece);
      head = start.length === 1 ? piece : Buffer.concat(start);
      start = [head];
      const scanned = scanHeader(head);
      if (scanned.complete) header = scanned;
      if (scanned.complete) body.update(head.subarray(scanned.bodyOffset));
    }
    await slice.yieldIfDue();
  }
  const signed = signedFields(head, header ?? scanHeader(head), input.fields);
  const bodyHash = body.digest();
  const fields = await Promise.all(input.keys.map((key) => signatureField(key, signed, bodyHash, input)));
  return Buffer.from(fields.join(''), 'latin1');
}

const pieceBytes = 64 * 1024;

async function* piecesOf(message: Buffer | AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  for await (const chunk of Buffer.isBuffer(message) ? [message] : message) {
    if (chunk.length <= pieceBytes) yield chunk;
    else for (let at = 0; at < chunk.length; at += pieceBytes) yield chunk.subarray(at, at + pieceBytes);
  }
}

interface SignedFields {
  /** Names for the tag `h`. */
  readonly names: readonly string[];
  readonly canonical: string;
}

/** From the last to the first, as verifiers look for fields of one name (RFC 6376 §5.4.2). */
function signedFields(head: Buffer, { fields }: HeaderBlock, wanted: ReadonlySet<string>): SignedFields {
  const signed = fields.filter(({ key }) => wanted.has(key)).toReversed();
  return {
    names: signed.map(({ name }) => name),
    canonical: signed
      .map(({ key, valueOffset, end }) => `${key}:${relaxed(head.toString('latin1', valueOffset, end))}\r\n`)
      .join(''),
  };
}

/** RFC 6376 §3.4.2. */
function relaxed(value: string): string {
  const unfolded = value.replace(/\r?\n/g, '').replace(/[ \t]+/g, ' ');
  return unfolded.slice(unfolded.startsWith(' ') ? 1 : 0, unfolded.endsWith(' ') ? -1 : undefined);
}

async function signatureField(
  { selector, key }: SigningKey,
  { names, canonical }: SignedFields,
  bodyHash: string,
  { domain, now }: SigningInput,
): Promise<string> {
  const isRsa = key.asymmetricKeyType === 'rsa';
  const tags = [
    ` v=1; a=${isRsa ? 'rsa' : 'ed25519'}-sha256; c=relaxed/relaxed; d=${domainToASCII(domain) || domain};`,
    ` s=${selector}; t=${Math.floor(now.getTime() / 1000)}; bh=${bodyHash};`,
    ` h=${folded(names)};`,
    ' b=',
  ].join('\r\n');
  const data = Buffer.from(`${canonical}dkim-signature:${relaxed(tags)}`, 'latin1');
  // RFC 8463 §3: Ed25519 signs the hash.
  const signature = await (isRsa
    ? signatureOf('sha256', data, key)
    : signatureOf(null, createHash('sha256').update(data).digest(), key));
  return `DKIM-Signature:${tags}${(signature.match(/.{1,72}/g) ?? []).join('\r\n ')}\r\n`;
}

/** In another thread: large keys take their time. */
function signatureOf(algorithm: 'sha256' | null, data: Buffer, key: KeyObject): Promise<string> {
  return new Promise((resolve, reject) => {
    sign(algorithm, data, key, (error, signature) => {
      if (error === null) resolve(signature.toString('base64'));
      else reject(error);
    });
  });
}

const lineLength = 72;

/** Names with colons, on lines of some length. */
function folded(names: readonly string[]): string {
  let text = '';
  let length = 0;
  for (const name of names) {
    const isFull = length + name.length > lineLength;
    text += `${text === '' ? '' : ':'}${isFull ? '\r\n ' : ''}${name}`;
    length = (isFull ? 0 : length) + name.length + 1;
  }
  return text;
}

const [lf, cr, space, tab] = [0x0a, 0x0d, 0x20, 0x09];

/** The SHA-256 hash of a body in its relaxed form (RFC 6376 §3.4.4). */
class RelaxedBodyHash {
  readonly #hash: Hash = createHash('sha256');
  #out = Buffer.alloc(0);
  #used = 0;
  /** Line ends before the next character; those at the end of the body do not count. */
  #lineEnds = 0;
  /** Blanks before the next character; those at the end of a line do not count. */
  #isBlank = false;
  /** The last byte was a CR, which may begin a line end. */
  #isReturned = false;
  #isEmpty = true;

  update(piece: Buffer): void {
    const needed = 2 * piece.length + 16;
    if (this.#out.length < needed) this.#out = Buffer.allocUnsafe(needed);
    const last = this.#out.length - piece.length - 8;
    // An index loop: for-of is several times slower.
    for (let at = 0; at < piece.length; at++) {
      const byte = piece[at] ?? 0;
      if (byte === lf) {
        this.#isReturned = false;
        this.#isBlank = false;
        this.#lineEnds++;
        continue;
      }
      if (this.#isReturned) this.#character(cr, last);
      this.#isReturned = byte === cr;
      if (byte === space || byte === tab) this.#isBlank = true;
      else if (byte !== cr) this.#character(byte, last);
    }
    this.#drain();
  }

  #character(byte: number, last: number): void {
    if (this.#lineEnds > 0) this.#endLines(last);
    if (this.#isBlank) {
      this.#out[this.#used++] = space;
      this.#isBlank = false;
    }
    this.#out[this.#used++] = byte;
    this.#isEmpty = false;
  }

  /** @param last where to write at most, so that there is room for the characters of a piece */
  #endLines(last: number): void {
    for (; this.#lineEnds > 0; this.#lineEnds--) {
      if (this.#used > last) this.#drain();
      this.#out[this.#used++] = cr;
      this.#out[this.#used++] = lf;
    }
  }

  #drain(): void {
    this.#hash.update(this.#out.subarray(0, this.#used));
    this.#used = 0;
  }

  digest(): string {
    if (!this.#isEmpty) this.#hash.update('\r\n');
    return this.#hash.digest('base64');
  }
}
