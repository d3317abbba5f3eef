import { type SmtpCommand, hasChunk, hasControl, isHelloName, parseChunk, parseCommand } from '../protocol/command.js';
import { replies, type Reply, settledReply, type WireReply } from '../protocol/replies.js';
import { AuthCommand } from './auth.js';
import type { ListenerContext } from './listener-context.js';
import type { SessionState } from './session-state.js';
import { type NextAction, type SessionReply, whenDecided } from './session-state.js';
import { EnvelopeCommands } from './transaction.js';

type Handler = (session: Session, argument: string) => SessionReply;

const http = /^(?:GET|HEAD|POST|PUT|DELETE|PATCH|OPTIONS|TRACE|CONNECT|PRI)$/;

/** The order of commands and their replies (RFC 5321 §4.1.4), without I/O. */
export class Session {
  static readonly #handlers: ReadonlyMap<string, Handler> = new Map<string, Handler>([
    ['EHLO', (session, name) => session.#hello('EHLO', name)],
    ['HELO', (session, name) => session.#hello('HELO', name)],
    ['LHLO', (session, name) => session.#hello('LHLO', name)],
    ['MAIL', (session, argument) => session.#mail(argument)],
    ['RCPT', (session, argument) => session.envelope.recipient(argument)],
    ['DATA', (session, argument) => session.#data(argument)],
    ['RSET', (session, argument) => session.#plain(argument, () => session.#reset())],
    ['NOOP', () => replies.ok],
    ['VRFY', (_, argument) => (argument === '' ? replies.badArguments : replies.noVerify)],
    ['HELP', () => replies.help],
    ['QUIT', (session, argument) => session.#plain(argument, () => session.#quit())],
    ['STARTTLS', (session, argument) => session.#plain(argument, () => session.#startTls())],
    ['AUTH', (session, argument) => session.#auth(argument)],
    ['BDAT', (session, argument) => session.#chunk(argument)],
    ['EXPN', () => replies.notImplemented],
    ['ETRN', () => replies.notImplemented],
    ['TURN', () => replies.notImplemented],
    ['ATRN', () => replies.notImplemented],
    ['XCLIENT', () => replies.clientIdentity],
    ['XFORWARD', () => replies.clientIdentity],
  ]);

  readonly state: SessionState;
  readonly envelope: EnvelopeCommands;
  readonly #context: ListenerContext;
  readonly #signIn: AuthCommand;
  #after: NextAction | undefined;
  #greeted = false;

  constructor(context: ListenerContext, state: SessionState) {
    this.#context = context;
    this.state = state;
    this.envelope = new EnvelopeCommands(context, state);
    this.#signIn = new AuthCommand(context, state);
  }

  /** True while the next line belongs to an AUTH exchange. */
  get signingIn(): boolean {
    return this.#signIn.active;
  }

  /** The action after the last reply; read once. */
  takeNextAction(): NextAction | undefined {
    const after = this.#after;
    this.#after = undefined;
    return after;
  }

  /** Decides about the connection; returns the greeting, or its replacement. */
  connect(): SessionReply {
    const decision = this.#context.pipeline.snapshot().decide('connect', { session: this.state });
    return whenDecided(decision, (made) => {
      if (made.outcome === 'pass') {
        const protocol = this.#lmtp ? 'LMTP' : 'ESMTP';
        return settledReply(220, `${this.#context.hostname} ${protocol} Postern`);
      }
      this.#after = 'close';
      if (made.outcome === 'discard') return replies.fault;
      this.envelope.rejected('connect', made.reply);
      // RFC 5321 §4.3.2: a greeting is 220, 421 or 554.
      return { ...made.reply, code: made.reply.code < 500 ? 421 : 554 };
    });
  }

  /** Answers one command line without its CRLF. */
  execute(line: Buffer): SessionReply {
    if (this.#signIn.active) return this.#closing(this.#signIn.continue(line.toString('latin1')));
    const command = parseCommand(line);
    const first = !this.#greeted;
    this.#greeted = true;
    const handler = command && Session.#handlers.get(command.verb);
    if (handler === undefined && hasChunk(line)) return this.#closeWith(replies.badArguments);
    if (command === undefined) return first && !this.#knows(line) ? this.#notSmtp() : replies.badArguments;
    if (handler === undefined) return this.#unknown(command, first);
    return handler(this, command.argument);
  }

  /** A malformed line also ends an AUTH exchange. */
  refuseLine(refusal: WireReply): WireReply {
    this.#greeted = true;
    this.#signIn.cancel();
    return refusal;
  }

  /** RFC 3207 §4.2: discards everything from before TLS. */
  secure(tls: { readonly protocol: string; readonly cipher: string }): void {
    this.state.secure(tls);
    this.envelope.reset();
    this.#context.meter.secured();
  }

  get #lmtp(): boolean {
    return this.#context.listener.mode === 'lmtp';
  }

  #plain(argument: string, answer: () => SessionReply): SessionReply {
    return argument === '' ? answer() : replies.noArguments;
  }

  #closeWith(reply: WireReply): WireReply {
    this.#after = 'close';
    return reply;
  }

  #quit(): WireReply {
    this.#after = 'hang-up';
    return replies.bye;
  }

  #closing(answer: Promise<Reply>): Promise<Reply> {
    return answer.then((reply) => {
      if (reply.code === 421) this.#after = 'close';
      return reply;
    });
  }

  #knows(line: Buffer): boolean {
    return Session.#handlers.has(line.toString('latin1', 0, 9).split(' ', 1)[0]?.toUpperCase() ?? '');
  }

  /** A web browser, a TLS client or a misdirected script: none of its lines is executed. */
  #unknown(command: SmtpCommand, first: boolean): Reply {
    const strange = first && (hasControl(command.verb) || hasControl(command.argument));
    return strange || http.test(command.verb) ? this.#notSmtp() : replies.unknown;
  }

  #notSmtp(): WireReply {
    return this.#closeWith(replies.notSmtp);
  }

  #hello(verb: 'HELO' | 'EHLO' | 'LHLO', name: string): SessionReply {
    if ((verb === 'LHLO') !== this.#lmtp) return replies.unknown;
    if (!isHelloName(name)) return replies.badHello;
    const decision = this.#context.pipeline.snapshot().decide('ehlo', { session: this.state, verb, name });
    return whenDecided(decision, (made) => {
      if (made.outcome === 'discard') return replies.fault;
      if (made.outcome === 'refuse') return this.#refused('ehlo', made.reply);
      this.envelope.reset();
      this.state.hello = { verb, name };
      return verb === 'HELO' ? settledReply(250, this.#context.hostname) : this.#capabilities();
    });
  }

  #refused(stage: 'ehlo', reply: Reply): Reply {
    this.envelope.rejected(stage, reply);
    if (reply.code === 421) this.#after = 'close';
    return reply;
  }

  /** Offers only what is supported. */
  #capabilities(): Reply {
    const { limits } = this.#context.settings();
    return settledReply(
      250,
      this.#context.hostname,
      'PIPELINING',
      `SIZE ${limits.messageBytes}`,
      '8BITMIME',
      'SMTPUTF8',
      'CHUNKING',
      ...(this.envelope.takesDsn ? ['DSN'] : []),
      ...(this.#offersTls ? ['STARTTLS'] : []),
      ...(this.#signIn.offered ? ['AUTH PLAIN LOGIN'] : []),
      'ENHANCEDSTATUSCODES',
    );
  }

  get #offersTls(): boolean {
    return this.state.tls === undefined && this.#context.tlsOptions() !== undefined;
  }

  #mail(argument: string): SessionReply {
    if (this.state.hello === undefined) return replies.helloFirst;
    if (this.envelope.open) return replies.nestedMail;
    if (this.#signIn.required && this.state.user === undefined) {
      return this.#offersTls && !this.#signIn.offered ? replies.tlsFirst : replies.authFirst;
    }
    if (this.envelope.count >= this.#context.settings().limits.transactions) {
      return this.#closeWith(replies.tooManyTransactions);
    }
    const answer = this.envelope.begin(argument);
    return answer instanceof Promise ? this.#closing(answer) : answer;
  }

  #data(argument: string): SessionReply {
    if (argument !== '') return replies.noArguments;
    if (!this.envelope.open) return replies.mailFirst;
    if (this.envelope.transaction?.recipients.length === 0) return replies.recipientFirst;
    if (this.envelope.transaction?.isChunked === true) return replies.afterChunk;
    this.#after = 'data';
    return replies.startData;
  }

  /** RFC 3030 §2: the octets follow at once, so they are read whatever the reply is. */
  #chunk(argument: string): WireReply {
    const chunk = parseChunk(argument);
    // Nothing tells where the next command begins.
    if (chunk === undefined) return this.#closeWith(replies.badArguments);
    this.#after = chunk;
    const { transaction } = this.envelope;
    if (transaction === undefined) return replies.mailFirst;
    if (transaction.recipients.length === 0) return replies.recipientFirst;
    transaction.isChunked = true;
    return replies.ok;
  }

  #reset(): WireReply {
    this.envelope.reset();
    return replies.reset;
  }

  #startTls(): WireReply {
    if (this.state.tls !== undefined) return replies.tlsAlready;
    if (!this.#offersTls) return replies.notImplemented;
    if (this.envelope.open) return replies.notInTransaction;
    this.#after = 'tls';
    return replies.startTls;
  }

  #auth(argument: string): SessionReply {
    if (!this.#signIn.required) return replies.notImplemented;
    if (this.state.hello === undefined) return replies.helloFirst;
    if (this.envelope.open) return replies.notInTransaction;
    const answer = this.#signIn.begin(argument);
    return answer instanceof Promise ? this.#closing(answer) : answer;
  }
}
