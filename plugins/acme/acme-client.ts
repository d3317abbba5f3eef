import { createHash, createPublicKey, type KeyObject, sign } from 'node:crypto';
import { z } from 'zod';
import { abortAfter } from '../../core/concurrency.js';

/** An answer of the authority that refuses something, or an authority that does not answer. */
export class AcmeError extends Error {
  /** `rateLimited`, `badNonce`, … without its prefix (RFC 8555 §6.7); `unreachable` where there is no answer. */
  readonly type: string;
  /** How long the authority asks to wait, in milliseconds. */
  readonly retryAfterMs: number | undefined;

  constructor(
    type: string,
    message: string,
    options: { readonly retryAfterMs?: number | undefined; cause?: unknown } = {},
  ) {
    super(message, { cause: options.cause });
    this.name = 'AcmeError';
    this.type = type;
    this.retryAfterMs = options.retryAfterMs;
  }
}

const Directory = z.object({
  newNonce: z.url(),
  newAccount: z.url(),
  newOrder: z.url(),
  meta: z.object({ termsOfService: z.string().optional() }).optional(),
});
type Directory = z.output<typeof Directory>;

const ProblemDocument = z.object({ type: z.string().optional(), detail: z.string().optional() });

export interface AcmeResponse {
  /** Parsed JSON, or the text of another type. */
  readonly body: unknown;
  /** Value of `Location`; null without. */
  readonly location: string | null;
  readonly retryAfterMs: number | undefined;
}

const requestMs = 30_000;
const maxBytes = 1024 * 1024;
const maxNonceTries = 4;
const maxDetail = 500;

interface ClientInput {
  readonly directory: string;
  /** Account key on P-256. */
  readonly key: KeyObject;
  readonly signal: AbortSignal;
  /** Milliseconds since 1970. */
  readonly now: () => number;
}

/** Speaks ACME with one authority: signed requests with nonces (RFC 8555 §6). */
export class AcmeClient {
  readonly #input: ClientInput;
  #directory: Directory | undefined;
  #account: string | undefined;
  #nonce: string | undefined;

  constructor(input: ClientInput) {
    this.#input = input;
  }

  /** Creates the account of the key, or finds it (RFC 8555 §7.3). */
  async signIn(contact: readonly string[]): Promise<void> {
    const { newAccount } = await this.#urls();
    const addresses = contact.map((address) => `mailto:${address}`);
    const { location } = await this.post(newAccount, { termsOfServiceAgreed: true, contact: addresses });
    if (location === null) throw new AcmeError('malformed', 'The authority named no address of the account.');
    this.#account = location;
  }

  /** A new order for the names (RFC 8555 §7.4). */
  async newOrder(names: readonly string[]): Promise<AcmeResponse> {
    const { newOrder } = await this.#urls();
    return this.post(newOrder, { identifiers: names.map((value) => ({ type: 'dns', value })) });
  }

  /** SHA-256 of the public key (RFC 7638), for key authorizations. */
  thumbprint(): string {
    return createHash('sha256').update(JSON.stringify(this.#publicKey())).digest('base64url');
  }

  /**
   * A signed POST; without a payload POST-as-GET (RFC 8555 §6.3). Repeated with a fresh nonce when the authority refuses
   * the one that was sent.
   *
   * @throws AcmeError
   */
  async post(url: string, payload?: object): Promise<AcmeResponse> {
    for (let tries = 1; ; tries += 1) {
      const body = JSON.stringify(this.#sign(url, payload, await this.#takeNonce()));
      const response = await this.#fetch(url, {
        method: 'POST',
        body,
        headers: { 'Content-Type': 'application/jose+json' },
      });
      const text = await boundedText(response);
      this.#nonce = response.headers.get('Replay-Nonce') ?? undefined;
      const retryAfterMs = this.#retryAfter(response);
      if (response.ok) {
        const isJson = /^application\/json\b/.test(response.headers.get('Content-Type') ?? '');
        return { body: isJson ? parse(text) : text, location: response.headers.get('Location'), retryAfterMs };
      }
      const error = refusal(response.status, text, retryAfterMs);
      if (error.type !== 'badNonce' || tries >= maxNonceTries) throw error;
    }
  }

  async #urls(): Promise<Directory> {
    if (this.#directory !== undefined) return this.#directory;
    const response = await this.#fetch(this.#input.directory, {});
    const text = await boundedText(response);
    if (!response.ok) throw refusal(response.status, text, this.#retryAfter(response));
    const { success, data } = Directory.safeParse(parse(text));
    if (!success) throw new AcmeError('malformed', 'The address of the authority has no directory of ACME.');
    this.#directory = data;
    return data;
  }

  async #takeNonce(): Promise<string> {
    const { newNonce } = await this.#urls();
    const nonce = this.#nonce ?? (await this.#fetch(newNonce, { method: 'HEAD' })).headers.get('Replay-Nonce');
    this.#nonce = undefined;
    if (nonce === null) throw new AcmeError('malformed', 'The authority sent no nonce.');
    return nonce;
  }

  /** Flattened JWS with ES256 (RFC 8555 §6.2). */
  #sign(url: string, payload: object | undefined, nonce: string): object {
    const identity = this.#account === undefined ? { jwk: this.#publicKey() } : { kid: this.#account };
    const header = encode({ alg: 'ES256', nonce, url, ...identity });
    const content = payload === undefined ? '' : encode(payload);
    const signature = sign('sha256', Buffer.from(`${header}.${content}`), {
      key: this.#input.key,
      dsaEncoding: 'ieee-p1363',
    });
    return { protected: header, payload: content, signature: signature.toString('base64url') };
  }

  /** In the order of a thumbprint (RFC 7638 §3.2). */
  #publicKey(): object {
    const { crv, kty, x, y } = createPublicKey(this.#input.key).export({ format: 'jwk' });
    return { crv, kty, x, y };
  }

  async #fetch(url: string, init: RequestInit): Promise<Response> {
    const { directory } = this.#input;
    if (new URL(url).protocol !== new URL(directory).protocol) {
      throw new AcmeError('malformed', 'The authority names an address of another protocol than its directory.');
    }
    const signal = abortAfter(requestMs, this.#input.signal);
    try {
      return await fetch(url, { ...init, signal, redirect: 'error' });
    } catch (cause) {
      throw new AcmeError('unreachable', `The authority at ${new URL(url).host} does not answer.`, { cause });
    }
  }

  /** Seconds, or a date (RFC 9110 §10.2.3). */
  #retryAfter({ headers }: Response): number | undefined {
    const field = headers.get('Retry-After') ?? '';
    if (/^\d{1,8}$/.test(field)) return Number(field) * 1000;
    const date = Date.parse(field);
    return Number.isNaN(date) ? undefined : Math.max(0, date - this.#input.now());
  }
}

const encode = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new AcmeError('malformed', 'The authority sent what is no JSON.', { cause });
  }
}

function refusal(status: number, text: string, retryAfterMs: number | undefined): AcmeError {
  const { type = '', detail = '' } = problemOf(text);
  const name = type.replace(/^urn:ietf:params:acme:error:/, '') || `status ${status}`;
  return new AcmeError(name, `The authority refuses: ${(detail || name).slice(0, maxDetail)}`, { retryAfterMs });
}

function problemOf(text: string): z.output<typeof ProblemDocument> {
  try {
    return ProblemDocument.parse(JSON.parse(text));
  } catch {
    return {};
  }
}

async function boundedText(response: Response): Promise<string> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  try {
    for await (const chunk of (response.body ?? []) as AsyncIterable<Uint8Array>) {
      size += chunk.length;
      if (size > maxBytes) throw new Error('too long');
      chunks.push(chunk);
    }
  } catch (cause) {
    throw new AcmeError('unreachable', 'The answer of the authority cannot be read.', { cause });
  }
  return Buffer.concat(chunks).toString('utf8');
}
