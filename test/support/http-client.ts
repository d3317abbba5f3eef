import { adminPassword } from './server-process.js';

export interface Credentials {
  readonly username: string;
  readonly password: string;
}

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly bytes: Buffer;
  readonly text: string;
}

export interface RequestOptions {
  readonly method?: string;
  readonly accept?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Sent as JSON. */
  readonly json?: unknown;
  /** Sent as a form. */
  readonly form?: Readonly<Record<string, string>>;
  readonly body?: string | Buffer;
}

/** Asks one server, with or without an account. Redirects are not followed. */
export class HttpClient {
  readonly #base: string;
  readonly #credentials: Credentials | undefined;

  constructor(base: string, credentials?: Credentials) {
    this.#base = base;
    this.#credentials = credentials;
  }

  static admin(base: string, password = adminPassword): HttpClient {
    return new HttpClient(base, { username: 'admin', password });
  }

  async request(path: string, options: RequestOptions = {}): Promise<Answer> {
    const body = bodyOf(options);
    const response = await fetch(new URL(path, this.#base), {
      method: options.method ?? (body === undefined ? 'GET' : 'POST'),
      redirect: 'manual',
      signal: AbortSignal.timeout(30_000),
      headers: {
        ...(options.accept !== undefined && { Accept: options.accept }),
        ...this.#authorization(),
        ...body?.headers,
        ...options.headers,
      },
      ...(body !== undefined && { body: body.content }),
    });
    const bytes = await bodyOfAnswer(response);
    return { status: response.status, headers: response.headers, bytes, text: bytes.toString('utf8') };
  }

  /** The JSON answer; throws with the whole answer when the status is not the expected one. */
  async json(path: string, options: RequestOptions = {}, expected = 200): Promise<unknown> {
    const answer = await this.request(path, { accept: 'application/json', ...options });
    if (answer.status !== expected) throw new Error(`${path}: ${answer.status} ${answer.text}`);
    return JSON.parse(answer.text);
  }

  /** The page; throws with the whole answer when the status is not 200. */
  async page(path: string): Promise<string> {
    const answer = await this.request(path, { accept: 'text/html' });
    if (answer.status !== 200) throw new Error(`${path}: ${answer.status} ${answer.text}`);
    return answer.text;
  }

  #authorization(): Record<string, string> {
    if (this.#credentials === undefined) return {};
    const { username, password } = this.#credentials;
    return { Authorization: `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}` };
  }
}

function bodyOf({ json, form, body }: RequestOptions) {
  if (json !== undefined) return { content: JSON.stringify(json), headers: { 'Content-Type': 'application/json' } };
  if (form !== undefined) return { content: new URLSearchParams(form), headers: {} };
  return body === undefined ? undefined : { content: body, headers: {} };
}

/** A stream of events has no end: of it there is only the head. */
async function bodyOfAnswer(response: Response): Promise<Buffer> {
  if (response.headers.get('content-type')?.startsWith('text/event-stream') !== true) {
    return Buffer.from(await response.arrayBuffer());
  }
  await response.body?.cancel();
  return Buffer.alloc(0);
}
