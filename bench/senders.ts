import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';

/** STARTTLS with a whole handshake on each connection, or with the session of the one before. */
export type TlsUse = 'new' | 'resumed';

/** BDAT where the server offers CHUNKING, else DATA. */
export type TextBy = 'DATA' | 'BDAT';

export interface SendersInput {
  readonly port: number;
  readonly messages: number;
  readonly bytes: number;
  readonly sessions: number;
  /** One connection for all messages of a session, or one for each. */
  readonly keep: boolean;
  /** No TLS if absent. */
  readonly tls?: TlsUse;
  /** Of each message, all of them the same; one if absent. */
  readonly recipients?: number;
  /** `DATA` if absent. */
  readonly by?: TextBy;
  /** Recipients of the message of that number, in place of `recipients`. */
  readonly to?: ((message: number) => readonly string[]) | undefined;
}

/**
 * Sends all messages over that many sessions at once; resolves with the milliseconds that each took: from MAIL to 250, with
 * one connection for each from its beginning to 221.
 */
export async function runSenders(input: SendersInput): Promise<readonly number[]> {
  const text = messageOf(input.bytes);
  const chunk = input.by === 'BDAT' ? chunkOf(text) : undefined;
  const times: number[] = [];
  let ticket: Buffer | undefined;
  let left = input.messages;
  /** Number of the next message; negative when there is none. */
  const take = () => (left -= 1);

  async function session(): Promise<void> {
    for (let message = take(); message >= 0; message = take()) {
      let began = performance.now();
      const peer = await Session.open(input.port);
      if (input.tls !== undefined) await peer.startTls(ticket, (given) => input.tls === 'resumed' && (ticket = given));
      do {
        if (input.keep) began = performance.now();
        const recipients = recipientsOf(input, message);
        if (chunk !== undefined && peer.takesChunks) await peer.sendChunk(chunk, recipients);
        else await peer.send(text, recipients);
        if (input.keep) times.push(performance.now() - began);
      } while (input.keep && (message = take()) >= 0);
      await peer.quit();
      if (!input.keep) times.push(performance.now() - began);
    }
  }

  await Promise.all(Array.from({ length: input.sessions }, session));
  return times;
}

function recipientsOf({ recipients = 1, to }: SendersInput, message: number): readonly string[] {
  return to?.(message) ?? Array.from({ length: recipients }, () => 'postmaster@localhost');
}

export function messageOf(bytes: number): Buffer {
  const line = `${'x'.repeat(70)}\r\n`;
  const head = 'From: bench@localhost\r\nTo: postmaster@localhost\r\nSubject: bench\r\n\r\n';
  return Buffer.from(`${head}${line.repeat(Math.ceil((bytes - head.length) / line.length))}.\r\n`);
}

/** The same by BDAT, without the final dot. */
function chunkOf(message: Buffer): Buffer {
  const octets = message.length - '.\r\n'.length;
  return Buffer.concat([Buffer.from(`BDAT ${octets} LAST\r\n`), message.subarray(0, octets)]);
}

/** A lock-step SMTP client that expects success. */
export class Session {
  #socket: Socket;
  #buffer = '';
  takesChunks = false;
  #waiting:
    | { readonly resolve: (answer: string) => void; readonly reject: (error: Error) => void; readonly code: string }
    | undefined;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.setNoDelay(true);
    this.#listen(socket);
  }

  #listen(socket: Socket): void {
    socket.on('data', (chunk) => this.#read(chunk.toString('latin1')));
    socket.on('error', (error) => this.#waiting?.reject(error));
    socket.on('close', () => this.#waiting?.reject(new Error('connection closed')));
  }

  static async open(port: number): Promise<Session> {
    const session = new Session(connect(port, '127.0.0.1'));
    await session.#expect('220');
    session.takesChunks = /^250.CHUNKING/m.test(await session.#say('EHLO bench.localhost\r\n', '250'));
    return session;
  }

  /** `keep` gets the ticket for the next session. */
  async startTls(session: Buffer | undefined, keep: (ticket: Buffer) => void): Promise<void> {
    await this.#say('STARTTLS\r\n', '220');
    this.#socket.removeAllListeners();
    const secure = connectTls({ socket: this.#socket, rejectUnauthorized: false, ...(session && { session }) });
    secure.on('session', keep);
    await once(secure, 'secureConnect');
    this.#socket = secure;
    this.#listen(secure);
    await this.#say('EHLO bench.localhost\r\n', '250');
  }

  async send(message: Buffer, recipients: readonly string[] = ['postmaster@localhost']): Promise<void> {
    await this.#open(recipients);
    await this.#say('DATA\r\n', '354');
    await this.#say(message, '250');
  }

  async sendChunk(chunk: Buffer, recipients: readonly string[]): Promise<void> {
    await this.#open(recipients);
    await this.#say(chunk, '250');
  }

  async #open(recipients: readonly string[]): Promise<void> {
    await this.#say('MAIL FROM:<bench@localhost>\r\n', '250');
    for (const recipient of recipients) await this.#say(`RCPT TO:<${recipient}>\r\n`, '250');
  }

  async quit(): Promise<void> {
    await this.#say('QUIT\r\n', '221');
    this.#socket.destroy();
  }

  #say(text: string | Buffer, code: string): Promise<string> {
    this.#socket.write(text);
    return this.#expect(code);
  }

  #expect(code: string): Promise<string> {
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
    if (last[1] === waiting.code) waiting.resolve(answer);
    else waiting.reject(new Error(`expected ${waiting.code}, got ${answer.trim()}`));
  }
}
