import { connect, type Socket } from 'node:net';

export interface SendersInput {
  readonly port: number;
  readonly messages: number;
  readonly bytes: number;
  readonly sessions: number;
  /** One connection for all messages of a session, or one for each. */
  readonly keep: boolean;
}

/** Sends all messages over that many sessions at once; resolves with the seconds it took until the last 250. */
export async function runSenders(input: SendersInput): Promise<number> {
  const message = messageOf(input.bytes);
  let left = input.messages;
  const take = () => (left -= 1) >= 0;

  async function session(): Promise<void> {
    while (take()) {
      const peer = await Session.open(input.port);
      do await peer.send(message);
      while (input.keep && take());
      await peer.quit();
    }
  }

  const started = performance.now();
  await Promise.all(Array.from({ length: input.sessions }, session));
  return (performance.now() - started) / 1000;
}

export function messageOf(bytes: number): Buffer {
  const line = `${'x'.repeat(70)}\r\n`;
  const head = 'From: bench@localhost\r\nTo: postmaster@localhost\r\nSubject: bench\r\n\r\n';
  return Buffer.from(`${head}${line.repeat(Math.ceil((bytes - head.length) / line.length))}.\r\n`);
}

/** A lock-step SMTP client that expects success. */
export class Session {
  readonly #socket: Socket;
  #buffer = '';
  #waiting:
    { readonly resolve: () => void; readonly reject: (error: Error) => void; readonly code: string } | undefined;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.setNoDelay(true);
    socket.on('data', (chunk) => this.#read(chunk.toString('latin1')));
    socket.on('error', (error) => this.#waiting?.reject(error));
    socket.on('close', () => this.#waiting?.reject(new Error('connection closed')));
  }

  static async open(port: number): Promise<Session> {
    const session = new Session(connect(port, '127.0.0.1'));
    await session.#expect('220');
    await session.#say('EHLO bench.localhost\r\n', '250');
    return session;
  }

  async send(message: Buffer, recipient = 'postmaster@localhost'): Promise<void> {
    await this.#say('MAIL FROM:<bench@localhost>\r\n', '250');
    await this.#say(`RCPT TO:<${recipient}>\r\n`, '250');
    await this.#say('DATA\r\n', '354');
    await this.#say(message, '250');
  }

  async quit(): Promise<void> {
    await this.#say('QUIT\r\n', '221');
    this.#socket.destroy();
  }

  #say(text: string | Buffer, code: string): Promise<void> {
    this.#socket.write(text);
    return this.#expect(code);
  }

  #expect(code: string): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject, code };
    });
  }

  #read(text: string): void {
    this.#buffer += text;
    const last = /^(\d{3}) .*\r\n$/m.exec(this.#buffer);
    const waiting = this.#waiting;
    if (last === null || waiting === undefined) return;
    this.#waiting = undefined;
    const answer = this.#buffer;
    this.#buffer = '';
    if (last[1] === waiting.code) waiting.resolve();
    else waiting.reject(new Error(`expected ${waiting.code}, got ${answer.trim()}`));
  }
}
