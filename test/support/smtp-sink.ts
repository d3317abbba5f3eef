import { once } from 'node:events';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { atEnd, type Ending } from './ending.js';
import type { KeyPair } from './certificate.js';
import { SinkConnection } from './smtp-sink-connection.js';

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

/** `body` is the time between 354 and the dot; `dot` is asked once for SMTP and once for each accepted recipient for LMTP. */
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

export interface SunkMessage {
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
