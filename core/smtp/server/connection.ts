import type { Socket } from 'node:net';
import { performance } from 'node:perf_hooks';
import type { Chunk } from '../protocol/command.js';
import { bytesOf, replies, type Reply, type WireReply } from '../protocol/replies.js';
import { clientPath, turnMs } from '../../turns.js';
import { LineReader, Wire } from './wire.js';
import { type NextAction, type SessionReply, type Peer, SessionState } from './session-state.js';
import { Session } from './session.js';
import { DataPhase, maxBytesOf } from './data.js';
import type { SmtpLimits } from './limits.js';
import type { ListenerContext } from './listener-context.js';

/**
 * One client connection: reads commands, sends replies. Every command gets exactly one reply, in order, and no command
 * is read while another is being decided.
 */
export class Connection {
  readonly #context: ListenerContext;
  readonly #onClose: (connection: Connection) => void;
  readonly #session: Session;
  readonly #wire: Wire;
  readonly #lines: LineReader;
  readonly #startedMs: number;
  #activity: Activity = 'greeting';
  /** Start of the current activity, monotonic, in milliseconds. */
  #sinceMs: number;
  /** Between chunks too. */
  #data: DataPhase | undefined;
  #chunk: OpenChunk | undefined;
  #stopping = false;
  #errors = 0;
  #commands = 0;
  /** Since the last message, and without those for its text. */
  #idleCommands = 0;
  /** Monotonic, in milliseconds. */
  #turnEndsAt = 0;
  #answers = 0;
  #messages = 0;

  constructor(context: ListenerContext, socket: Socket, peer: Peer, onClose: (connection: Connection) => void) {
    this.#context = context;
    this.#onClose = onClose;
    this.#session = new Session(context, new SessionState(peer, context.clock));
    this.#startedMs = context.clock.monotonic();
    this.#sinceMs = this.#startedMs;
    this.#wire = new Wire(socket, clientPath(peer.remote.address), {
      turn: () => this.#takeTurn(),
      received: (bytes) => context.meter.received(bytes),
      failed: (error) => context.log.debug({ session: this.#session.state.id, err: error }, 'connection failed'),
      closed: () => this.#closed(),
    });
    this.#lines = new LineReader(this.#wire.input);
  }

  /** `refusal` replaces the greeting. */
  start(refusal?: WireReply): void {
    const { id, listener, remote } = this.#session.state;
    this.#context.meter.opened();
    if (this.#wire.tls !== undefined) this.#session.secure(this.#wire.tls);
    const facts = { session: id, listener: listener.name, remote: remote.address, port: remote.port };
    this.#context.log.info(facts, 'connected');
    if (refusal !== undefined) this.#refuseSession(refusal);
    else this.#settle(this.#session.connect(), (greeting) => this.#greet(greeting));
  }

  /** Ends an idle session at once; a running transaction may finish. */
  shutdown(): void {
    this.#stopping = true;
    if (this.#activity === 'greeting') this.#closeWith(replies.shutdown);
    else if (this.#activity === 'commands') this.#endIfIdle();
    else if (this.#activity === 'handshake') this.#wire.destroy();
  }

  /** Ends the session now. A message in delivery gets no reply: it may be stored already. */
  cut(): void {
    if (this.#activity !== 'delivering') this.#closeWith(replies.shutdown);
    this.#wire.destroy();
  }

  /** Called periodically to enforce the deadlines of the session. */
  check(nowMs: number): void {
    const waitsForText = this.#activity === 'data' || this.#activity === 'commands';
    if (waitsForText && this.#data?.tooSlow(nowMs) === true) {
      this.#closeWith(replies.tooSlow);
      return;
    }
    if ((nowMs - this.#sinceMs) / 1000 <= secondsFor(this.#activity, this.#context.settings().limits)) return;
    if (this.#activity === 'commands' || this.#activity === 'discarding') this.#closeWith(replies.timeout);
    else if (this.#activity === 'handshake' || this.#activity === 'closing') this.#wire.destroy();
    else this.#overdue();
  }

  /** A decision timed out. A delivery is asked to give up; otherwise its result is unknown, and the session ends. */
  #overdue(): void {
    if (this.#data?.demandReply() === true) {
      this.#become(this.#activity);
      return;
    }
    const facts = { session: this.#session.state.id, activity: this.#activity };
    this.#context.log.error(facts, 'a decision took too long and is not waited for');
    this.#closeWith(replies.slow);
  }

  #become(activity: Activity): void {
    this.#activity = activity;
    this.#sinceMs = this.#context.clock.monotonic();
  }

  #takeTurn(): void {
    this.#turnEndsAt = performance.now() + turnMs;
    this.#pump();
  }

  /**
   * Processes the available input as long as the turn lasts, however often a decision interrupts it, then sends all
   * replies at once.
   */
  #pump(): void {
    while (this.#hasTime() && !this.#wire.blocked && this.#processNext());
    this.#wire.flush();
    const waits = this.#activity === 'commands' || this.#activity === 'data' || this.#activity === 'discarding';
    if (waits && this.#wire.clientEnded && !this.#wire.blocked && !this.#wire.isInLine) this.#close();
  }

  #hasTime(): boolean {
    if (performance.now() < this.#turnEndsAt) return true;
    if (this.#wire.input.length > 0 || this.#chunk !== undefined) this.#wire.askForTurn();
    return false;
  }

  #processNext(): boolean {
    if (this.#activity === 'commands') return this.#executeLine();
    if (this.#activity !== 'data' && this.#activity !== 'discarding') return false;
    return this.#chunk === undefined ? this.#readData() : this.#readChunk(this.#chunk);
  }

  #greet(greeting: Reply): void {
    this.#session.takeNextAction();
    if (greeting.code !== 220) {
      this.#refuseSession(greeting);
      return;
    }
    this.#wire.listenFirst(this.#context.listener.greetDelayMs, () => {
      if (this.#activity !== 'greeting') return;
      // A client that speaks before the greeting does not wait for replies either.
      if (this.#wire.input.length > 0) this.#refuseSession(replies.tooEarly);
      else {
        this.#become('commands');
        this.#send(greeting);
        this.#takeTurn();
      }
    });
  }

  #refuseSession(refusal: Reply): void {
    const { id, remote } = this.#session.state;
    const facts = { session: id, remote: remote.address, code: refusal.code, reason: refusal.lines.join(' ') };
    this.#context.meter.refused();
    this.#context.log.info(facts, 'refused');
    this.#closeWith(refusal);
  }

  #executeLine(): boolean {
    const line = this.#lines.next();
    if (line === undefined) return false;
    if (line.form === 'goodbye') return this.#closeWith(line.reply);
    this.#commands += 1;
    if (this.#isIdling()) return this.#closeWith(replies.tooManyCommands);
    if (line.form === 'refused') this.#replyTo(this.#session.refuseLine(line.reply));
    else this.#settle(this.#session.execute(line.bytes), (reply) => this.#replyTo(reply));
    return true;
  }

  /** Counts a command. True when there were too many without a message, be it for recipients that were reset. */
  #isIdling(): boolean {
    const { recipients, commandsWithoutMessage } = this.#context.settings().limits;
    if (this.#data === undefined) this.#idleCommands += 1;
    return this.#idleCommands > recipients + commandsWithoutMessage;
  }

  /** Passes a reply on, synchronously when possible. */
  #settle(answer: SessionReply, then: (reply: Reply) => void): void {
    if (answer instanceof Promise) void this.#await(answer, then);
    else then(answer);
  }

  async #await(answer: Promise<Reply>, then: (reply: Reply) => void): Promise<void> {
    const waiting = this.#activity === 'greeting' ? 'greeting' : 'deciding';
    this.#become(waiting);
    // Earlier replies do not wait for a slow decision.
    this.#wire.flushSoon();
    const reply = await answer.catch((error: unknown) => {
      this.#context.log.error({ session: this.#session.state.id, err: error }, 'a command failed');
      return replies.fault;
    });
    if (this.#activity !== waiting) return;
    then(reply);
    this.#pump();
  }

  #replyTo(reply: Reply): void {
    const after = this.#session.takeNextAction();
    // RSET or EHLO between chunks.
    if (this.#data !== undefined && !this.#session.envelope.open) {
      this.#data.abort();
      this.#data = undefined;
    }
    if (after === 'data') this.#beginData(reply);
    else if (typeof after === 'object') this.#beginChunk(after, reply);
    else this.#replyWith([reply], after);
  }

  /**
   * Sends the last reply of a command, or the replies to a message, and counts errors. Beyond the limit of errors a
   * command gets 421 in place of its reply; replies to a message are sent before it, since recipients with a 250 have
   * it.
   */
  #replyWith(answers: readonly Reply[], after?: Exclude<NextAction, Chunk>): void {
    this.#answers += 1;
    if (answers.some(({ code }) => code >= 400)) {
      this.#errors += 1;
      if (this.#errors > this.#context.settings().limits.errors) {
        if (this.#activity === 'delivering') for (const answer of answers) this.#send(answer);
        this.#closeWith(replies.tooManyErrors);
        return;
      }
    }
    for (const answer of answers) this.#send(answer);
    if (after === 'tls') this.#upgrade();
    else if (after === 'hang-up') this.#close(true);
    else if (after === 'close' || answers.some(({ code }) => code === 421)) this.#close();
    else {
      this.#become('commands');
      if (this.#stopping) this.#endIfIdle();
    }
  }

  #endIfIdle(): void {
    if (!this.#session.envelope.open) this.#closeWith(replies.shutdown);
  }

  #send(reply: Reply): void {
    this.#context.meter.replied(reply.code);
    this.#wire.say(bytesOf(reply));
  }

  #beginData(start: Reply): void {
    const { transaction } = this.#session.envelope;
    if (transaction === undefined || this.#refusesEarlyData()) return;
    const data = new DataPhase(this.#context, transaction);
    this.#data = data;
    this.#settle(data.open(start), (reply) => {
      if (reply.code !== start.code) this.#endData([reply]);
      else if (!this.#refusesEarlyData()) {
        this.#send(reply);
        this.#become('data');
      }
    });
  }

  /** Text that came together with DATA cannot be told from commands: smuggling, or a client that ignores replies. */
  #refusesEarlyData(): boolean {
    if (this.#wire.input.length === 0 || this.#context.settings().earlyData === 'accept') return false;
    this.#replyWith([replies.earlyData], 'close');
    return true;
  }

  #readData(): boolean {
    const data = this.#data;
    if (data === undefined || this.#wire.input.length === 0) return false;
    const stalled = data.write(this.#wire.input.takeAll());
    if (data.ended) {
      this.#wire.input.add(data.rest);
      void this.#finishData(data);
    } else if (data.overrun()) this.#closeWith(replies.messageTooLarge);
    else if (stalled !== undefined) void this.#waitForDisk(stalled);
    return false;
  }

  /** `answer` is the reply to the chunk, unless its text is refused. */
  #beginChunk({ octets, isLast }: Chunk, answer: Reply): void {
    const { transaction } = this.#session.envelope;
    this.#chunk = { missing: octets, isLast, answer };
    if (answer.code >= 300 || transaction === undefined) {
      if (octets > maxBytesOf(this.#context.settings().limits)) this.#closeWith(answer);
      else this.#become('discarding');
      return;
    }
    const isFirst = this.#data === undefined;
    const data = this.#data ?? new DataPhase(this.#context, transaction);
    this.#data = data;
    if (data.overrun(octets)) this.#closeWith(replies.messageTooLarge);
    else if (isFirst) this.#settle(data.open(answer), () => this.#become('data'));
    else this.#become('data');
  }

  #readChunk(chunk: OpenChunk): boolean {
    const bytes = this.#wire.input.take(chunk.missing);
    chunk.missing -= bytes.length;
    const stalled = this.#data?.write(bytes);
    if (stalled !== undefined) void this.#waitForDisk(stalled);
    else if (chunk.missing === 0) this.#endChunk(chunk);
    return chunk.missing === 0;
  }

  #endChunk({ isLast, answer }: OpenChunk): void {
    const data = this.#data;
    this.#chunk = undefined;
    if (data === undefined) this.#replyWith([answer]);
    else if (!isLast) this.#replyWith([data.endChunk() ?? answer]);
    else {
      data.endText();
      void this.#finishData(data);
    }
  }

  async #waitForDisk(stalled: Promise<void>): Promise<void> {
    this.#become('stalled');
    await stalled;
    if (this.#activity !== 'stalled') return;
    this.#become('data');
    this.#pump();
  }

  async #finishData(data: DataPhase): Promise<void> {
    this.#become('delivering');
    const answers = await data.finish();
    this.#session.envelope.reset();
    if (this.#activity !== 'delivering') return;
    if (answers.some(({ code }) => code < 300)) {
      this.#messages += 1;
      this.#idleCommands = 0;
    }
    this.#endData(answers);
    this.#pump();
  }

  #endData(answers: readonly Reply[]): void {
    this.#data = undefined;
    this.#session.envelope.reset();
    this.#replyWith(answers);
  }

  #upgrade(): void {
    this.#become('handshake');
    this.#wire.upgrade(this.#context.tlsOptions() ?? {}, () => {
      if (this.#activity !== 'handshake' || this.#wire.tls === undefined) return;
      this.#session.secure(this.#wire.tls);
      this.#become('commands');
    });
  }

  /** Always false: no more input is processed. */
  #closeWith(reply: Reply): false {
    if (this.#activity === 'closing' || this.#activity === 'closed') return false;
    this.#send(reply);
    this.#close();
    return false;
  }

  /** Sends pending replies and ends our side; the client has a moment to read them. After QUIT it sends no more. */
  #close(hasQuit = false): void {
    this.#data?.abort();
    this.#become('closing');
    if (hasQuit) this.#wire.hangUp();
    else this.#wire.finish();
  }

  #closed(): void {
    this.#data?.abort();
    // Otherwise it continues until the message is delivered.
    if (this.#activity !== 'delivering') this.#session.envelope.end();
    this.#become('closed');
    const { state } = this.#session;
    const ms = Math.round(this.#context.clock.monotonic() - this.#startedMs);
    const counts = { ms, messages: this.#messages, commands: this.#commands, answers: this.#answers };
    this.#context.meter.closed();
    this.#context.log.info({ session: state.id, remote: state.remote.address, ...counts }, 'closed');
    this.#context.pipeline.snapshot().emit('closed', { session: state, ms, messages: this.#messages });
    this.#onClose(this);
  }
}

/** A chunk of BDAT that is being read. */
interface OpenChunk {
  missing: number;
  readonly isLast: boolean;
  readonly answer: Reply;
}

/**
 * Activity of a connection. `deciding`, `stalled` and `delivering` wait for this server, the others for the client;
 * `discarding` reads a chunk that belongs to no message.
 */
type Activity =
  | 'greeting'
  | 'commands'
  | 'deciding'
  | 'data'
  | 'discarding'
  | 'stalled'
  | 'delivering'
  | 'handshake'
  | 'closing'
  | 'closed';

/** Time for the client to read the last reply. */
const lingerSeconds = 5;

type Allowance = (limits: SmtpLimits) => number;

const allowances: Readonly<Record<Activity, Allowance>> = {
  greeting: (limits) => limits.handlerSeconds,
  deciding: (limits) => limits.handlerSeconds,
  stalled: (limits) => limits.deliverySeconds,
  delivering: (limits) => limits.deliverySeconds,
  commands: (limits) => limits.commandSeconds,
  discarding: (limits) => limits.commandSeconds,
  handshake: (limits) => limits.tlsSeconds,
  closing: () => lingerSeconds,
  // A message has a minimum rate instead.
  data: () => Infinity,
  closed: () => Infinity,
};

/** Maximum duration of an activity, in seconds. */
const secondsFor = (activity: Activity, limits: SmtpLimits): number => allowances[activity](limits);
