import { connect, type Socket } from 'node:net';

/** What clients are told: connections that each ask again as soon as they have been answered. */
export interface HttpLoad {
  readonly port: number;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly connections: number;
  /** Of all connections together: a busy machine takes longer, and the server is as warm. */
  readonly requests: number;
  /** Of each connection between an answer and the next request; none if absent. */
  readonly pauseMs?: number;
}

export interface HttpResult {
  readonly requests: number;
  readonly seconds: number;
  /** Milliseconds. */
  readonly p50: number;
  readonly p99: number;
}

const headEnd = Buffer.from('\r\n\r\n');

/** One connection that is kept open; answers must say their length. */
class Client {
  readonly #socket: Socket;
  readonly #request: string;
  #waiting: Buffer = Buffer.alloc(0);
  #asked = 0;
  readonly #answered: (ms: number) => boolean;
  readonly #pauseMs: number;

  /** @param answered false to stop */
  constructor({ port, path, headers, pauseMs = 0 }: HttpLoad, answered: (ms: number) => boolean) {
    this.#answered = answered;
    this.#pauseMs = pauseMs;
    const fields = Object.entries({ Host: `127.0.0.1:${port}`, ...headers }).map(
      ([name, value]) => `${name}: ${value}`,
    );
    this.#request = `GET ${path} HTTP/1.1\r\n${fields.join('\r\n')}\r\n\r\n`;
    this.#socket = connect({ port, host: '127.0.0.1', noDelay: true });
    this.#socket.on('connect', () => this.#ask());
    this.#socket.on('data', (chunk) => this.#take(chunk));
    this.#socket.on('error', (error) => {
      throw error;
    });
  }

  stop(): void {
    this.#socket.destroy();
  }

  #ask(): void {
    this.#asked = performance.now();
    this.#socket.write(this.#request);
  }

  #take(chunk: Buffer): void {
    this.#waiting = this.#waiting.length === 0 ? chunk : Buffer.concat([this.#waiting, chunk]);
    const end = this.#waiting.indexOf(headEnd);
    if (end === -1) return;
    const head = this.#waiting.toString('latin1', 0, end);
    const length = Number(/\r\nContent-Length: (\d+)/i.exec(head)?.[1]);
    if (!head.startsWith('HTTP/1.1 200') || Number.isNaN(length)) throw new Error(`an answer without use:\n${head}`);
    if (this.#waiting.length < end + headEnd.length + length) return;
    this.#waiting = Buffer.alloc(0);
    if (!this.#answered(performance.now() - this.#asked)) return;
    if (this.#pauseMs === 0) this.#ask();
    else setTimeout(() => this.#ask(), this.#pauseMs);
  }
}

/** Run as a process of its own, so that its work is not counted as the server's. */
async function run(load: HttpLoad): Promise<HttpResult> {
  const started = performance.now();
  const times: number[] = [];
  const clients: Client[] = [];
  await new Promise<void>((resolve) => {
    const answered = (ms: number): boolean => {
      times.push(ms);
      if (times.length >= load.requests) resolve();
      return times.length < load.requests;
    };
    for (let i = 0; i < load.connections; i += 1) clients.push(new Client(load, answered));
  });
  const seconds = (performance.now() - started) / 1000;
  for (const client of clients) client.stop();
  times.sort((a, b) => a - b);
  const at = (share: number): number => times[Math.floor(times.length * share)] ?? Number.NaN;
  return { requests: times.length, seconds, p50: at(0.5), p99: at(0.99) };
}

const given = process.argv[2];
if (given !== undefined) process.stdout.write(JSON.stringify(await run(JSON.parse(given) as HttpLoad)));
