import { once } from 'node:events';
import { Agent, type IncomingMessage, request } from 'node:http';
import { connect, type Socket } from 'node:net';
import { setImmediate as turn, setTimeout as pause } from 'node:timers/promises';
import { seeded } from '../chaos/disturbances.js';
import { SmtpClient } from '../support/smtp-client.js';
import { flooderOf, password, type Role, type Target } from './victim.js';

/** One way to flood a server. */
export interface Kind {
  /** `http-pipelined-95` */
  readonly name: string;
  /** What is sent, in a line. */
  readonly about: string;
  /** Goes on until the flood is over, and then ends with the process. */
  flood(flood: Flood): Promise<unknown>;
}

/** What the process of the flooder is told. */
export interface FloodOrder {
  readonly kind: string;
  readonly seconds: number;
  readonly seed: number;
  readonly target: Target;
}

/** What it did, by what it is: `requests`, `answers 200`. */
export type FloodCounts = Readonly<Record<string, number>>;

export interface FloodRequest {
  readonly path: string;
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Buffer;
  /** Nobody if absent. */
  readonly as?: Role;
}

/** Whoever was refused or cut off waits so long before the next try. */
const pauseAfterFailureMs = 20;
const addresses = 254;
/** More clients begin one after the other: what the system refuses because they all come at once is another flood. */
const maxAtOnce = 450;

/** The value of Authorization. */
export const basic = (username: string, secret: string): string =>
  `Basic ${Buffer.from(`${username}:${secret}`).toString('base64')}`;

export const basicOf = (role: Role): string => basic(flooderOf(role), password);

export const form = { 'Content-Type': 'application/x-www-form-urlencoded' };
export const json = { 'Content-Type': 'application/json' };

/** What all kinds are made of: many clients from many addresses until the time is over, and counts of what they did. */
export class Flood {
  readonly target: Target;
  /** The same numbers for the same seed, from 0 to below 1. */
  readonly random: () => number;
  readonly #until: number;
  readonly #counts = new Map<string, number>();
  readonly #agents = new Map<string, Agent>();

  constructor({ target, seconds, seed }: FloodOrder) {
    this.target = target;
    this.random = seeded(seed);
    this.#until = performance.now() + seconds * 1000;
  }

  get isOver(): boolean {
    return performance.now() >= this.#until;
  }

  get counts(): FloodCounts {
    return Object.fromEntries(this.#counts);
  }

  count(what: string, number = 1): void {
    this.#counts.set(what, (this.#counts.get(what) ?? 0) + number);
  }

  /** The n-th of so many addresses that floods come from. */
  addressOf(n: number, of = addresses): string {
    return `127.0.1.${1 + (n % Math.min(of, addresses))}`;
  }

  /** Resolves when the flood is over. */
  async end(): Promise<void> {
    while (!this.isOver) await pause(20);
  }

  /** So many clients that each do it again and again. What fails is counted. */
  async crew(size: number, work: (n: number) => Promise<unknown>): Promise<void> {
    const client = async (n: number): Promise<void> => {
      if (size > maxAtOnce) await pause((n / maxAtOnce) * 150);
      while (!this.isOver) {
        try {
          await work(n);
          await turn();
        } catch {
          this.count('cut off');
          await pause(pauseAfterFailureMs);
        }
      }
    };
    await Promise.all(Array.from({ length: size }, (_, n) => client(n)));
  }

  /** A request and its whole answer, on connections that are kept. */
  async ask(from: string, { path, method = 'GET', headers = {}, body, as }: FloodRequest): Promise<void> {
    const agent = this.#agents.get(from) ?? new Agent({ keepAlive: true });
    this.#agents.set(from, agent);
    const asked = request({
      host: '127.0.0.1',
      port: this.target.httpPort,
      localAddress: from,
      agent,
      path,
      method,
      headers: {
        ...headers,
        ...(as !== undefined && { Authorization: basicOf(as) }),
        ...(body !== undefined && { 'Content-Length': Buffer.byteLength(body) }),
      },
    });
    // A connection may break after the answer, too.
    asked.on('error', () => undefined);
    asked.end(body);
    const [response] = (await once(asked, 'response')) as [IncomingMessage];
    response.resume();
    await once(response, 'end');
    this.count(`answers ${response.statusCode}`);
  }

  /** A bare connection. */
  async open(port: number, from: string): Promise<FloodConnection> {
    const socket = connect({ port, host: '127.0.0.1', localAddress: from, noDelay: true });
    socket.on('error', () => undefined);
    await once(socket, 'connect');
    this.count('connections');
    return new FloodConnection(socket, this);
  }

  /** A bare connection that has been greeted and has said EHLO. */
  async openSession(from: string, port = this.target.mxPort): Promise<FloodConnection> {
    const connection = await this.open(port, from);
    await connection.receive(/^220 /m);
    await connection.receive(/^250 /m, 'EHLO flood.example\r\n');
    return connection;
  }

  /** A session that reads each reply. */
  dialogue(from: string, port = this.target.mxPort, hello = 'EHLO flood.example'): Promise<SmtpClient> {
    this.count('connections');
    return SmtpClient.greeted({ port, localAddress: from }, hello);
  }

  /** One message in a dialogue. */
  async sendMail(client: SmtpClient, to: string, text: string): Promise<void> {
    const replies = await client.pipeline(['MAIL FROM:<a@flood.example>', `RCPT TO:<${to}>`]);
    const refused = replies.find(({ code }) => code !== 250);
    const { code } = refused ?? (await client.data(text));
    this.count(`messages ${code}`);
    if (refused === undefined) this.count('bytes', text.length);
    else await client.command('RSET');
  }
}

/** Writes as fast as the server takes it; what comes back is read and forgotten. */
export class FloodConnection {
  readonly #socket: Socket;
  readonly #flood: Flood;

  constructor(socket: Socket, flood: Flood) {
    this.#socket = socket;
    this.#flood = flood;
    socket.resume();
  }

  /** Counts the lines of the server that begin so. */
  countAnswers(beginning: string): this {
    const marker = Buffer.from(beginning);
    this.#socket.on('data', (chunk: Buffer) => {
      let answers = 0;
      for (let at = chunk.indexOf(marker); at >= 0; at = chunk.indexOf(marker, at + marker.length)) answers += 1;
      this.#flood.count('answers', answers);
    });
    return this;
  }

  /** Reads nothing from now on. */
  stopReading(): this {
    this.#socket.pause();
    return this;
  }

  /** Reads so much now and then. */
  readSlowly(bytes: number, everyMs: number): this {
    this.#socket.pause();
    const timer = setInterval(() => void this.#socket.read(bytes), everyMs);
    this.#socket.once('close', () => clearInterval(timer));
    return this;
  }

  /** Resolves when there is room for more. */
  async send(bytes: string | Buffer): Promise<void> {
    if (this.#socket.destroyed || this.#socket.writableEnded) throw new Error('it is closed');
    if (!this.#socket.write(bytes)) await anyOf(this.#socket, 'drain', 'close');
    // The rest of this process has a turn after each.
    await turn();
  }

  /** Sends it again and again; it holds so many of something. */
  async pump(bytes: string, what: string, number: number): Promise<void> {
    while (!this.#flood.isOver) {
      await this.send(bytes);
      this.#flood.count(what, number);
    }
  }

  /** Sends pieces of it with pauses, over and over. */
  async drip(piece: string, everyMs: number): Promise<void> {
    while (!this.#flood.isOver) {
      await this.send(piece);
      this.#flood.count('drips');
      await pause(everyMs);
    }
  }

  /** Sends the bytes, if there are any, and waits until the server has said it. */
  async receive(pattern: RegExp, bytes = ''): Promise<void> {
    let received = '';
    const take = (chunk: Buffer): void => void (received += chunk.toString('latin1'));
    this.#socket.on('data', take);
    try {
      if (bytes !== '') await this.send(bytes);
      while (!pattern.test(received)) {
        if (this.#socket.destroyed) throw new Error('it is closed');
        await anyOf(this.#socket, 'data', 'close');
      }
    } finally {
      this.#socket.off('data', take);
    }
  }

  /** Resolves when it is closed, or the flood is over. */
  async closed(): Promise<void> {
    while (!this.#socket.destroyed && !this.#flood.isOver) await pause(50);
  }

  close(): void {
    this.#socket.destroy();
  }

  reset(): void {
    this.#socket.resetAndDestroy();
  }
}

/** Resolves at the first of these events. */
function anyOf(socket: Socket, ...events: readonly string[]): Promise<void> {
  return new Promise((resolve) => {
    const happened = (): void => {
      for (const event of events) socket.off(event, happened);
      resolve();
    };
    for (const event of events) socket.once(event, happened);
  });
}

/** Clients that each ask the same again and again, 90 of one address if nothing else is said. */
export function asking(
  name: string,
  about: string,
  requestOf: FloodRequest | ((n: number, flood: Flood) => FloodRequest),
  { clients = 90, from = 1 }: { readonly clients?: number; readonly from?: number } = {},
): Kind {
  const one = typeof requestOf === 'function' ? requestOf : () => requestOf;
  return {
    name,
    about,
    flood: (flood) => flood.crew(clients, (n) => flood.ask(flood.addressOf(n, from), one(n, flood))),
  };
}
