import {
  createServer,
  request as sendRequest,
  type IncomingMessage,
  type RequestListener,
  type Server,
} from 'node:http';
import { buffer } from 'node:stream/consumers';
import type { Role } from '../../core/contracts/accounts.js';
import { MemorySocket } from './memory-socket.js';

/** One request to an endpoint. */
export interface CallOptions {
  /** Who asks; `admin` if absent, null for nobody who has signed in. */
  readonly role?: Role | null;
  /** Sent as JSON. */
  readonly json?: unknown;
  /** Sent as a browser sends a form of one of our own pages. */
  readonly form?: Readonly<Record<string, string | readonly string[]>>;
  /** Sent as it is; `FormData` as `multipart/form-data`. */
  readonly body?: string | Uint8Array | FormData;
  readonly headers?: Readonly<Record<string, string>>;
  /** `application/json` if absent; `text/html` for a form. */
  readonly accept?: string;
}

/** What an endpoint has answered. */
export interface HttpAnswer {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  /** JSON read, problems (RFC 9457) among it; everything else as text. */
  readonly body: unknown;
  /** As it came; nothing of a stream of events, which has no end. */
  readonly text: string;
  readonly bytes: Buffer;
}

/** The password of the three accounts. */
export const accountPassword = 'correct horse battery staple';

/** How long an answer may take to begin. */
const timeoutMs = 15_000;

/** Asks the HTTP side of a server, without a network. */
export class HttpCaller {
  readonly #server: Server;

  constructor(listener: RequestListener) {
    this.#server = createServer(listener);
  }

  async call(method: string, path: string, options: CallOptions = {}): Promise<HttpAnswer> {
    const { body, headers } = await contentOf(options);
    const answer = await this.#send(
      method,
      path,
      { ...headers, ...authorizationOf(options), ...options.headers },
      body,
    );
    const names = Object.entries(answer.headers).map(
      ([name, value]) => [name, [value ?? ''].flat().join(', ')] as const,
    );
    const type = answer.headers['content-type'] ?? '';
    const bytes = await bytesOf(answer, type);
    const text = bytes.toString('utf8');
    const isJson = /^application\/(?:[\w.-]+\+)?json\b/.test(type);
    return {
      status: answer.statusCode ?? 0,
      headers: Object.fromEntries(names),
      body: isJson && text !== '' ? (JSON.parse(text) as unknown) : text,
      text,
      bytes,
    };
  }

  #send(method: string, path: string, headers: Headers, body: Content['body']): Promise<IncomingMessage> {
    const { server, client } = MemorySocket.pair({ remoteAddress: '127.0.0.1', remotePort: 1 });
    this.#server.emit('connection', server);
    return new Promise((resolve, reject) => {
      const request = sendRequest(
        {
          method,
          path,
          headers: { host: 'localhost', connection: 'close', ...headers },
          createConnection: () => client,
        },
        (answer) => {
          clearTimeout(timer);
          resolve(answer);
        },
      );
      const timer = setTimeout(() => {
        request.destroy(new Error(`${method} ${path} is not answered within ${timeoutMs / 1000} seconds.`));
      }, timeoutMs);
      request.on('error', (error) => {
        clearTimeout(timer);
        reject(error);
      });
      request.end(body);
    });
  }
}

type Headers = Readonly<Record<string, string>>;

interface Content {
  readonly body: string | Uint8Array | undefined;
  readonly headers: Headers;
}

/** A stream of events has no end: of it there is only the head. */
async function bytesOf(answer: IncomingMessage, type: string): Promise<Buffer> {
  if (!type.startsWith('text/event-stream')) return buffer(answer);
  answer.destroy();
  return Buffer.alloc(0);
}

async function contentOf({ json, form, body, accept }: CallOptions): Promise<Content> {
  if (form !== undefined) return formContent(form, accept);
  const headers = { accept: accept ?? 'application/json' };
  if (body instanceof FormData) {
    const multipart = new Response(body);
    const type = multipart.headers.get('content-type') ?? '';
    return { body: new Uint8Array(await multipart.arrayBuffer()), headers: { ...headers, 'content-type': type } };
  }
  if (json === undefined) return { body, headers };
  return { body: JSON.stringify(json), headers: { ...headers, 'content-type': 'application/json' } };
}

/** As a browser sends a form of one of our pages. */
function formContent(form: NonNullable<CallOptions['form']>, accept = 'text/html'): Content {
  const fields = new URLSearchParams();
  for (const [name, values] of Object.entries(form)) for (const value of [values].flat()) fields.append(name, value);
  const headers = {
    accept,
    'content-type': 'application/x-www-form-urlencoded',
    'sec-fetch-site': 'same-origin',
  };
  return { body: fields.toString(), headers };
}

function authorizationOf({ role = 'admin' }: CallOptions): Readonly<Record<string, string>> {
  if (role === null) return {};
  return { authorization: `Basic ${Buffer.from(`${role}:${accountPassword}`).toString('base64')}` };
}
