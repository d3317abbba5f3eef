import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { After, Answer } from './answer.js';
import { DataPhase } from './data-phase.js';
import { InputBuffer } from './input-buffer.js';
import type { ListenerGround } from './listener-ground.js';
import { replies } from './replies.js';
import type { Reply } from './reply.js';
import { ReplyWriter } from './reply-writer.js';
import { Session } from './session.js';
import { bytesOf, type WireReply } from './wire-reply.js';
import { SessionState, type Peer } from './session-state.js';

/** Longest command line without its CRLF; longer ones are read up to `endlessLine` and refused. */
const longestLine = 4096;
const endlessLine = 16 * 1024;
/** So much may arrive while a command is being decided before the socket is paused. */
const mostAhead = 64 * 1024;
const lingerMs = 5000;
/** So much is read and thrown away from a client that was told goodbye. */
const mostIgnored = 32 * 1024 * 1024;

type Doing =
  'greeting' | 'commands' | 'deciding' | 'data' | 'stalled' | 'delivering' | 'handshake' | 'closing' | 'closed';

/**
 * One client: bytes to commands, answers to bytes. Every command gets exactly one answer, in order, and no command is
 * looked at while another is being decided.
 */
export class Connection {
  readonly #ground: ListenerGround;
  readonly #onClose: (connection: Connection) => void;
  readonly #session: Session;
  readonly #input = new InputBuffer();
  readonly #writer = new ReplyWriter();
  #socket: Socket;
  #doing: Doing = 'greeting';
  #data: DataPhase | undefined;
  /** Monotonic time, in milliseconds, when what is being done began. */
  #sinceMs: number;
  readonly #startedMs: number;
  #clientEnded = false;
  #stopping = false;
  #fresh = true;
  #paused = false;
  #errors = 0;
  #commands = 0;
  #answers = 0;
  #messages = 0;
  #ignored = 0;
  #greetTimer: NodeJS.Timeout | undefined;

  constructor(ground: ListenerGround, socket: Socket, peer: Peer, onClose: (connection: Connection) => void) {
    this.#ground = ground;
    this.#socket = socket;
    this.#onClose = onClose;
    this.#session = new Session(ground, new SessionState(peer, ground.clock));
    this.#startedMs = ground.clock.monotonic();
    this.#sinceMs = this.#startedMs;
  }

  get address(): string {
    return this.#session.state.remote.address;
  }

  get #closed(): boolean {
    return this.#doing === 'closed';
  }

  /** `refusal` is said in place of a greeting. */
  start(refusal?: WireReply): void {
    const socket = this.#socket;
    const { meter, log } = this.#ground;
    const { state } = this.#session;
    meter.opened();
    if (socket instanceof TLSSocket) this.#session.secure(tlsOf(socket));
    log.info(
      { session: state.id, listener: state.listener.name, remote: state.remote.address, port: state.remote.port },
      'connected',
    );
    socket.setNoDelay(true);
    this.#attach(socket);
    if (refusal !== undefined) this.#refuseSession(refusal);
    else this.#settle(this.#session.connect(), (greeting) => this.#greet(greeting));
  }

  /** Ends an idle session at once; a running transaction may come to its end. */
  shutdown(): void {
    this.#stopping = true;
    if (this.#doing === 'greeting' || (this.#doing === 'commands' && !this.#session.envelope.open)) {
      this.#closeWith(replies.shutdown);
    } else if (this.#doing === 'handshake') {
      this.#socket.destroy();
    }
  }

  /** Ends the session now. A message that is being delivered gets no answer: it may be stored already. */
  cut(): void {
    if (this.#doing !== 'delivering' && this.#doing !== 'closing' && !this.#closed) this.#say(replies.shutdown);
    this.#socket.destroy();
  }

  /** Called now and then: holds the session to its deadlines. */
  check(nowMs: number): void {
    const { limits } = this.#ground.settings();
    const seconds = (nowMs - this.#sinceMs) / 1000;
    switch (this.#doing) {
      case 'greeting':
      case 'deciding':
        if (seconds > limits.handlerSeconds) this.#overdue();
        break;
      case 'stalled':
      case 'delivering':
        if (seconds > limits.deliverySeconds) this.#overdue();
        break;
      case 'commands':
        if (seconds > limits.commandSeconds) this.#closeWith(replies.timeout);
        break;
      case 'data':
        if (this.#data?.tooSlow(nowMs) === true) this.#closeWith(replies.tooSlow);
        break;
      case 'handshake':
        if (seconds > limits.tlsSeconds) this.#socket.destroy();
        break;
      case 'closing':
        if (seconds * 1000 > lingerMs) this.#socket.destroy();
        break;
      case 'closed':
        break;
    }
  }

  #attach(socket: Socket): void {
    socket.on('data', this.#onData);
    socket.on('end', this.#onEnd);
    socket.on('drain', this.#onDrain);
    socket.on('error', this.#onError);
    socket.on('close', this.#onSocketClose);
  }

  #detach(socket: Socket): void {
    socket.off('data', this.#onData);
    socket.off('end', this.#onEnd);
    socket.off('drain', this.#onDrain);
    socket.off('close', this.#onSocketClose);
  }

  readonly #onData = (chunk: Buffer): void => {
    this.#ground.meter.received(chunk.length);
    if (this.#doing === 'closing') {
      this.#ignored += chunk.length;
      if (this.#ignored > mostIgnored) this.#socket.destroy();
      return;
    }
    this.#input.add(chunk);
    this.#pump();
  };

  readonly #onEnd = (): void => {
    this.#clientEnded = true;
    this.#pump();
  };

  readonly #onDrain = (): void => {
    this.#writer.drained();
    this.#pump();
  };

  readonly #onError = (error: Error): void => {
    this.#ground.log.debug({ session: this.#session.state.id, err: error }, 'connection failed');
  };

  readonly #onSocketClose = (): void => {
    if (this.#closed) return;
    clearTimeout(this.#greetTimer);
    this.#data?.abort();
    const { state } = this.#session;
    const ms = Math.round(this.#ground.clock.monotonic() - this.#startedMs);
    this.#become('closed');
    this.#input.clear();
    this.#ground.meter.closed();
    this.#ground.log.info(
      {
        session: state.id,
        remote: state.remote.address,
        ms,
        messages: this.#messages,
        commands: this.#commands,
        answers: this.#answers,
      },
      'closed',
    );
    this.#ground.pipeline.snapshot().emit('closed', { session: state, ms, messages: this.#messages });
    this.#onClose(this);
  };

  #become(doing: Doing): void {
    this.#doing = doing;
    this.#sinceMs = this.#ground.clock.monotonic();
  }

  /** Takes what has arrived as far as it goes, then writes all answers at once. */
  #pump(): void {
    while (!this.#writer.blocked && this.#takeNext());
    this.#writer.flush(this.#socket);
    if (this.#clientEnded && (this.#doing === 'commands' || this.#doing === 'data') && !this.#writer.blocked) {
      this.#close();
      return;
    }
    this.#steer();
  }

  #takeNext(): boolean {
    if (this.#doing === 'data') return this.#takeText();
    return this.#doing === 'commands' && this.#takeLine();
  }

  /** Stops reading when a client is far ahead of its answers. */
  #steer(): void {
    const ahead = this.#input.length > mostAhead || (this.#writer.blocked && this.#input.length > 0);
    const pause = ahead && this.#doing !== 'closing';
    if (pause === this.#paused) return;
    this.#paused = pause;
    if (pause) this.#socket.pause();
    else this.#socket.resume();
  }

  #greet(greeting: Reply): void {
    this.#session.takeAfter();
    if (greeting.code !== 220) {
      this.#refuseSession(greeting);
      return;
    }
    const speak = (): void => {
      if (this.#doing !== 'greeting') return;
      // Whoever speaks before the greeting does not listen to answers either.
      if (this.#input.length > 0) this.#refuseSession(replies.tooEarly);
      else {
        this.#become('commands');
        this.#say(greeting);
        this.#pump();
      }
    };
    const { greetDelayMs } = this.#ground.listener;
    // One turn of the event loop: bytes that came with the connection are seen.
    if (greetDelayMs === 0) setImmediate(speak);
    else this.#greetTimer = setTimeout(speak, greetDelayMs);
  }

  #refuseSession(refusal: Reply): void {
    const { state } = this.#session;
    this.#ground.meter.refused();
    this.#ground.log.info(
      { session: state.id, remote: state.remote.address, code: refusal.code, reason: refusal.lines.join(' ') },
      'refused',
    );
    this.#closeWith(refusal);
  }

  #takeLine(): boolean {
    const { first } = this.#input;
    if (first === undefined) return false;
    // A TLS hello or other binary: no line end need ever come.
    if (this.#fresh && (first > 0x7e || (first < 0x20 && first !== 13 && first !== 10))) {
      this.#closeWith(replies.notSmtp);
      return false;
    }
    const line = this.#input.takeLine();
    const length = line?.bytes.length ?? this.#input.length;
    if (length > endlessLine) {
      this.#closeWith(replies.endlessLine);
      return false;
    }
    if (line === undefined) return false;
    this.#fresh = false;
    this.#commands += 1;
    if (length > longestLine) this.#answer(this.#session.refuseLine(replies.tooLong));
    else if (!line.crlf) this.#answer(this.#session.refuseLine(replies.bareLineEnding));
    else this.#settle(this.#session.execute(line.bytes), (reply) => this.#answer(reply));
    return this.#doing === 'commands' || this.#doing === 'data';
  }

  /** Hands an answer on, at once when it is there. */
  #settle(answer: Answer, then: (reply: Reply) => void): void {
    if (!(answer instanceof Promise)) {
      then(answer);
      return;
    }
    const greeting = this.#doing === 'greeting';
    if (!greeting) this.#become('deciding');
    this.#flushSoon();
    const late = (reply: Reply): void => {
      if (this.#doing !== (greeting ? 'greeting' : 'deciding')) return;
      if (!greeting) this.#become('commands');
      then(reply);
      this.#pump();
    };
    answer.then(late, (error: unknown) => {
      this.#ground.log.error({ session: this.#session.state.id, err: error }, 'a command failed');
      late(replies.fault);
    });
  }

  /** Earlier answers do not wait for a decision that takes its time; one that comes in this turn joins them. */
  #flushSoon(): void {
    if (!this.#writer.empty) setImmediate(() => this.#writer.flush(this.#socket));
  }

  #answer(reply: Reply): void {
    const after = this.#session.takeAfter();
    if (after === 'data') {
      this.#beginData(reply);
      return;
    }
    this.#answerWith([reply], after);
  }

  /** The one place where a command is answered: with one reply, or with LMTP's replies to a message. */
  #answerWith(answers: readonly Reply[], after?: After): void {
    this.#answers += 1;
    const failed = answers.some(({ code }) => code >= 400);
    if (failed) this.#errors += 1;
    if (failed && this.#errors > this.#ground.settings().limits.errors) {
      this.#closeWith(replies.tooManyErrors);
      return;
    }
    for (const answer of answers) this.#say(answer);
    if (after === 'tls') this.#upgrade();
    else if (after === 'close' || answers.some(({ code }) => code === 421)) this.#close();
    else {
      this.#become('commands');
      if (this.#stopping && !this.#session.envelope.open) this.#closeWith(replies.shutdown);
    }
  }

  #say(reply: Reply): void {
    this.#ground.meter.replied(reply.code);
    this.#writer.add(bytesOf(reply));
  }

  #beginData(start: Reply): void {
    const { transaction } = this.#session.envelope;
    if (transaction === undefined) {
      this.#answerWith([replies.fault]);
      return;
    }
    if (this.#refusesEarlyData()) return;
    const data = new DataPhase(this.#ground, transaction);
    this.#data = data;
    this.#settle(
      data.open().then((refusal) => refusal ?? start),
      (reply) => {
        if (reply.code !== 354) {
          this.#endData();
          this.#answerWith([reply]);
        } else if (!this.#refusesEarlyData()) {
          this.#say(reply);
          this.#become('data');
        }
      },
    );
  }

  /** Text that came with DATA cannot be told from commands: somebody smuggles, or speaks without listening. */
  #refusesEarlyData(): boolean {
    if (this.#input.length === 0 || this.#ground.settings().earlyData === 'accept') return false;
    this.#answerWith([replies.earlyData], 'close');
    return true;
  }

  #takeText(): boolean {
    const data = this.#data;
    if (data === undefined || this.#input.length === 0) return false;
    const stalled = data.write(this.#input.takeAll());
    if (data.ended) {
      this.#input.add(data.rest);
      this.#finishData(data);
      return false;
    }
    if (data.overrun) {
      this.#closeWith(replies.messageTooLarge);
      return false;
    }
    if (stalled === undefined) return false;
    this.#waitForDisk(stalled);
    return false;
  }

  #waitForDisk(stalled: Promise<void>): void {
    this.#become('stalled');
    void stalled.then(() => {
      if (this.#doing !== 'stalled') return;
      this.#become('data');
      this.#pump();
    });
  }

  #finishData(data: DataPhase): void {
    this.#become('delivering');
    void data.finish().then((answers) => {
      this.#endData();
      if (this.#doing !== 'delivering') return;
      if (answers.some(({ code }) => code < 300)) this.#messages += 1;
      this.#answerWith(answers);
      this.#pump();
    });
  }

  #endData(): void {
    this.#data = undefined;
    this.#session.envelope.reset();
  }

  #upgrade(): void {
    const plain = this.#socket;
    const options = this.#ground.tlsOptions();
    this.#writer.flush(plain);
    // RFC 3207 §5: what came in the clear behind STARTTLS is not a command of the TLS session.
    this.#input.clear();
    this.#detach(plain);
    this.#become('handshake');
    const secure = new TLSSocket(plain, options);
    this.#socket = secure;
    secure.once('_tlsError', this.#onError);
    secure.on('error', this.#onError);
    secure.on('close', this.#onSocketClose);
    secure.once('secure', () => {
      secure.off('error', this.#onError);
      secure.off('close', this.#onSocketClose);
      if (this.#doing !== 'handshake') return;
      this.#session.secure(tlsOf(secure));
      this.#attach(secure);
      this.#become('commands');
    });
  }

  /** A decision did not come. Nobody knows what it will be, so the session ends. */
  #overdue(): void {
    this.#ground.log.error(
      { session: this.#session.state.id, doing: this.#doing },
      'a decision took too long and is not waited for',
    );
    this.#closeWith(replies.slow);
  }

  #closeWith(reply: Reply): void {
    this.#say(reply);
    this.#close();
  }

  /** Says what is still to be said and ends our side; the client has a moment to read it. */
  #close(): void {
    if (this.#doing === 'closing' || this.#closed) return;
    clearTimeout(this.#greetTimer);
    this.#data?.abort();
    this.#become('closing');
    this.#input.clear();
    this.#writer.flush(this.#socket);
    this.#socket.end();
    if (this.#paused) {
      this.#paused = false;
      this.#socket.resume();
    }
  }
}

function tlsOf(socket: TLSSocket): { readonly protocol: string; readonly cipher: string } {
  return { protocol: socket.getProtocol() ?? 'TLS', cipher: socket.getCipher().name };
}
