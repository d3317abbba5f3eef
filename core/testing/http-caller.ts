import {
  createServer,
  request as sendRequest,
  type IncomingMessage,
  type RequestListener,
  type Server,
} from 'node:http';
import { text } from 'node:stream/consumers';
import type { Role } from '../http/endpoint.js';
import { MemorySocket } from './memory-socket.js';

/** One request to an endpoint. */
export interface CallOptions {
  /** Who asks; `admin` if absent, null for nobody who has signed in. */
  readonly role?: Role | null;
  /** Sent as JSON. */
  readonly json?: unknown;
  /** Sent as a browser sends a form of one of our own pages. */
  readonly form?: Readonly<Record<string, string | readonly string[]>>;
  /** Sent as it is. */
  readonly body?: string | Uint8Array;
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
  /** As it came. */
  readonly text: string;
}

/** The password of the three accounts. */
export const accountPassword = 'correct horse battery staple';

/** Asks the HTTP side of a server, without a network. */
export class HttpCaller {
  readonly #server: Server;

  constructor(listener: RequestListener) {
    this.#server = createServer(listener);
  }

  async call(method: string, path: string, options: CallOptions = {}): Promise<HttpAnswer> {
    const { body, headers } = contentOf(options);
    const answer = await this.#send(
      method,
      path,
      { ...headers, ...authorizationOf(options), ...options.headers },
      body,
    );
    const content = await text(answer);
    const names = Object.entries(answer.headers).map(
      ([name, value]) => [name, [value ?? ''].flat().join(', ')] as const,
    );
    const isJson = /^application\/(?:[\w.-]+\+)?json\b/.test(answer.headers['content-type'] ?? '');
    return {
      status: answer.statusCode ?? 0,
      headers: Object.fromEntries(names),
      body: isJson && content !== '' ? (JSON.parse(content) as unknown) : content,
      text: content,
    };
  }

  #send(
    method: string,
    path: string,
    headers: Readonly<Record<string, string>>,
    body: string | Uint8Array | undefined,
  ): Promise<IncomingMessage> {
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
        resolve,
      );
      request.on('error', reject);
      request.end(body);
    });
  }
}

function contentOf({ json, form, body, accept }: CallOptions): {
  readonly body: string | Uint8Array | undefined;
  readonly headers: Readonly<Record<string, string>>;
} {
  if (form !== undefined) {
    const pairs = Object.entries(form).flatMap(([name, values]) => [values].flat().map((value) => [name, value]));
    return {
      body: new URLSearchParams(pairs as [string, string][]).toString(),
      headers: {
        accept: accept ?? 'text/html',
        'content-type': 'application/x-www-form-urlencoded',
        'sec-fetch-site': 'same-origin',
      },
    };
  }
  const type = json === undefined ? {} : { 'content-type': 'application/json' };
  return {
    body: json === undefined ? body : JSON.stringify(json),
    headers: { accept: accept ?? 'application/json', ...type },
  };
}

function authorizationOf({ role = 'admin' }: CallOptions): Readonly<Record<string, string>> {
  if (role === null) return {};
  return { authorization: `Basic ${Buffer.from(`${role}:${accountPassword}`).toString('base64')}` };
}
