import { createHash } from 'node:crypto';
import { readdir, readFile, readlink } from 'node:fs/promises';
import { join, relative } from 'node:path';
import type { EndpointDescription } from '../../core/contracts/server.js';
import { accounts, basic, passwords, type Who } from '../core/http/opened-shell.js';
import { rawExchange } from '../core/http/raw-exchange.js';
import type { Ending } from '../support/ending.js';
import { startInProcess, type InProcessServer } from '../support/in-process-server.js';
import { freeListeners } from '../support/server-process.js';

export interface Asked {
  readonly as?: Who | null;
  readonly headers?: readonly string[];
  readonly body?: string;
}

/** Keys of `http`, keys of `smtp` beside the listeners, and other keys of the configuration. */
export interface FixtureOptions {
  readonly http?: object;
  readonly smtp?: object;
  readonly rest?: object;
}

/** The whole server with an account of each role, asked over raw sockets. */
export class HttpFixture {
  readonly server: InProcessServer;

  private constructor(server: InProcessServer) {
    this.server = server;
  }

  static async start(ending: Ending, { http = {}, smtp = {}, rest = {} }: FixtureOptions = {}): Promise<HttpFixture> {
    const others = JSON.stringify({ ...rest, http: { accounts, ...http } });
    const mail = JSON.stringify(smtp).replace(/^\{/, `{ listeners: ${freeListeners}, `);
    return new HttpFixture(
      await startInProcess(
        ending,
        others.replace(/^\{/, () => `{ smtp: ${mail}, `),
      ),
    );
  }

  get port(): number {
    return this.server.server.app.http.address().port;
  }

  get endpoints(): readonly EndpointDescription[] {
    return this.server.server.app.http.describe();
  }

  /** The whole answer, head and body; signed in as `boss` if nobody is named, with the length of the body if none is told. */
  ask(method: string, target: string, { as = 'boss', headers = [], body = '' }: Asked = {}): Promise<string> {
    const isTold = headers.some((header) => /^(?:content-length|transfer-encoding):/i.test(header));
    const head = [
      `${method} ${target} HTTP/1.1`,
      `Host: 127.0.0.1:${this.port}`,
      'Connection: close',
      ...(as === null ? [] : [`Authorization: ${basic(as, passwords[as])}`]),
      ...(isTold || (body === '' && method === 'GET') ? [] : [`Content-Length: ${Buffer.byteLength(body, 'latin1')}`]),
      ...headers,
    ];
    return rawExchange(this.port, `${head.join('\r\n')}\r\n\r\n${body}`, isEndless);
  }

  /** Names and contents of everything on disk but the logs, the history of sign-ins and the lock. */
  async tree(): Promise<string> {
    const hash = createHash('sha256');
    const entries = await readdir(this.server.folder, { recursive: true, withFileTypes: true });
    const paths = entries.map((entry) => ({ entry, path: join(entry.parentPath, entry.name) }));
    for (const { entry, path } of paths.toSorted((a, b) => (a.path < b.path ? -1 : 1))) {
      // The queue notes the time in its journal, whoever asks what; the disk is tested with files of its own.
      if (/[\\/](logs|journal|sign-ins)([\\/]|$)|\.lock$|[\\/]\.probe-/.test(path)) continue;
      hash.update(`${relative(this.server.folder, path)}\0`);
      if (entry.isFile()) hash.update(await readFile(path));
      if (entry.isSymbolicLink()) hash.update(await readlink(path));
    }
    return hash.digest('hex');
  }

  /** Everything that the log files hold. */
  async logged(): Promise<string> {
    const folder = join(this.server.folder, 'data', 'logs');
    const files = await readdir(folder);
    return (await Promise.all(files.map((file) => readFile(join(folder, file), 'utf8')))).join('');
  }
}

/** Events go on until somebody leaves; their head is all that is looked at. */
const isEndless = (received: string): boolean => /\r\nContent-Type: text\/event-stream[^]*\r\n\r\n/i.test(received);

const values: Readonly<Record<string, string>> = {
  domain: 'localhost',
  user: 'postmaster',
  username: 'postmaster@localhost',
  folder: 'INBOX',
};

/** The path with a value in place of each parameter. */
export function examplePath(path: string, others: Readonly<Record<string, string>> = {}): string {
  return path.replace(/\{([^}]+)\}/g, (_, name: string) => others[name] ?? values[name] ?? 'x');
}

export const parameters = (path: string): readonly string[] =>
  [...path.matchAll(/\{([^}]+)\}/g)].map(([, n = '']) => n);

export const bodyOf = (answer: string): string => answer.slice(answer.indexOf('\r\n\r\n') + 4);

/** A body that each unsafe method accepts far enough to be looked at. */
export const json = ['Content-Type: application/json'];
