import { once } from 'node:events';
import { connect, type Socket } from 'node:net';

/** One untagged response: its text with `{n}` where a literal stood, and the literals. */
export interface ImapResponse {
  readonly text: string;
  readonly literals: readonly Buffer[];
}

/** What one FETCH response tells of a message; absent items are undefined. */
export interface FetchedMessage {
  readonly uid: number;
  readonly flags: readonly string[];
  /** RFC822.SIZE */
  readonly size: number | undefined;
  /** BODY[], or that part of it which was asked for */
  readonly body: Buffer | undefined;
}

const timeoutMs = 20_000;

/** An IMAP client (RFC 3501) that knows as much as our tests need: commands one after the other, literals in answers. */
export class ImapClient {
  readonly #socket: Socket;
  #received = Buffer.alloc(0);
  #ended = false;
  #count = 0;
  #wake: () => void = () => undefined;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on('data', (chunk) => {
      this.#received = Buffer.concat([this.#received, Buffer.from(chunk)]);
      this.#wake();
    });
    socket.on('error', () => undefined);
    socket.on('close', () => {
      this.#ended = true;
      this.#wake();
    });
  }

  /** Connects and logs in. */
  static async open(port: number, user: string, password = 'anything'): Promise<ImapClient> {
    const socket = connect({ host: '127.0.0.1', port });
    const client = new ImapClient(socket);
    await once(socket, 'connect');
    socket.setNoDelay(true);
    const greeting = await client.#response();
    if (!greeting.text.startsWith('* OK')) throw new Error(`IMAP greeting: ${greeting.text}`);
    await client.command(`LOGIN "${user}" "${password}"`);
    return client;
  }

  /** Sends one command; the untagged responses up to its OK. @throws Error for NO and BAD */
  async command(text: string): Promise<readonly ImapResponse[]> {
    this.#count += 1;
    const tag = `a${this.#count}`;
    this.#socket.write(`${tag} ${text}\r\n`);
    const untagged: ImapResponse[] = [];
    for (;;) {
      const response = await this.#response();
      if (!response.text.startsWith(`${tag} `)) untagged.push(response);
      else if (response.text.startsWith(`${tag} OK`)) return untagged;
      else throw new Error(`IMAP ${text}: ${response.text}`);
    }
  }

  /** FETCH responses that come as answer to the command; those without a UID are left out. */
  async fetch(command: string): Promise<readonly FetchedMessage[]> {
    return (await this.command(command)).map(readFetch).filter((message) => message !== undefined);
  }

  async logout(): Promise<void> {
    await this.command('LOGOUT');
    this.#socket.destroy();
  }

  close(): void {
    this.#socket.destroy();
  }

  /** A line, and the literals that it announces with the rest behind each. */
  async #response(): Promise<ImapResponse> {
    let text = '';
    const literals: Buffer[] = [];
    for (;;) {
      const line = (await this.#take(() => this.#received.indexOf('\r\n'), 2)).toString('latin1');
      text += line;
      const size = /\{(\d+)\}$/.exec(line)?.[1];
      if (size === undefined) return { text, literals };
      literals.push(await this.#take(() => (this.#received.length < Number(size) ? -1 : Number(size)), 0));
    }
  }

  /** Waits until `length` is known, takes so many bytes and drops `behind` more. */
  async #take(length: () => number, behind: number): Promise<Buffer> {
    const until = performance.now() + timeoutMs;
    for (let end = length(); ; end = length()) {
      if (end >= 0) {
        const taken = this.#received.subarray(0, end);
        this.#received = this.#received.subarray(end + behind);
        return taken;
      }
      if (this.#ended) throw new Error('the IMAP server has ended the connection');
      await this.#more(until - performance.now());
    }
  }

  async #more(leftMs: number): Promise<void> {
    if (leftMs <= 0) throw new Error('no answer from the IMAP server in time');
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
      timer = setTimeout(resolve, leftMs);
    });
    clearTimeout(timer);
  }
}

function readFetch({ text, literals }: ImapResponse): FetchedMessage | undefined {
  if (!/^\* \d+ FETCH \(/.test(text)) return undefined;
  const uid = /\bUID (\d+)/.exec(text)?.[1];
  if (uid === undefined) return undefined;
  const size = /RFC822\.SIZE (\d+)/.exec(text)?.[1];
  const flags = /FLAGS \(([^)]*)\)/.exec(text)?.[1] ?? '';
  return {
    uid: Number(uid),
    flags: flags.split(' ').filter((flag) => flag !== ''),
    size: size === undefined ? undefined : Number(size),
    body: text.includes('BODY[') ? literals.at(-1) : undefined,
  };
}
