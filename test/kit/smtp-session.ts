import type { Duplex } from 'node:stream';
import { connect as connectTls } from 'node:tls';
import type { Stage } from '../../core/pipeline/verdict.js';
import { parsePath } from '../../core/mime/address.js';
import { parseCommand, parsePathCommand } from '../../core/smtp/protocol/command.js';
import { answerOf, type ClientAnswer, type RawReply } from './client-answer.js';
import type { HookRecord } from './hook-record.js';
import type { MemorySocket } from './memory-socket.js';
import { withCrlf } from './message.js';
import { ReplyStream } from './reply-stream.js';
import { nextTurns } from './turns.js';

export interface SessionContext {
  /** The client's end. */
  readonly socket: MemorySocket;
  /** By which the server knows this client. */
  readonly port: number;
  readonly record: HookRecord;
  readonly isStandIn: (plugin: string) => boolean;
}

const stages: Readonly<Record<string, Stage>> = {
  EHLO: 'ehlo',
  HELO: 'ehlo',
  LHLO: 'ehlo',
  MAIL: 'mailFrom',
  RCPT: 'rcptTo',
  AUTH: 'auth',
};

/** One client of the server, without a network: it says what it is told to, and reads what it is answered. */
export class SmtpTestSession {
  /** What the client is greeted with. */
  readonly greeting: Promise<ClientAnswer>;
  readonly #context: SessionContext;
  readonly #replies: ReplyStream;
  #socket: Duplex;

  constructor(context: SessionContext) {
    this.#context = context;
    this.#socket = context.socket;
    this.#replies = new ReplyStream(context.socket);
    this.greeting = this.#replies.next().then((reply) => this.#explain(reply, 'connect'));
    this.greeting.catch(() => undefined);
  }

  /** True when the server has ended the session. */
  get ended(): boolean {
    return this.#replies.ended;
  }

  /** Sends one line, given without its line end, and reads its reply. */
  async send(line: string): Promise<ClientAnswer> {
    await this.greeting;
    this.write(`${line}\r\n`);
    return this.#answer(line);
  }

  /** Sends all lines at once (RFC 2920), and reads their replies. */
  async pipeline(lines: readonly string[]): Promise<readonly ClientAnswer[]> {
    await this.greeting;
    this.write(lines.map((line) => `${line}\r\n`).join(''));
    const answers: ClientAnswer[] = [];
    for (const line of lines) answers.push(await this.#answer(line));
    return answers;
  }

  /**
   * DATA, then the message, with dots stuffed; the answer to the final dot, or to DATA when that is refused. Over LMTP it is the answer
   * for the first recipient, and `reply` reads those of the others.
   */
  async data(eml: string | Uint8Array): Promise<ClientAnswer> {
    const start = await this.send('DATA');
    return start.code === 354 ? this.sendMessage(eml) : start;
  }

  /** What follows a 354: the message and the final dot. */
  async sendMessage(eml: string | Uint8Array): Promise<ClientAnswer> {
    const text =
      typeof eml === 'string' ? Buffer.from(withCrlf(eml)).toString('latin1') : Buffer.from(eml).toString('latin1');
    const stuffed = text.replace(/^\./gm, '..');
    this.write(Buffer.from(`${stuffed}${stuffed === '' || stuffed.endsWith('\r\n') ? '' : '\r\n'}.\r\n`, 'latin1'));
    const reply = await this.#replies.next();
    return this.#explained(reply, 'deliver', this.#context.record.takeRest(this.#context.port));
  }

  /** STARTTLS and its handshake; then say EHLO again (RFC 3207 §4.2). Certificates are not looked at. */
  async startTls(): Promise<ClientAnswer> {
    const answer = await this.send('STARTTLS');
    if (answer.code !== 220) return answer;
    const plain = this.#socket;
    const secure = this.#replies.wrap(() => connectTls({ socket: plain, rejectUnauthorized: false }));
    this.#socket = secure;
    await new Promise<void>((resolve, reject) => {
      secure.once('secureConnect', resolve);
      secure.once('error', reject);
    });
    return answer;
  }

  /** AUTH PLAIN (RFC 4616); only a submission session offers it. */
  signIn(username: string, password: string): Promise<ClientAnswer> {
    return this.send(`AUTH PLAIN ${Buffer.from(`\0${username}\0${password}`).toString('base64')}`);
  }

  /** Writes these bytes, whatever they are; text is UTF-8. */
  write(bytes: string | Uint8Array): void {
    if (!this.#socket.writable) throw new Error('The server has ended the session.');
    this.#socket.write(bytes);
  }

  /** The next reply, for those who have used `write`. */
  async reply(): Promise<ClientAnswer> {
    return this.#explained(await this.#replies.next(), null, this.#context.record.takeRest(this.#context.port));
  }

  /** Ends the session as a client that goes away. Resolves when the server has noticed and watchers were told. */
  async close(): Promise<void> {
    await this.greeting.catch(() => undefined);
    this.#socket.end();
    await this.#replies.untilEnded();
    await nextTurns();
  }

  async #answer(line: string): Promise<ClientAnswer> {
    const reply = await this.#replies.next();
    const command = parseCommand(Buffer.from(line));
    const stage = stages[command?.verb ?? ''];
    if (stage === undefined) return this.#explained(reply, null, []);
    if (stage !== 'mailFrom' && stage !== 'rcptTo') return this.#explain(reply, stage);
    const about = subjectOf(command?.argument ?? '');
    return about === undefined ? this.#explained(reply, stage, []) : this.#explain(reply, stage, about);
  }

  #explain(reply: RawReply, stage: Stage, about?: string | null): ClientAnswer {
    const { record, port } = this.#context;
    return this.#explained(reply, stage, record.takeCommand(port, stage, about));
  }

  #explained(reply: RawReply, stage: Stage | null, said: Parameters<typeof answerOf>[2]): ClientAnswer {
    return answerOf(reply, stage, said, this.#context.isStandIn);
  }
}

/** The address that MAIL or RCPT is about, as hooks see it: null for `<>`, undefined for what no hook is asked about. */
function subjectOf(argument: string): string | null | undefined {
  const command = parsePathCommand(argument, 'FROM:') ?? parsePathCommand(argument, 'TO:');
  try {
    return command === undefined ? undefined : (parsePath(command.path)?.address ?? null);
  } catch {
    return undefined;
  }
}
