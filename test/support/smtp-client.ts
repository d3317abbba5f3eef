import { once } from 'node:events';
import { connect as connectSocket, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';

/** One reply as it came over the wire. */
export interface ReceivedReply {
  readonly code: number;
  /** Enhanced status code of the last line, if it has one. */
  readonly status: string | undefined;
  /** Text of each line, without the code. */
  readonly lines: readonly string[];
  /** The whole reply, with its line ends. */
  readonly raw: string;
}

export interface SmtpClientOptions {
  readonly host?: string;
  readonly port: number;
  /** Start with TLS; certificates are not verified. */
  readonly tls?: boolean;
  /** Where to call from. */
  readonly localAddress?: string;
  /** How long to wait for a reply, in milliseconds. */
  readonly timeoutMs?: number;
}

/** A client that says exactly the bytes it is told to, for tests of the wire. */
export class SmtpClient {
  #socket: Socket;
  readonly #timeoutMs: number;
  #received = '';
  #ended = false;
  #closed = false;
  #wake: () => void = () => undefined;

  constructor(socket: Socket, timeoutMs = 30_000) {
    this.#socket = socket;
    this.#timeoutMs = timeoutMs;
    this.#listen(socket);
  }

  /** Connects and reads nothing yet. */
  static async connect(options: SmtpClientOptions): Promise<SmtpClient> {
    const { host = '127.0.0.1', port, tls = false, timeoutMs, localAddress } = options;
    const place = { host, port, ...(localAddress !== undefined && { localAddress }) };
    const socket = tls ? connectTls({ ...place, rejectUnauthorized: false }) : connectSocket(place);
    const client = new SmtpClient(socket, timeoutMs);
    await once(socket, tls ? 'secureConnect' : 'connect');
    return client;
  }

  /** Connects, reads the greeting and says EHLO (or the given hello). */
  static async greeted(options: SmtpClientOptions, hello = 'EHLO client.example'): Promise<SmtpClient> {
    const client = await SmtpClient.connect(options);
    await client.readReply();
    await client.command(hello);
    return client;
  }

  get socket(): Socket {
    return this.#socket;
  }

  /** True when the server has ended its side and everything was read. */
  get ended(): boolean {
    return this.#ended && this.#received === '';
  }

  /** What has arrived and was not read as a reply. */
  get unread(): string {
    return this.#received;
  }

  /** Writes the bytes as they are; text is taken as UTF-8. */
  write(bytes: string | Buffer): void {
    this.#socket.write(bytes);
  }

  /** Sends one line and reads its reply. */
  async command(line: string): Promise<ReceivedReply> {
    this.write(`${line}\r\n`);
    return this.readReply();
  }

  /** Sends all lines in one write and reads a reply for each. */
  async pipeline(lines: readonly string[]): Promise<readonly ReceivedReply[]> {
    this.write(lines.map((line) => `${line}\r\n`).join(''));
    return this.readReplies(lines.length);
  }

  /** DATA, the message with its dots stuffed, the final dot; returns the reply to the dot, or to DATA when it is not 354. */
  async data(message: string): Promise<ReceivedReply> {
    const intermediate = await this.command('DATA');
    if (intermediate.code !== 354) return intermediate;
    const end = message.endsWith('\r\n') || message === '' ? '' : '\r\n';
    this.write(`${message.replace(/^\./gm, '..')}${end}.\r\n`);
    return this.readReply();
  }

  async readReplies(count: number): Promise<readonly ReceivedReply[]> {
    const replies: ReceivedReply[] = [];
    for (let n = 0; n < count; n += 1) replies.push(await this.readReply());
    return replies;
  }

  /** The next reply; rejects when the connection ends or timeout does before it is whole. */
  async readReply(): Promise<ReceivedReply> {
    const until = performance.now() + this.#timeoutMs;
    for (;;) {
      const reply = this.#take();
      if (reply !== undefined) return reply;
      if (this.#ended || this.#closed)
        throw new Error(`the connection ended; unread: ${JSON.stringify(this.#received)}`);
      await this.#change(until);
    }
  }

  /** Resolves when the server has ended or cut the connection. */
  async waitForEnd(): Promise<void> {
    const until = performance.now() + this.#timeoutMs;
    while (!this.#ended && !this.#closed) await this.#change(until);
  }

  /** Upgrades to TLS after a 220 to STARTTLS; certificates are not verified. */
  async startTls(): Promise<void> {
    const plain = this.#socket;
    plain.removeAllListeners('data');
    plain.removeAllListeners('end');
    plain.removeAllListeners('close');
    const secure = connectTls({ socket: plain, rejectUnauthorized: false });
    this.#socket = secure;
    this.#listen(secure);
    await once(secure, 'secureConnect');
  }

  /** Ends our side only. */
  halfClose(): void {
    this.#socket.end();
  }

  /** Cuts the connection with RST. */
  reset(): void {
    this.#socket.resetAndDestroy();
  }

  close(): void {
    this.#socket.destroy();
  }

  #listen(socket: Socket): void {
    socket.setNoDelay(true);
    socket.on('data', (chunk: Buffer) => {
      this.#received += chunk.toString('latin1');
      this.#wake();
    });
    socket.on('end', () => {
      this.#ended = true;
      this.#wake();
    });
    socket.on('close', () => {
      this.#closed = true;
      this.#wake();
    });
    socket.on('error', () => this.#wake());
  }

  #take(): ReceivedReply | undefined {
    const lines: string[] = [];
    let at = 0;
    for (;;) {
      const end = this.#received.indexOf('\r\n', at);
      if (end < 0) return undefined;
      const line = this.#received.slice(at, end);
      const match = /^(\d{3})([ -]?)(.*)$/s.exec(line);
      if (match === null) throw new Error(`not a reply line: ${JSON.stringify(line)}`);
      at = end + 2;
      const text = match[3] ?? '';
      lines.push(text);
      if (match[2] === '-') continue;
      const raw = this.#received.slice(0, at);
      this.#received = this.#received.slice(at);
      return { code: Number(match[1]), status: /^[245]\.\d{1,3}\.\d{1,3}(?= |$)/.exec(text)?.[0], lines, raw };
    }
  }

  async #change(until: number): Promise<void> {
    const left = until - performance.now();
    if (left <= 0) throw new Error(`no reply in time; unread: ${JSON.stringify(this.#received)}`);
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
      timer = setTimeout(resolve, left);
    });
    clearTimeout(timer);
  }
}
