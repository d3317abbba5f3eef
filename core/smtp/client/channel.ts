import type { Socket } from 'node:net';
import type { Clock } from '../../clock.js';
import { reply, type Reply } from '../protocol/reply.js';
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

/** What a step got. Never rejected with, so that steps that were sent ahead need nobody who listens. */
export type Answer = Reply | ClientFailure;

interface Awaited {
  readonly step: ClientStep;
  readonly ms: number;
  readonly payload: string;
  readonly saidAt: number;
  readonly settle: (answer: Answer) => void;
}

/** Behind a 421 a server closes at once; one that has answers for other recipients left may say each of them so much later. */
const partingMs = 10_000;

const ignore = (): void => undefined;

/**
 * The wire to one server: commands go out, and each reply goes to the oldest command that waits for one. A reply that came when
 * nobody can have asked for it breaks the connection, together with what else came with it: a peer that is out of step would
 * make one message's answer that of another.
 */
export class Channel {
  readonly #clock: Clock;
  readonly #transcript: Transcript | undefined;
  readonly #deadline: Deadline;
  readonly #reader = new ReplyReader();
  #socket: Socket;
  #detach: () => void;
  #awaited: Awaited[] = [];
  /** Index of the oldest that waits; those in front of it are settled. */
  #first = 0;
  #step: ClientStep = 'greeting';
  #failure: ClientFailure | undefined;
  /** The 421 to one of several that wait: theirs too, if nothing else comes for them. */
  #parting: ClientFailure | undefined;
  #wake: () => void = ignore;
  #broken = (cause?: Error): ClientFailure => closedFailure(this.#step, cause);
  #failed: () => void = ignore;

  constructor(socket: Socket, clock: Clock, transcript: Transcript | undefined) {
    this.#clock = clock;
    this.#transcript = transcript;
    this.#deadline = new Deadline(clock, () => this.fail(timeoutFailure(this.#step)));
    this.#socket = socket;
    this.#detach = this.#attach(socket);
  }

  get clock(): Clock {
    return this.#clock;
  }

  get failure(): ClientFailure | undefined {
    return this.#failure;
  }

  /** What is being done, for failures. */
  get step(): ClientStep {
    return this.#step;
  }

  attempt(ms: number): void {
    this.#deadline.attempt(ms);
  }

  /** Sends one line and awaits its reply. `shown` stands for it in the transcript. */
  ask(step: ClientStep, line: string, ms: number, shown = line): Promise<Answer> {
    if (this.#failure === undefined) this.#socket.write(`${line}\r\n`);
    return this.expect(step, ms, shown);
  }

  /** Awaits a reply to what was written before; each is awaited before anything can have been read since. */
  expect(step: ClientStep, ms: number, shown = ''): Promise<Answer> {
    // What began to arrive before the question was put is no answer to it.
    if (this.#reader.midway && this.#awaited.length === this.#first) {
      this.fail(this.#reader.partsMidway ? closedFailure(this.#step) : protocolFailure(this.#step, unasked));
    }
    const failure = this.#failure;
    if (failure !== undefined) return Promise.resolve(failure);
    const saidAt = this.#transcript === undefined ? 0 : this.#clock.monotonic();
    return new Promise((settle) => {
      this.#awaited.push({ step, ms, payload: shown, saidAt, settle });
      if (this.#awaited.length - this.#first === 1) this.#awaitFirst();
    });
  }

  /** What is written until `uncork` goes out together. */
  cork(): void {
    this.#socket.cork();
  }

  uncork(): void {
    this.#socket.uncork();
  }

  write(bytes: Buffer): boolean {
    return this.#failure === undefined && this.#socket.write(bytes);
  }

  /** Names what is done while no reply is awaited; it must be over in so many milliseconds. */
  perform(step: ClientStep, ms: number): void {
    this.#step = step;
    this.#deadline.step(ms);
  }

  /** Resolves when the socket has room again, or the connection has failed. */
  drain(): Promise<void> {
    return this.#socket.writableNeedDrain ? this.#pause() : Promise.resolve();
  }

  /** Resolves when the connection has failed; the last one that asked is told. */
  failed(): Promise<void> {
    if (this.#failure !== undefined) return Promise.resolve();
    return new Promise((resolve) => {
      this.#failed = resolve;
    });
  }

  /** Nothing is under way: no deadline holds. */
  rest(): void {
    this.#deadline.step(Infinity);
    this.#deadline.attempt(Infinity);
  }

  /** Breaks the connection; whoever waits gets the failure. The first failure counts. */
  fail(failure: ClientFailure): void {
    if (this.#failure !== undefined) return;
    if (this.#awaited.length === 0) this.#record({ step: this.#step, payload: '', ms: 0 }, failure);
    this.#end(this.#parting ?? failure);
  }

  /** Ends the connection on purpose. */
  close(): void {
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
   * Puts another socket on top of its own: one that does TLS. Resolves when that is ready, or the connection has failed.
   *
   * @param make gets the present socket and a function to call when the new one is ready
   * @param broken what it is called when it does not become ready
   */
  async replace(
    make: (plain: Socket, ready: () => void) => Socket,
    broken: (cause?: Error) => ClientFailure,
  ): Promise<void> {
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
    const data = (chunk: Buffer): void => this.#receive(chunk);
    const end = (): void => this.fail(this.#broken());
    const error = (cause: Error): void => this.fail(this.#broken(cause));
    const drain = (): void => this.#wake();
    socket.on('data', data).on('end', end).on('close', end).on('error', error).on('drain', drain);
    return () => {
      socket.off('data', data).off('end', end).off('close', end).off('error', error).off('drain', drain);
      // A socket may fail once more after it was given up.
      socket.on('error', ignore);
    };
  }

  #receive(chunk: Buffer): void {
    const asked = this.#awaited.length - this.#first;
    const read = this.#reader.read(chunk);
    const last = read.at(-1);
    const malformed = last !== undefined && 'malformed' in last ? last.malformed : undefined;
    const replies = read.filter((one): one is Reply => !('malformed' in one));
    const goodbye =
      replies.length === asked + 1 && isGoodbye(replies.at(-1), this.#step, asked) ? replies.pop() : undefined;
    const midway = malformed === undefined && this.#reader.midway && replies.length === asked;
    if (replies.length > asked || (midway && !this.#maySpeak(asked))) return this.#lost(unasked);
    for (const reply of replies) {
      if (this.#failure === undefined) this.#accept(reply);
    }
    const parting = this.#failure === undefined && this.#awaited.length === 0 ? this.#parting : undefined;
    if (parting !== undefined) this.#end(parting);
    if (goodbye !== undefined) this.fail(refusal(this.#step, goodbye));
    if (malformed !== undefined) this.#lost(`The server sent ${malformed}`);
  }

  #lost(text: string): void {
    this.fail(protocolFailure(this.#step, text));
  }

  /** A refusal may begin to arrive while the message is being sent, and a goodbye at any time; TLS begins without a word. */
  #maySpeak(asked: number): boolean {
    return (this.#step === 'body' && asked === 0) || (this.#reader.partsMidway && this.#step !== 'starttls');
  }

  /** Replies that come behind a 421 to the dot are those of other recipients (RFC 2033 §4.2). */
  #accept(reply: Reply): void {
    const one = this.#awaited[this.#first];
    if (one === undefined) return;
    const parting = reply.code === 421 ? refusal(one.step, reply) : undefined;
    if (parting !== undefined && one.step !== 'final') return this.fail(parting);
    if (!answers(one.step, reply.code)) return this.#lost(`The server answered ${reply.code} out of turn`);
    this.#parting ??= parting;
    this.#answered(one, parting ?? reply);
  }

  #answered(one: Awaited, answer: Answer): void {
    this.#first += 1;
    if (this.#first === this.#awaited.length) {
      this.#awaited = [];
      this.#first = 0;
      this.#deadline.step(Infinity);
      // Whatever happens from here on, that message is settled.
      if (one.step === 'final') this.#step = 'mail';
    } else this.#awaitFirst();
    this.#settle(one, answer, false);
  }

  #awaitFirst(): void {
    const one = this.#awaited[this.#first];
    if (one === undefined) return;
    this.#step = one.step;
    this.#deadline.step(this.#parting === undefined ? one.ms : Math.min(one.ms, partingMs));
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

const unasked = 'The server spoke without being asked';

/** What may be said unasked: 421 at any time (RFC 5321 §3.8), and a refusal while the message is still being sent. */
function isGoodbye(reply: Reply | undefined, step: ClientStep, asked: number): boolean {
  if (reply === undefined) return false;
  return reply.code === 421 || (asked === 0 && step === 'body' && reply.code >= 400);
}

/** Which codes can answer a step at all. */
function answers(step: ClientStep, code: number): boolean {
  if (code >= 400) return true;
  if (step === 'data') return code === 354;
  return code < 300 || (step === 'auth' && code === 334);
}

/** What is kept of a line; RFC 5321 §4.5.3.1.5 allows 512 octets, some servers say more. */
const maxLineBytes = 4096;
/** What is kept of a reply: there may be a thousand of them for one message, and they are kept until it is settled. */
const maxLines = 256;
const maxBytes = 16 * 1024;
/** What is read of a reply. The code is in the first three digits, so the text may be cut; an endless reply is none. */
const maxReadBytes = 1024 * 1024;
const LF = 10;
const CR = 13;

/** What came is no reply. */
interface Malformed {
  readonly malformed: string;
}

const syntax = /^([2-5][0-9]{2})(?:([ -])(.*))?$/s;
const enhanced = /^([245]\.[0-9]{1,3}\.[0-9]{1,3})(?: |$)/;
const unprintable = /[\p{C}\p{Zl}\p{Zp}\ufffd]/gu;
const printableAscii = /^[ -~]*$/;

/** Cuts the server's bytes into replies (RFC 5321 §4.2.1), however they were segmented. Bounded in every direction. */
export class ReplyReader {
  #rest: Buffer | undefined;
  #code = 0;
  #lines: string[] = [];
  #bytes = 0;
  #readBytes = 0;

  /** True while a reply has begun and not ended. */
  get midway(): boolean {
    return this.#rest !== undefined || this.#lines.length > 0;
  }

  /** True when the reply that has begun is a 421, or can become one. */
  get partsMidway(): boolean {
    const code = this.#lines.length > 0 ? String(this.#code) : (this.#rest?.toString('latin1', 0, 3) ?? '');
    return this.midway && '421'.startsWith(code);
  }

  /** The replies that are whole with this chunk. After something malformed there is nothing more. */
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
      // The head of the line is enough, however much comes before its end.
      this.#readBytes += left - maxLineBytes;
      this.#rest = Buffer.from(bytes.subarray(from, from + maxLineBytes));
    } else if (left > 0) this.#rest = bytes.subarray(from);
    return found;
  }

  #line(bytes: Buffer): Reply | Malformed | undefined {
    const line = bytes.at(-1) === CR ? bytes.subarray(0, -1) : bytes;
    const text = readable(line.subarray(0, maxLineBytes));
    const match = syntax.exec(text);
    if (match === null) return { malformed: `no reply: ${JSON.stringify(text.slice(0, 80))}` };
    const code = Number(match[1]);
    if (this.#lines.length > 0 && code !== this.#code)
      return { malformed: 'the lines of one reply have different codes' };
    this.#code = code;
    this.#bytes += text.length;
    if (this.#lines.length === 0 || (this.#lines.length < maxLines && this.#bytes <= maxBytes)) {
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

/** Text for people: what could break out of a line becomes `?`. */
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
 * The one timer of a connection. A deadline that is put off leaves the timer as it is, and what is left is waited for when it
 * fires: so steps that take turns all day cost no timers.
 */
class Deadline {
  readonly #clock: Clock;
  readonly #passed: () => void;
  #timer: NodeJS.Timeout | undefined;
  #timerAt = Infinity;
  #stepAt = Infinity;
  #attemptAt = Infinity;

  constructor(clock: Clock, passed: () => void) {
    this.#clock = clock;
    this.#passed = passed;
  }

  /** The present step must be over in so many milliseconds; Infinity for nothing to wait for. */
  step(ms: number): void {
    this.#stepAt = this.#clock.monotonic() + ms;
    this.#arm();
  }

  /** Everything up to the end of the attempt must be over in so many milliseconds. */
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
    // The socket keeps the process alive, a deadline need not.
    this.#timer = setTimeout(() => this.#fire(), timerMs(at - this.#clock.monotonic())).unref();
  }

  #fire(): void {
    this.#timer = undefined;
    this.#timerAt = Infinity;
    const at = Math.min(this.#stepAt, this.#attemptAt);
    // Timers may fire a fraction of a millisecond early.
    if (this.#clock.monotonic() + 1 >= at) this.#passed();
    else if (at < Infinity) this.#arm();
  }
}

/** What `setTimeout` takes: a longer time would fire at once. */
export const timerMs = (ms: number): number => Math.min(2 ** 31 - 1, Math.max(0, ms));

/** One step of the dialogue as it is shown; without credentials. */
export interface TranscriptEntry {
  readonly step: ClientStep;
  /** The verb: `EHLO`, `MAIL`, `.`; empty for the connection and its greeting. */
  readonly command: string;
  /** The line as it was sent, credentials masked; of the message its size alone. */
  readonly payload: string;
  /** The reply as it came, its lines joined by LF. */
  readonly response: string | undefined;
  readonly error: string | undefined;
  readonly ms: number;
}

/** Keeps what was said, up to a bound. */
export class Transcript {
  readonly #entries: TranscriptEntry[] = [];
  readonly #most: number;
  #left = 0;

  constructor(most = 10_000) {
    this.#most = most;
  }

  /** In the order in which the replies came. */
  get entries(): readonly TranscriptEntry[] {
    return this.#entries;
  }

  /** Steps that found no room. */
  get left(): number {
    return this.#left;
  }

  add(entry: TranscriptEntry): void {
    if (this.#entries.length < this.#most) this.#entries.push(entry);
    else this.#left += 1;
  }
}

/** As it came, its lines joined by LF. */
export function writtenReply({ code, status, lines }: Reply): string {
  const front = status === null ? String(code) : `${code} ${status}`;
  return lines.map((line) => `${front} ${line}`).join('\n');
}

interface SaidStep {
  readonly step: ClientStep;
  readonly payload: string;
  readonly ms: number;
}

/** The entry of a step that got a reply, a failure, or both. */
export function transcriptEntry(said: SaidStep, reply: Reply | undefined, failure?: ClientFailure): TranscriptEntry {
  const { step, payload, ms } = said;
  const command = /^[A-Z.]*/.exec(payload)?.[0] ?? '';
  const response = reply && writtenReply(reply);
  return { step, command, payload, response, error: failure?.text, ms };
}
