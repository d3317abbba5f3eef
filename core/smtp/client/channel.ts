import type { Socket } from 'node:net';
import type { Clock } from '../../clock.js';
import { clientPath, turns, type Work } from '../../turns.js';
import { reply, type Reply } from '../protocol/replies.js';
import {
  type ClientFailure,
  type ClientStep,
  closedFailure,
  isClientFailure,
  localFailure,
  protocolFailure,
  refusal,
  timeoutFailure,
} from './failure.js';

/** Result of a step. A failure is a value, not a rejection, so that pipelined steps need no handler each. */
export type Answer = Reply | ClientFailure;

interface Awaited {
  readonly step: ClientStep;
  readonly ms: number;
  readonly payload: string;
  readonly saidAt: number;
  readonly settle: (answer: Answer) => void;
}

/**
 * A server closes the connection right after a 421. One that still sends the replies of other recipients gets this long
 * for each.
 */
const repliesAfter421Ms = 10_000;

/** With more input than this the next pass is not waited for. */
const maxUnreadBytes = 64 * 1024;

const ignore = (): void => undefined;
const nothing = Buffer.alloc(0);

/**
 * The connection to one server. Commands are sent, and each reply goes to the oldest command that waits for one. A
 * reply without a command breaks the connection and discards everything that came with it: a server that is out of step
 * would assign one message's reply to another.
 */
export class Channel {
  readonly #clock: Clock;
  readonly #transcript: Transcript | undefined;
  readonly #deadline: Deadline;
  readonly #reader = new ReplyReader();
  #socket: Socket;
  #detach: () => void;
  /** What has happened to the socket and waits for a pass over all connections, in order. */
  #unread: (Buffer | SocketEnd)[] = [];
  #unreadBytes = 0;
  #awaited: Awaited[] = [];
  /** Index of the oldest waiting command; those before it have their reply. */
  #first = 0;
  #step: ClientStep = 'greeting';
  #failure: ClientFailure | undefined;
  /** A 421 that answered one of several waiting commands; it answers the others too when no more replies come. */
  #goodbye: ClientFailure | undefined;
  #wake: () => void = ignore;
  #broken = (cause?: Error): ClientFailure => closedFailure(this.#step, cause);
  #failed: () => void = ignore;
  #heardAt = -Infinity;
  readonly #reading: Work;

  constructor(socket: Socket, clock: Clock, transcript: Transcript | undefined) {
    this.#clock = clock;
    this.#transcript = transcript;
    this.#deadline = new Deadline(
      clock,
      () => this.#readAll(),
      () => this.#fail(timeoutFailure(this.#step)),
    );
    this.#socket = socket;
    this.#reading = { client: clientPath(socket.remoteAddress ?? ''), run: () => this.#readNext() };
    this.#detach = this.#attach(socket);
  }

  get clock(): Clock {
    return this.#clock;
  }

  get failure(): ClientFailure | undefined {
    this.#readAll();
    return this.#failure;
  }

  /** The current step, for failures. */
  get step(): ClientStep {
    return this.#step;
  }

  attempt(ms: number): void {
    this.#deadline.attempt(ms);
  }

  /** Whether the server said something in that time, and the connection has not failed. */
  heardWithin(ms: number): boolean {
    this.#readAll();
    return this.#failure === undefined && this.#clock.monotonic() - this.#heardAt <= ms;
  }

  /** Sends one line and awaits its reply. The transcript shows `shown` in place of the line. */
  ask(step: ClientStep, line: string, ms: number, shown = line): Promise<Answer> {
    this.write(`${line}\r\n`);
    return this.expect(step, ms, shown);
  }

  /** Awaits the reply to something already written. Call it before any of the reply can have been read. */
  expect(step: ClientStep, ms: number, shown = ''): Promise<Answer> {
    this.#readAll();
    // Bytes that arrived before the command was sent do not answer it.
    if (this.#reader.incomplete && this.#awaited.length === this.#first) {
      this.#fail(this.#reader.incompleteGoodbye ? closedFailure(this.#step) : protocolFailure(this.#step, unasked));
    }
    const failure = this.#failure;
    if (failure !== undefined) return Promise.resolve(failure);
    const saidAt = this.#transcript === undefined ? 0 : this.#clock.monotonic();
    return new Promise((settle) => {
      this.#awaited.push({ step, ms, payload: shown, saidAt, settle });
      if (this.#awaited.length - this.#first === 1) this.#awaitFirst();
    });
  }

  write(bytes: Buffer | string): boolean {
    this.#readAll();
    return this.#failure === undefined && this.#socket.write(bytes);
  }

  /** Sets the current step, and its timeout, while no reply is awaited. */
  perform(step: ClientStep, ms: number): void {
    this.#step = step;
    this.#deadline.step(ms);
  }

  /** Resolves when the socket's buffer has drained, or the connection has failed. */
  drain(): Promise<void> {
    return this.#socket.writableNeedDrain ? this.#pause() : Promise.resolve();
  }

  /** Resolves when the system has all that was written, or the connection has failed. */
  flushed(): Promise<void> {
    if (this.#failure !== undefined || this.#socket.writableLength === 0) return Promise.resolve();
    const flushed = this.#pause();
    this.#socket.write(nothing, () => this.#wake());
    return flushed;
  }

  /** Resolves when the connection has failed. Only the latest caller is notified. */
  failed(): Promise<void> {
    if (this.#failure !== undefined) return Promise.resolve();
    return new Promise((resolve) => {
      this.#failed = resolve;
    });
  }

  /** Clears all deadlines while nothing is in progress. */
  rest(): void {
    this.#deadline.step(Infinity);
    this.#deadline.attempt(Infinity);
  }

  /**
   * Breaks the connection; waiting commands receive the failure. Only the first failure counts, and replies that have come
   * before it.
   */
  fail(failure: ClientFailure): void {
    this.#readAll();
    this.#fail(failure);
  }

  /** What follows is not read. */
  #fail(failure: ClientFailure): void {
    if (this.#failure !== undefined) return;
    if (this.#awaited.length === 0) this.#record({ step: this.#step, payload: '', ms: 0 }, failure);
    this.#end(this.#goodbye ?? failure);
  }

  /** Closes the connection deliberately. */
  close(): void {
    // That the server has ended it as well is no failure.
    this.#unread = this.#unread.filter((event) => Buffer.isBuffer(event));
    this.#readAll();
    if (this.#failure === undefined) this.#end(localFailure(this.#step, 'The connection was closed here'));
  }

  #end(failure: ClientFailure): void {
    this.#failure = failure;
    this.#deadline.cancel();
    this.#detach();
    this.#socket.destroy();
    const waiting = this.#awaited.slice(this.#first);
    this.#awaited = [];
    this.#first = 0;
    waiting.forEach((one, index) => this.#settle(one, failure, index > 0));
    this.#wake();
    this.#failed();
  }

  /**
   * Replaces the socket by one layered on top of it, for TLS. Resolves when that is ready, or the connection has
   * failed.
   *
   * @param make gets the present socket and a function to call when the new one is ready
   * @param broken makes the failure when the new socket does not become ready
   */
  async replace(
    make: (plain: Socket, ready: () => void) => Socket,
    broken: (cause?: Error) => ClientFailure,
  ): Promise<void> {
    this.#readAll();
    if (this.#failure !== undefined) return;
    const usual = this.#broken;
    const ready = this.#pause();
    this.#broken = broken;
    this.#detach();
    this.#socket = make(this.#socket, () => this.#wake());
    this.#detach = this.#attach(this.#socket);
    await ready;
    this.#broken = usual;
  }

  #pause(): Promise<void> {
    if (this.#failure !== undefined) return Promise.resolve();
    return new Promise((resolve) => {
      this.#wake = resolve;
    });
  }

  #attach(socket: Socket): () => void {
    const data = (chunk: Buffer): void => {
      this.#heardAt = this.#clock.monotonic();
      this.#unreadBytes += chunk.length;
      this.#add(chunk);
      if (this.#unreadBytes > maxUnreadBytes) this.#readAll();
    };
    const end = (cause?: Error): void => this.#add({ cause });
    const drain = (): void => this.#wake();
    const close = (): void => end();
    socket.on('data', data).on('end', close).on('close', close).on('error', end).on('drain', drain);
    return () => {
      socket.off('data', data).off('end', close).off('close', close).off('error', end).off('drain', drain);
      // A destroyed socket may emit one more error.
      socket.on('error', ignore);
    };
  }

  #add(event: Buffer | SocketEnd): void {
    if (this.#unread.push(event) === 1) turns.add(this.#reading);
  }

  /** One event in each pass: the code that awaits a reply runs before the next event is read. */
  #readNext(): void {
    const next = this.#unread.shift();
    if (next === undefined) return;
    if (this.#unread.length > 0) turns.add(this.#reading);
    this.#read(next);
  }

  /** Called before what comes after that input: a command, a question for the state, or a failure. */
  #readAll(): void {
    for (let next = this.#unread.shift(); next !== undefined; next = this.#unread.shift()) this.#read(next);
  }

  #read(event: Buffer | SocketEnd): void {
    if (!Buffer.isBuffer(event)) return this.#fail(this.#broken(event.cause));
    this.#unreadBytes -= event.length;
    if (this.#failure === undefined) this.#receive(event);
  }

  #receive(chunk: Buffer): void {
    const asked = this.#awaited.length - this.#first;
    const read = this.#reader.read(chunk);
    const last = read.at(-1);
    const malformed = last !== undefined && 'malformed' in last ? last.malformed : undefined;
    const replies = read.filter((one): one is Reply => !('malformed' in one));
    const goodbye =
      replies.length === asked + 1 && isGoodbye(replies.at(-1), this.#step, asked) ? replies.pop() : undefined;
    const midway = malformed === undefined && this.#reader.incomplete && replies.length === asked;
    if (replies.length > asked || (midway && !this.#mayBeUnasked(asked))) return this.#failProtocol(unasked);
    for (const reply of replies) {
      if (this.#failure === undefined) this.#accept(reply);
    }
    const parting = this.#failure === undefined && this.#awaited.length === 0 ? this.#goodbye : undefined;
    if (parting !== undefined) this.#end(parting);
    if (goodbye !== undefined) this.#fail(refusal(this.#step, goodbye));
    if (malformed !== undefined) this.#failProtocol(`The server sent ${malformed}`);
  }

  #failProtocol(text: string): void {
    this.#fail(protocolFailure(this.#step, text));
  }

  /**
   * A refusal may start to arrive while the message is being sent, and a 421 at any time; nothing may precede a TLS
   * handshake.
   */
  #mayBeUnasked(asked: number): boolean {
    return (this.#step === 'body' && asked === 0) || (this.#reader.incompleteGoodbye && this.#step !== 'starttls');
  }

  /** In LMTP, replies that follow a 421 to the final dot belong to the other recipients (RFC 2033 §4.2). */
  #accept(reply: Reply): void {
    const one = this.#awaited[this.#first];
    if (one === undefined) return;
    const parting = reply.code === 421 ? refusal(one.step, reply) : undefined;
    if (parting !== undefined && one.step !== 'final') return this.#fail(parting);
    if (!answers(one.step, reply.code)) return this.#failProtocol(`The server answered ${reply.code} out of turn`);
    this.#goodbye ??= parting;
    this.#complete(one, parting ?? reply);
  }

  #complete(one: Awaited, answer: Answer): void {
    this.#first += 1;
    if (this.#first === this.#awaited.length) {
      this.#awaited = [];
      this.#first = 0;
      this.#deadline.step(Infinity);
      // The message has its result: later failures belong to the next one.
      if (one.step === 'final') this.#step = 'mail';
    } else this.#awaitFirst();
    this.#settle(one, answer, false);
  }

  #awaitFirst(): void {
    const one = this.#awaited[this.#first];
    if (one === undefined) return;
    this.#step = one.step;
    this.#deadline.step(this.#goodbye === undefined ? one.ms : Math.min(one.ms, repliesAfter421Ms));
  }

  #settle(one: Awaited, answer: Answer, followsFailure: boolean): void {
    const { step, payload, saidAt, settle } = one;
    if (this.#transcript !== undefined && !followsFailure) {
      this.#record({ step, payload, ms: Math.round(this.#clock.monotonic() - saidAt) }, answer);
    }
    settle(answer);
  }

  #record(said: SaidStep, answer: Answer): void {
    if (isClientFailure(answer)) this.#transcript?.add(transcriptEntry(said, answer.reply, answer));
    else this.#transcript?.add(transcriptEntry(said, answer));
  }
}

interface SocketEnd {
  readonly cause: Error | undefined;
}

const unasked = 'The server spoke without being asked';

/**
 * Replies that may come without a command: 421 at any time (RFC 5321 §3.8), and a refusal while the message is being
 * sent.
 */
function isGoodbye(reply: Reply | undefined, step: ClientStep, asked: number): boolean {
  if (reply === undefined) return false;
  return reply.code === 421 || (asked === 0 && step === 'body' && reply.code >= 400);
}

/** Reply codes that are valid for a step. */
function answers(step: ClientStep, code: number): boolean {
  if (code >= 400) return true;
  if (step === 'data') return code === 354;
  return code < 300 || (step === 'auth' && code === 334);
}

/** Bytes of a line that are kept. RFC 5321 §4.5.3.1.5 allows 512 octets; some servers send more. */
const maxLineBytes = 4096;
/** Lines of a reply that are kept. One message may have a thousand replies in memory. */
const maxLines = 256;
const maxBytes = 16 * 1024;
/** Bytes of a reply that are read. The text may be cut, since the code comes first; an endless reply is malformed. */
const maxReadBytes = 256 * 1024;
const LF = 10;
const CR = 13;

/** Bytes that are no reply, and why. */
interface Malformed {
  readonly malformed: string;
}

const syntax = /^([2-5][0-9]{2})(?:([ -])(.*))?$/s;
const enhanced = /^([245]\.[0-9]{1,3}\.[0-9]{1,3})(?: |$)/;
const unprintable = /[\p{C}\p{Zl}\p{Zp}\ufffd]/gu;
const printableAscii = /^[ -~]*$/;

/** Splits the server's bytes into replies (RFC 5321 §4.2.1), independent of segmentation and bounded in memory. */
export class ReplyReader {
  #rest: Buffer | undefined;
  #code = 0;
  #lines: string[] = [];
  #bytes = 0;
  #readBytes = 0;

  /** True while a reply is incomplete. */
  get incomplete(): boolean {
    return this.#rest !== undefined || this.#lines.length > 0;
  }

  /** True when the incomplete reply is a 421 or may become one. */
  get incompleteGoodbye(): boolean {
    const code = this.#lines.length > 0 ? String(this.#code) : (this.#rest?.toString('latin1', 0, 3) ?? '');
    return this.incomplete && '421'.startsWith(code);
  }

  /** Further lines are not kept. */
  get #isFull(): boolean {
    return this.#lines.length >= maxLines || this.#bytes > maxBytes;
  }

  /** The replies that this chunk completes. Nothing follows a malformed one. */
  read(chunk: Buffer): readonly (Reply | Malformed)[] {
    const bytes = this.#rest === undefined ? chunk : Buffer.concat([this.#rest, chunk]);
    this.#rest = undefined;
    const found: (Reply | Malformed)[] = [];
    let from = 0;
    for (let end = bytes.indexOf(LF); end >= 0; end = bytes.indexOf(LF, from)) {
      this.#readBytes += end + 1 - from;
      const read = this.#readBytes > maxReadBytes ? endless : this.#line(bytes.subarray(from, end));
      if (read !== undefined) found.push(read);
      if (read !== undefined && 'malformed' in read) return found;
      from = end + 1;
    }
    const left = bytes.length - from;
    if (this.#readBytes + left > maxReadBytes) return [...found, endless];
    if (left > maxLineBytes) {
      // Only the beginning of the line matters, however long it is.
      this.#readBytes += left - maxLineBytes;
      this.#rest = Buffer.from(bytes.subarray(from, from + maxLineBytes));
    } else if (left > 0) this.#rest = bytes.subarray(from);
    return found;
  }

  #line(bytes: Buffer): Reply | Malformed | undefined {
    // Of an endless reply most lines are like that, and each costs little.
    if (this.#isFull && bytes.toString('latin1', 0, 4) === `${this.#code}-`) return undefined;
    const line = bytes.at(-1) === CR ? bytes.subarray(0, -1) : bytes;
    const text = readable(line.subarray(0, maxLineBytes));
    const match = syntax.exec(text);
    if (match === null) return { malformed: `no reply: ${JSON.stringify(text.slice(0, 80))}` };
    const code = Number(match[1]);
    if (this.#lines.length > 0 && code !== this.#code)
      return { malformed: 'the lines of one reply have different codes' };
    this.#code = code;
    this.#bytes += text.length;
    if (this.#lines.length === 0 || !this.#isFull) {
      this.#lines.push(match[3] ?? '');
    }
    if (match[2] === '-') return undefined;
    const lines = this.#lines;
    this.#lines = [];
    this.#bytes = 0;
    this.#readBytes = 0;
    return assembled(code, lines);
  }
}

const endless: Malformed = { malformed: `a reply of more than ${maxReadBytes} bytes` };

/** Replaces control characters by `?`, so that the text stays on one line. */
function readable(bytes: Buffer): string {
  const text = bytes.toString('latin1');
  return printableAscii.test(text) ? text : bytes.toString('utf8').replace(unprintable, '?');
}

/** Takes the enhanced status code out of the lines; one of another class than the code's is text. */
function assembled(code: number, lines: readonly string[]): Reply {
  const status = enhanced.exec(lines[0] ?? '')?.[1];
  if (status === undefined || status.charCodeAt(0) - 48 !== Math.floor(code / 100)) return reply(code, null, ...lines);
  const bare = lines.map((line) => (enhanced.exec(line)?.[1] === status ? line.slice(status.length + 1) : line));
  return { code, status, lines: bare };
}

/**
 * All deadlines of a connection on one timer. Extending a deadline leaves the timer alone; when it fires early, it is
 * armed again for the rest.
 */
class Deadline {
  readonly #clock: Clock;
  readonly #catchUp: () => void;
  readonly #passed: () => void;
  #timer: NodeJS.Timeout | undefined;
  #timerAt = Infinity;
  #stepAt = Infinity;
  #attemptAt = Infinity;

  /** @param catchUp reads what has come, which may move a deadline that has passed */
  constructor(clock: Clock, catchUp: () => void, passed: () => void) {
    this.#clock = clock;
    this.#catchUp = catchUp;
    this.#passed = passed;
  }

  /** Sets the timeout of the current step in milliseconds; Infinity for none. */
  step(ms: number): void {
    this.#stepAt = this.#clock.monotonic() + ms;
    this.#arm();
  }

  /** Sets the timeout of the whole attempt in milliseconds. */
  attempt(ms: number): void {
    this.#attemptAt = this.#clock.monotonic() + ms;
    this.#arm();
  }

  cancel(): void {
    this.#stepAt = Infinity;
    this.#attemptAt = Infinity;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#timerAt = Infinity;
  }

  #arm(): void {
    const at = Math.min(this.#stepAt, this.#attemptAt);
    if (at >= this.#timerAt) return;
    clearTimeout(this.#timer);
    this.#timerAt = at;
    // Only the socket keeps the process alive.
    this.#timer = setTimeout(() => this.#fire(), timerMs(at - this.#clock.monotonic())).unref();
  }

  #fire(): void {
    this.#timer = undefined;
    this.#timerAt = Infinity;
    this.#catchUp();
    const at = Math.min(this.#stepAt, this.#attemptAt);
    // Timers may fire a fraction of a millisecond early.
    if (this.#clock.monotonic() + 1 >= at) this.#passed();
    else if (at < Infinity) this.#arm();
  }
}

/** Maximum of `setTimeout`: it fires at once for longer times. */
export const timerMs = (ms: number): number => Math.min(2 ** 31 - 1, Math.max(0, ms));

/** One step of the dialogue for display, without credentials. */
export interface TranscriptEntry {
  readonly step: ClientStep;
  /** The verb: `EHLO`, `MAIL`, `.`; empty for the connection and its greeting. */
  readonly command: string;
  /** The line as sent, credentials masked; of a message only its size. */
  readonly payload: string;
  /** The server's reply, lines joined by LF. */
  readonly response: string | undefined;
  readonly error: string | undefined;
  readonly ms: number;
}

/** Records the dialogue, up to a maximum number of entries. */
export class Transcript {
  readonly #entries: TranscriptEntry[] = [];
  readonly #most: number;
  #left = 0;

  constructor(most = 10_000) {
    this.#most = most;
  }

  /** In the order of the replies. */
  get entries(): readonly TranscriptEntry[] {
    return this.#entries;
  }

  /** Number of steps beyond the maximum, which are not recorded. */
  get left(): number {
    return this.#left;
  }

  add(entry: TranscriptEntry): void {
    if (this.#entries.length < this.#most) this.#entries.push(entry);
    else this.#left += 1;
  }
}

/** The reply as received, lines joined by LF. */
export function writtenReply({ code, status, lines }: Reply): string {
  const front = status === null ? String(code) : `${code} ${status}`;
  return lines.map((line) => `${front} ${line}`).join('\n');
}

interface SaidStep {
  readonly step: ClientStep;
  readonly payload: string;
  readonly ms: number;
}

/** The transcript entry of a step with its reply, its failure, or both. */
export function transcriptEntry(said: SaidStep, reply: Reply | undefined, failure?: ClientFailure): TranscriptEntry {
  const { step, payload, ms } = said;
  const command = /^[A-Z.]*/.exec(payload)?.[0] ?? '';
  const response = reply && writtenReply(reply);
  return { step, command, payload, response, error: failure?.text, ms };
}
