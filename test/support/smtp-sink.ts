import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { TLSSocket } from 'node:tls';
import type { KeyPair } from './certificate.js';
import { atEnd, type Ending } from './ending.js';

/** What a server can be told to do when it is its turn to answer. */
export type Behaviour =
  /** One reply; further lines behind `\n`, each with its code. */
  | string
  /** These bytes as they are; then on as if it had replied. */
  | { readonly raw: string | Buffer }
  /** These bytes over and over, one at a time. */
  | { readonly drip: string; readonly everyMs: number }
  /** Nothing, for ever; of what comes nothing is read. */
  | { readonly stall: true }
  /** Nothing, but what comes is read. */
  | { readonly silent: true }
  /** RST. */
  | { readonly reset: true }
  /** This reply, or nothing for `''`, and the end of the stream. */
  | { readonly close: string }
  /** The same, later. */
  | { readonly after: Promise<unknown>; readonly say: Behaviour };

/** `bdat` is the answer to that command instead of taking the chunk; `body` is the time between 354 and the dot; `dot` is asked once for SMTP and once for each accepted recipient for LMTP. */
export type SinkStep =
  | 'greeting'
  | 'ehlo'
  | 'helo'
  | 'lhlo'
  | 'starttls'
  | 'auth'
  | 'xclient'
  | 'mail'
  | 'rcpt'
  | 'data'
  | 'body'
  | 'bdat'
  | 'dot'
  | 'rset'
  | 'noop'
  | 'quit';

/** What may be decided by. */
export interface SinkMoment {
  /** The command line. */
  readonly line: string;
  /** Counted from 0: the recipient in its transaction for `rcpt` and the `dot` of LMTP, else how often the sink came to this step. */
  readonly nth: number;
  /** Number of the connection, from 0. */
  readonly connection: number;
}

/** An array is gone through, its last element for ever; undefined is the friendly answer. */
export type Rule = Behaviour | readonly (Behaviour | undefined)[] | ((moment: SinkMoment) => Behaviour | undefined);

export interface SinkScript {
  readonly protocol?: 'smtp' | 'lmtp';
  /** Keywords behind EHLO and LHLO; STARTTLS and AUTH are added where they can be used. */
  readonly capabilities?: readonly string[];
  /** For STARTTLS, or from the start. */
  readonly tls?: KeyPair & { readonly implicit?: boolean };
  /** Answers 235 to these credentials alone. */
  readonly auth?: { readonly username: string; readonly password: string };
  readonly steps?: { readonly [step in SinkStep]?: Rule };
  /** Forget the text of messages, for many of them. */
  readonly forgetText?: boolean;
}

interface SunkMessage {
  /** Without brackets. */
  readonly sender: string;
  readonly recipients: readonly string[];
  /** The lines of MAIL and of RCPT, accepted or not. */
  readonly envelope: readonly string[];
  /** With the dots unstuffed; without the final one. */
  readonly text: Buffer;
  readonly encrypted: boolean;
  readonly user: string | undefined;
  readonly connection: number;
}

/** A server that takes mail, or behaves as badly as its script says. */
export class SmtpSink {
  readonly messages: SunkMessage[] = [];
  /** Every command line of every connection. */
  readonly commands: string[] = [];
  script: SinkScript;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #turns = new Map<SinkStep, number>();
  #connections = 0;
  #changed: () => void = () => undefined;

  private constructor(script: SinkScript) {
    this.script = script;
    this.#server = createServer({ noDelay: true }, (socket) => this.#serve(socket));
  }

  /** Listens on 127.0.0.1, at a port of its own if none is given; closed when the test ends. */
  static async start(test: Ending, script: SinkScript = {}, port = 0): Promise<SmtpSink> {
    const sink = new SmtpSink(script);
    sink.#server.listen(port, '127.0.0.1');
    await once(sink.#server, 'listening');
    atEnd(test, () => sink.close());
    return sink;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** So many connections have come. */
  get connections(): number {
    return this.#connections;
  }

  /** So many are open. */
  get open(): number {
    return this.#sockets.size;
  }

  /** Resolves when the condition holds; it is looked at after each command and each connection. */
  async until(condition: (sink: SmtpSink) => boolean): Promise<void> {
    while (!condition(this)) {
      await new Promise<void>((resolve) => {
        const before = this.#changed;
        this.#changed = () => {
          before();
          resolve();
        };
      });
    }
  }

  /** Cuts every connection; later ones are served. */
  cut(): void {
    for (const socket of this.#sockets) socket.resetAndDestroy();
  }

  async close(): Promise<void> {
    if (!this.#server.listening) return;
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
    await once(this.#server, 'close');
  }

  #serve(socket: Socket): void {
    const connection = this.#connections;
    this.#connections += 1;
    this.#sockets.add(socket);
    socket.once('close', () => {
      this.#sockets.delete(socket);
      this.#notice();
    });
    void new SinkConnection(socket, connection, {
      script: () => this.script,
      nextTurn: (step) => {
        const turn = this.#turns.get(step) ?? 0;
        this.#turns.set(step, turn + 1);
        return turn;
      },
      heard: (line) => {
        this.commands.push(line);
        this.#notice();
      },
      taken: (message) => {
        this.messages.push(message);
        this.#notice();
      },
    }).run();
    this.#notice();
  }

  #notice(): void {
    const changed = this.#changed;
    this.#changed = () => undefined;
    changed();
  }
}

/** What a connection needs of its sink. */
interface SinkFixture {
  readonly script: () => SinkScript;
  readonly nextTurn: (step: SinkStep) => number;
  readonly heard: (line: string) => void;
  readonly taken: (message: SunkMessage) => void;
}

const usualCapabilities = ['PIPELINING', 'SIZE 52428800', '8BITMIME', 'SMTPUTF8', 'DSN', 'ENHANCEDSTATUSCODES'];
const nothing = Buffer.alloc(0);
const endOfData = Buffer.from('\r\n.\r\n');

/** One connection of a sink, gone through as its script says. */
class SinkConnection {
  readonly #number: number;
  readonly #fixture: SinkFixture;
  #socket: Socket;
  #received: Buffer = nothing;
  #over = false;
  #wake: () => void = () => undefined;
  #sender: string | undefined;
  #recipients: string[] = [];
  #envelope: string[] = [];
  #asked = 0;
  #user: string | undefined;

  constructor(socket: Socket, number: number, fixture: SinkFixture) {
    this.#socket = socket;
    this.#number = number;
    this.#fixture = fixture;
    this.#listen(socket);
  }

  get #script(): SinkScript {
    return this.#fixture.script();
  }

  async run(): Promise<void> {
    if (this.#script.tls?.implicit === true) this.#encrypt();
    await this.#answer('greeting', '', '220 sink.example ready');
    for (let line = await this.#line(); line !== undefined; line = await this.#line()) {
      this.#fixture.heard(line);
      await this.#obey(line);
    }
  }

  async #obey(line: string): Promise<void> {
    const verb = line.split(' ', 1)[0]?.toUpperCase() ?? '';
    if (verb === 'EHLO' || verb === 'LHLO') return this.#hello(verb === 'EHLO' ? 'ehlo' : 'lhlo', line);
    if (verb === 'STARTTLS') return this.#startTls(line);
    if (verb === 'AUTH') return this.#authenticate(line);
    if (verb === 'MAIL') return this.#mail(line);
    if (verb === 'RCPT') return this.#rcpt(line);
    if (verb === 'DATA') return this.#data(line);
    if (verb === 'BDAT') return this.#bdat(line);
    if (verb === 'XCLIENT') return void (await this.#answer('xclient', line, '220 sink.example ready again'));
    if (verb === 'RSET') this.#forget();
    if (verb === 'HELO') return void (await this.#answer('helo', line, '250 sink.example'));
    if (verb === 'RSET' || verb === 'NOOP') {
      return void (await this.#answer(verb === 'RSET' ? 'rset' : 'noop', line, '250 2.0.0 Fine'));
    }
    if (verb === 'QUIT') {
      await this.#answer('quit', line, '221 2.0.0 Bye');
      this.#socket.end();
      this.#over = true;
      return undefined;
    }
    this.#write('500 5.5.1 What?\r\n');
    return undefined;
  }

  async #hello(step: 'ehlo' | 'lhlo', line: string): Promise<void> {
    const { capabilities = usualCapabilities, tls, auth } = this.#script;
    const offered = [...capabilities];
    if (tls !== undefined && !(this.#socket instanceof TLSSocket)) offered.push('STARTTLS');
    if (auth !== undefined && !capabilities.some((one) => one.startsWith('AUTH'))) offered.push('AUTH PLAIN LOGIN');
    const lines = ['sink.example', ...offered];
    const reply = lines.map((text, index) => `250${index === lines.length - 1 ? ' ' : '-'}${text}`).join('\n');
    await this.#answer(step, line, reply);
  }

  async #startTls(line: string): Promise<void> {
    const said = await this.#answer('starttls', line, '220 2.0.0 Go ahead');
    if (!said.startsWith('220')) return;
    this.#received = nothing;
    if (this.#script.tls !== undefined) return this.#encrypt();
    await this.#more();
    this.#received = nothing;
    this.#write('This is no TLS, and never was.\r\n');
  }

  #encrypt(): void {
    const { key, cert } = this.#script.tls ?? { key: '', cert: '' };
    this.#socket.removeAllListeners('data');
    this.#socket.removeAllListeners('end');
    this.#socket = new TLSSocket(this.#socket, { isServer: true, key, cert });
    this.#listen(this.#socket);
  }

  async #authenticate(line: string): Promise<void> {
    const { auth } = this.#script;
    const [, mechanism = '', initial] = line.split(' ');
    const decode = (text: string) => Buffer.from(text, 'base64').toString();
    let [username, password] = ['', ''];
    if (mechanism === 'PLAIN') [, username = '', password = ''] = decode(initial ?? '').split('\0');
    else {
      this.#write('334 VXNlcm5hbWU6\r\n');
      username = decode((await this.#line()) ?? '');
      this.#write('334 UGFzc3dvcmQ6\r\n');
      password = decode((await this.#line()) ?? '');
    }
    const right = auth?.username === username && auth.password === password;
    const said = await this.#answer('auth', line, right ? '235 2.7.0 Welcome' : '535 5.7.8 Wrong');
    if (said.startsWith('235')) this.#user = username;
  }

  async #mail(line: string): Promise<void> {
    const said = await this.#answer('mail', line, '250 2.1.0 Sender fine');
    if (!said.startsWith('2')) return;
    this.#forget();
    this.#sender = pathOf(line);
    this.#envelope = [line];
  }

  async #rcpt(line: string): Promise<void> {
    if (this.#sender === undefined) return this.#write('503 5.5.1 MAIL first\r\n');
    this.#envelope.push(line);
    const nth = this.#asked;
    this.#asked += 1;
    const said = await this.#answer('rcpt', line, '250 2.1.5 Recipient fine', nth);
    if (said.startsWith('2')) this.#recipients.push(pathOf(line));
  }

  async #data(line: string): Promise<void> {
    const usual = this.#recipients.length > 0 ? '354 Go ahead' : '503 5.5.1 RCPT first';
    const said = await this.#answer('data', line, usual);
    if (!said.startsWith('354')) return;
    if (this.#script.steps?.body !== undefined) {
      // In the middle of the text, not in front of it.
      if (this.#received.length === 0) await this.#more();
      await this.#answer('body', line, '');
    }
    const text = await this.#text();
    if (text !== undefined) await this.#take(text);
  }

  /** The last chunk; a rule for `bdat` speaks in its place, and what follows the line is read as commands. */
  async #bdat(line: string): Promise<void> {
    if (this.#script.steps?.bdat !== undefined && (await this.#answer('bdat', line, '')) !== '') return;
    const size = Number(line.split(' ')[1]);
    while (this.#received.length < size && !this.#over) await this.#more();
    const text = Buffer.from(this.#received.subarray(0, size));
    this.#received = this.#received.subarray(size);
    if (text.length < size) return;
    if (this.#recipients.length > 0) await this.#take(text);
    else this.#write('503 5.5.1 RCPT first\r\n');
  }

  async #take(text: Buffer): Promise<void> {
    const { protocol, forgetText } = this.#script;
    this.#fixture.taken({
      sender: this.#sender ?? '',
      recipients: this.#recipients,
      envelope: this.#envelope,
      text: forgetText === true ? nothing : text,
      encrypted: this.#socket instanceof TLSSocket,
      user: this.#user,
      connection: this.#number,
    });
    const recipients = this.#recipients;
    this.#forget();
    if (protocol !== 'lmtp') return void (await this.#answer('dot', '.', '250 2.0.0 Sunk'));
    for (const [nth, recipient] of recipients.entries())
      await this.#answer('dot', '.', `250 2.0.0 <${recipient}>`, nth);
  }

  #forget(): void {
    this.#sender = undefined;
    this.#recipients = [];
    this.#envelope = [];
    this.#asked = 0;
  }

  /** Behaves as the script says, else says the usual; resolves with what was said. Never, when it stalls. */
  async #answer(step: SinkStep, line: string, usual: string, nth = this.#fixture.nextTurn(step)): Promise<string> {
    const rule = this.#script.steps?.[step];
    const given =
      typeof rule === 'function'
        ? rule({ line, nth, connection: this.#number })
        : isList(rule)
          ? rule[Math.min(nth, rule.length - 1)]
          : rule;
    return this.#behave(given ?? usual);
  }

  async #behave(behaviour: Behaviour): Promise<string> {
    if (typeof behaviour === 'string') {
      if (behaviour !== '') this.#write(`${behaviour.replaceAll('\n', '\r\n')}\r\n`);
      return behaviour;
    }
    if ('raw' in behaviour) {
      this.#write(behaviour.raw);
      return String(behaviour.raw);
    }
    if ('after' in behaviour) {
      await behaviour.after;
      return this.#behave(behaviour.say);
    }
    if ('silent' in behaviour) return '';
    if ('drip' in behaviour) await this.#drip(behaviour.drip, behaviour.everyMs);
    else if ('close' in behaviour) this.#socket.end(behaviour.close === '' ? '' : `${behaviour.close}\r\n`);
    else if ('reset' in behaviour) this.#socket.resetAndDestroy();
    else this.#socket.pause();
    this.#over = true;
    return new Promise<string>(() => undefined);
  }

  async #drip(text: string, everyMs: number): Promise<void> {
    for (let at = 0; !this.#socket.destroyed && this.#socket.writable; at = (at + 1) % text.length) {
      this.#socket.write(text.charAt(at));
      await pause(everyMs);
    }
  }

  #write(bytes: string | Buffer): void {
    if (this.#socket.writable) this.#socket.write(bytes);
  }

  async #line(): Promise<string | undefined> {
    for (;;) {
      const end = this.#received.indexOf('\r\n');
      if (end >= 0) {
        const line = this.#received.toString('utf8', 0, end);
        this.#received = this.#received.subarray(end + 2);
        return line;
      }
      if (this.#over) return undefined;
      await this.#more();
    }
  }

  async #text(): Promise<Buffer | undefined> {
    // A dot may be the first line: the CRLF in front of it was the end of DATA.
    this.#received = Buffer.concat([Buffer.from('\r\n'), this.#received]);
    let searched = 0;
    for (;;) {
      const end = this.#received.indexOf(endOfData, searched);
      if (end >= 0) {
        const text = this.#received.toString('latin1', 2, end + 2).replace(/(^|\r\n)\./g, '$1');
        this.#received = this.#received.subarray(end + endOfData.length);
        return Buffer.from(text, 'latin1');
      }
      if (this.#over) return undefined;
      searched = Math.max(0, this.#received.length - endOfData.length);
      await this.#more();
    }
  }

  #more(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve;
    });
  }

  #listen(socket: Socket): void {
    socket.on('data', (chunk: Buffer) => {
      this.#received = this.#received.length === 0 ? chunk : Buffer.concat([this.#received, chunk]);
      this.#wake();
    });
    const over = (): void => {
      this.#over = true;
      this.#wake();
    };
    socket.on('error', over).on('end', over).on('close', over);
  }
}

function isList(rule: unknown): rule is readonly (Behaviour | undefined)[] {
  return Array.isArray(rule);
}

function pathOf(line: string): string {
  return /<(.*)>/.exec(line)?.[1] ?? '';
}
