import type { Socket } from 'node:net';
import { TLSSocket, type TLSSocketOptions } from 'node:tls';
import { hasChunk } from '../protocol/command.js';
import { replies, type WireReply } from '../protocol/replies.js';
import { type ClientPath, turns, type Work } from '../../turns.js';

/** Unread bytes at which the socket is paused. */
const maxAhead = 64 * 1024;
/** Bytes that are discarded from a client after the last reply. */
const maxIgnored = 32 * 1024 * 1024;

interface WireEvents {
  /** The turn of the client: there is new input, its end, or a drained output, or it was asked for. */
  turn(): void;
  received(bytes: number): void;
  failed(error: Error): void;
  /** Called once. */
  closed(): void;
}

interface TlsFacts {
  readonly protocol: string;
  readonly cipher: string;
}

/** The socket of a connection, plain or TLS, with its input and output buffers. */
export class Wire {
  readonly input: InputBuffer = new InputBuffer();
  readonly #events: WireEvents;
  readonly #work: Work;
  readonly #writer = new ReplyWriter();
  #socket: Socket;
  #paused = false;
  #clientEnded = false;
  #finishing = false;
  #closed = false;
  /** It waits for its turn. */
  #isInLine = false;
  #ignored = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(socket: Socket, client: ClientPath, events: WireEvents) {
    this.#socket = socket;
    this.#work = { client, run: () => this.#takeTurn() };
    this.#events = events;
    socket.setNoDelay(true);
    socket.on('error', this.#onError);
    this.#attach(socket);
  }

  get clientEnded(): boolean {
    return this.#clientEnded;
  }

  /** The client does not read its replies. */
  get blocked(): boolean {
    return this.#writer.blocked;
  }

  get tls(): TlsFacts | undefined {
    const socket = this.#socket;
    if (!(socket instanceof TLSSocket)) return undefined;
    return { protocol: socket.getProtocol() ?? 'TLS', cipher: socket.getCipher().name };
  }

  /** Waits before the greeting: one turn of the event loop reveals bytes that came with the connection. */
  listenFirst(delayMs: number, then: () => void): void {
    if (delayMs === 0) turns.add({ client: this.#work.client, run: then });
    else this.#timer = setTimeout(then, delayMs);
  }

  say(bytes: Buffer): void {
    this.#writer.add(bytes);
  }

  /** Writes all pending replies, and pauses input of a client that is far ahead of its replies. */
  flush(): void {
    this.#writer.flush(this.#socket);
    this.#pause(this.input.length >= (this.#writer.blocked ? 1 : maxAhead));
  }

  #pause(isAhead: boolean): void {
    const pause = isAhead && !this.#finishing;
    if (pause === this.#paused) return;
    this.#paused = pause;
    if (pause) this.#socket.pause();
    else this.#socket.resume();
  }

  /** There is more to do than a turn allows, or something new. */
  askForTurn(): void {
    if (this.#isInLine) return;
    this.#isInLine = true;
    turns.add(this.#work);
  }

  get isInLine(): boolean {
    return this.#isInLine;
  }

  /** Replies of the same turn of the event loop are joined. */
  flushSoon(): void {
    if (!this.#writer.empty) setImmediate(() => this.#writer.flush(this.#socket));
  }

  /** Ends our side. Further input is discarded, so that the last replies arrive. */
  finish(): void {
    this.#finishing = true;
    this.input.clear();
    this.flush();
    this.#socket.end();
  }

  /** Ends both sides as soon as the last reply is sent, without waiting for the client to close. */
  hangUp(): void {
    if (this.input.length > 0) return this.finish();
    this.#finishing = true;
    this.flush();
    const socket = this.#socket;
    if (socket.writableLength === 0 && !(socket instanceof TLSSocket)) socket.destroy();
    else socket.destroySoon();
  }

  destroy(): void {
    this.#socket.destroy();
  }

  /** Starts TLS. Clear text after STARTTLS is not a command of the TLS session (RFC 3207 §5). */
  upgrade(options: TLSSocketOptions, secured: () => void): void {
    const plain = this.#socket;
    this.#writer.flush(plain);
    this.input.clear();
    // TLS on a destroyed socket would end the process; its close event is pending.
    if (plain.destroyed) return;
    this.#detach(plain);
    this.#writer.drained();
    const secure = new TLSSocket(plain, options);
    this.#socket = secure;
    secure.on('_tlsError', this.#onError);
    secure.on('error', this.#onError);
    secure.on('close', this.#onClose);
    const gone = (): unknown => secure.destroy();
    secure.once('end', gone);
    secure.once('secure', () => {
      secure.off('end', gone);
      secure.off('close', this.#onClose);
      this.#attach(secure);
      secured();
    });
  }

  #attach(socket: Socket): void {
    socket.on('data', this.#onData);
    socket.on('end', this.#onEnd);
    socket.on('drain', this.#onDrain);
    socket.on('close', this.#onClose);
  }

  #detach(socket: Socket): void {
    socket.off('data', this.#onData);
    socket.off('end', this.#onEnd);
    socket.off('drain', this.#onDrain);
    socket.off('close', this.#onClose);
  }

  readonly #onData = (chunk: Buffer): void => {
    this.#events.received(chunk.length);
    if (this.#finishing) {
      this.#ignored += chunk.length;
      if (this.#ignored > maxIgnored) this.#socket.destroy();
      return;
    }
    this.input.add(chunk);
    if (this.input.length >= maxAhead) this.#pause(true);
    this.askForTurn();
  };

  #takeTurn(): void {
    this.#isInLine = false;
    if (!this.#closed) this.#events.turn();
  }

  readonly #onEnd = (): void => {
    this.#clientEnded = true;
    this.askForTurn();
  };

  readonly #onDrain = (): void => {
    this.#writer.drained();
    this.askForTurn();
  };

  readonly #onError = (error: Error): void => this.#events.failed(error);

  readonly #onClose = (): void => {
    if (this.#closed) return;
    this.#closed = true;
    clearTimeout(this.#timer);
    this.input.clear();
    this.#events.closed();
  };
}

/** Maximum length of a command line without its CRLF; longer ones are read up to `endlessLine` and refused. */
const maxLine = 4096;
const endlessLine = 16 * 1024;

/** A command line, or the reply to an invalid one, and whether to hang up. */
type NextLine =
  | { readonly form: 'command'; readonly bytes: Buffer }
  | { readonly form: 'refused'; readonly reply: WireReply }
  | { readonly form: 'goodbye'; readonly reply: WireReply };

/**
 * Splits the input into command lines. Only CRLF ends a command; a line ended by a bare LF is refused, not executed.
 */
export class LineReader {
  readonly #input: InputBuffer;
  #fresh = true;

  constructor(input: InputBuffer) {
    this.#input = input;
  }

  /** Undefined while no line is complete. */
  next(): NextLine | undefined {
    const { first } = this.#input;
    if (first === undefined) return undefined;
    if (this.#fresh && isBinary(first)) return { form: 'goodbye', reply: replies.notSmtp };
    const line = this.#input.takeLine();
    const length = line?.bytes.length ?? this.#input.length;
    if (length > endlessLine) return { form: 'goodbye', reply: replies.endlessLine };
    if (line === undefined) return undefined;
    this.#fresh = false;
    if (length <= maxLine && line.crlf) return { form: 'command', bytes: line.bytes };
    const reply = length > maxLine ? replies.tooLong : replies.bareLineEnding;
    return { form: hasChunk(line.bytes) ? 'goodbye' : 'refused', reply };
  }
}

/** A TLS ClientHello or the like: a line end may never come. */
const isBinary = (byte: number): boolean => byte > 0x7e || (byte < 0x20 && byte !== 13 && byte !== 10);

const nothing: Buffer = Buffer.alloc(0);
const CR = 13;
const LF = 10;

/** A command line without its line end. */
interface InputLine {
  readonly bytes: Buffer;
  /** False when it ended with a bare LF. */
  readonly crlf: boolean;
}

/** Unread input. */
class InputBuffer {
  #bytes: Buffer = nothing;

  get length(): number {
    return this.#bytes.length;
  }

  get first(): number | undefined {
    return this.#bytes[0];
  }

  add(chunk: Buffer): void {
    this.#bytes = this.#bytes.length === 0 ? chunk : Buffer.concat([this.#bytes, chunk]);
  }

  clear(): void {
    this.#bytes = nothing;
  }

  takeAll(): Buffer {
    const all = this.#bytes;
    this.#bytes = nothing;
    return all;
  }

  take(max: number): Buffer {
    if (max >= this.#bytes.length) return this.takeAll();
    const taken = this.#bytes.subarray(0, max);
    this.#bytes = this.#bytes.subarray(max);
    return taken;
  }

  takeLine(): InputLine | undefined {
    const end = this.#bytes.indexOf(LF);
    if (end < 0) return undefined;
    const crlf = end > 0 && this.#bytes[end - 1] === CR;
    const bytes = this.#bytes.subarray(0, crlf ? end - 1 : end);
    this.#bytes = end + 1 === this.#bytes.length ? nothing : this.#bytes.subarray(end + 1);
    return { bytes, crlf };
  }
}

/** Collects replies and writes each group at once (RFC 2920 §3.2). */
class ReplyWriter {
  #waiting: Buffer[] = [];
  #blocked = false;

  /** The client does not read: no further command is read until it does. */
  get blocked(): boolean {
    return this.#blocked;
  }

  get empty(): boolean {
    return this.#waiting.length === 0;
  }

  add(bytes: Buffer): void {
    this.#waiting.push(bytes);
  }

  flush(socket: Socket): void {
    const [first] = this.#waiting;
    if (first === undefined) return;
    const bytes = this.#waiting.length === 1 ? first : Buffer.concat(this.#waiting);
    this.#waiting = [];
    if (socket.writable && !socket.write(bytes)) this.#blocked = true;
  }

  drained(): void {
    this.#blocked = false;
  }
}
