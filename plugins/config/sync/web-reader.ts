import { isLoopbackAddress } from '../../../core/net/ip-address.js';
import type { LookBounds } from '../../../core/contracts/configuration-source.js';
import { isProblem, problem } from '../../../core/problem.js';

export interface WebCredentials {
  readonly token?: string | undefined;
  readonly username?: string | undefined;
  readonly password?: string | undefined;
}

export interface WebAnswer {
  readonly body: Buffer;
  /** ETag (RFC 9110 §8.8.3). */
  readonly tag: string | undefined;
}

const mostRedirects = 5;

/** Gets documents of bounded size. Credentials go to the host that was configured and to no other. */
export class WebReader {
  readonly #origin: string;
  readonly #authorization: string | undefined;

  /** Credentials in the URL count too, and are taken out of it. */
  constructor(url: URL, credentials: WebCredentials) {
    this.#origin = url.origin;
    const {
      token,
      username = decodeURIComponent(url.username),
      password = decodeURIComponent(url.password),
    } = credentials;
    url.username = '';
    url.password = '';
    if (token !== undefined) this.#authorization = `Bearer ${token}`;
    else if (username !== '') {
      this.#authorization = `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`;
    }
  }

  /** @throws Problem `unavailable` when it cannot be reached, `invalid` when what is there cannot be used */
  async get(url: URL, { mostBytes, signal }: LookBounds, tag?: string): Promise<WebAnswer | 'not modified'> {
    try {
      const response = await this.#follow(url, signal, tag);
      if (response.status === 304) return 'not modified';
      if (response.status !== 200) throw refused(url, response.status);
      return { body: await bodyOf(response, mostBytes, url), tag: response.headers.get('ETag') ?? undefined };
    } catch (cause) {
      if (isProblem(cause)) throw cause;
      throw unreachable(url, signal, cause);
    }
  }

  async #follow(start: URL, signal: AbortSignal, tag: string | undefined): Promise<Response> {
    let url = start;
    for (let hops = 0; hops <= mostRedirects; hops += 1) {
      const response = await fetch(url, { redirect: 'manual', signal, headers: this.#headers(url, tag) });
      const { status, headers } = response;
      if (![301, 302, 303, 307, 308].includes(status)) return response;
      await response.body?.cancel();
      url = redirected(url, headers.get('Location'));
    }
    throw problem('invalid', `${shown(start)} redirects more than ${mostRedirects} times.`);
  }

  #headers({ origin }: URL, tag: string | undefined): Readonly<Record<string, string>> {
    return {
      Accept: 'application/json, application/json5, text/plain;q=0.9, */*;q=0.5',
      ...(tag !== undefined && { 'If-None-Match': tag }),
      ...(this.#authorization !== undefined && origin === this.#origin && { Authorization: this.#authorization }),
    };
  }
}

/** An http URL whose host is not this machine. */
export function isClearText(address: string): boolean {
  const url = URL.parse(address);
  if (url?.protocol !== 'http:') return false;
  const host = url.hostname.replace(/^\[|\]$/g, '');
  return host !== 'localhost' && !isLoopbackAddress(host);
}

function redirected(from: URL, location: string | null): URL {
  const to = location === null ? null : URL.parse(location, from.href);
  if (to === null) throw problem('invalid', `${shown(from)} redirects to no address.`);
  const isSafe =
    to.protocol === 'https:' || (from.protocol === 'http:' && to.protocol === 'http:' && !isClearText(to.href));
  if (!isSafe) throw problem('invalid', `${shown(from)} redirects to a place that is not as safe.`);
  to.username = '';
  to.password = '';
  return to;
}

async function bodyOf(response: Response, mostBytes: number, url: URL): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  const received: AsyncIterable<Uint8Array> | null = response.body;
  for await (const chunk of received ?? []) {
    size += chunk.length;
    if (size > mostBytes) throw problem('invalid', `${shown(url)} is larger than ${mostBytes} bytes.`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** What passes by itself can be told from what somebody must mend. */
function refused(url: URL, status: number): Error {
  const passes = status >= 500 || status === 429 || status === 408;
  return problem(passes ? 'unavailable' : 'invalid', `${shown(url)} answers ${status}.`);
}

function unreachable(url: URL, signal: AbortSignal, cause: unknown): Error {
  const why = signal.aborted ? 'does not answer in time' : `cannot be reached (${codeOf(cause)})`;
  return problem('unavailable', { detail: `${shown(url)} ${why}.`, cause });
}

function codeOf(error: unknown): string {
  const inner = error instanceof Error ? error.cause : undefined;
  const code = (inner as { code?: unknown } | undefined)?.code ?? (error as { code?: unknown } | undefined)?.code;
  return typeof code === 'string' ? code : 'the connection broke';
}

/** A query may hold a token. */
const shown = ({ origin, pathname }: URL): string => `${origin}${pathname}`;
