import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { performance } from 'node:perf_hooks';
import { type ClientPath, turnMs, turns, type Work } from '../../turns.js';

const emptyLine = Buffer.from('\r\n\r\n');
const nothing: Buffer = Buffer.alloc(0);
/** Unread bytes at which the socket is paused. */
const maxAhead = 64 * 1024;
type Listener = (...args: readonly unknown[]) => void;

export interface ConnectionEvents {
  /** Node reads the end of the input; `mayAnswer` while a request that came before it has no answer. */
  ends(end: () => void, mayAnswer: boolean): void;
  /** A request has been answered. */
  answered(): void;
}

/**
 * Hands the input of a connection to the parser of Node.js, which would begin all requests that lie in it at once: here
 * one after the other, each when the one before it is answered, in turns with other clients. Meanwhile the socket is
 * paused, and what its client sends stays with its system (RFC 9112 §9.3.2 demands no more than the order).
 */
export class HttpConnection {
  readonly #socket: Socket;
  readonly #work: Work;
  readonly #events: ConnectionEvents;
  readonly #parse: Listener;
  readonly #end: Listener;
  #input = nothing;
  #hasEnded = false;
  /** A request had come before the end, and had not begun. */
  #mayAnswer = false;
  /** The request during which the socket began to be read again: an end that follows may have come before it. */
  #resumedAt: IncomingMessage | undefined;
  #isInLine = false;
  /** The socket is not read. */
  #isHeld = false;
  /** The last request. */
  #request: IncomingMessage | undefined;
  /** Requests without a whole answer: more than one where a header came in pieces. */
  #unanswered = 0;
  /** What is left of its body by its Content-Length; undefined without one. */
  #bodyLeft: number | undefined;

  /**
   * @param before listeners of the socket before Node.js has added its own: `dataAndEnd`
   * @throws Error when this release of Node.js reads its sockets in another way
   */
  constructor(socket: Socket, client: ClientPath, before: readonly unknown[], events: ConnectionEvents) {
    this.#socket = socket;
    this.#work = { client, run: () => this.#takeTurn(), isLong: true };
    this.#events = events;
    this.#parse = listenerOfNode(socket, 'data', before);
    this.#end = listenerOfNode(socket, 'end', before);
    socket.off('data', this.#parse).off('end', this.#end);
    socket.on('data', this.#onData).on('end', this.#onEnd);
  }

  /** To call for each request that the parser has read. */
  answering(request: IncomingMessage, response: ServerResponse): void {
    const length = request.headers['content-length'];
    this.#request = request;
    this.#unanswered += 1;
    this.#bodyLeft = length === undefined ? undefined : Number(length);
    response.on('close', this.#onAnswered);
  }

  readonly #onAnswered = (): void => {
    this.#unanswered -= 1;
    this.#events.answered();
    if (this.#input.length > 0 || this.#hasEnded) this.#askForTurn();
    else this.#hold(false);
  };

  /** A whole request is being answered. */
  get #isWorking(): boolean {
    return this.#unanswered > 0 && this.#request?.complete === true;
  }

  readonly #onData = (chunk: Buffer): void => {
    this.#input = this.#input.length === 0 ? chunk : Buffer.concat([this.#input, chunk]);
    if (this.#isWorking || this.#input.length >= maxAhead) this.#hold(true);
    if (!this.#isWorking) this.#askForTurn();
  };

  readonly #onEnd = (): void => {
    this.#hasEnded = true;
    this.#mayAnswer = this.#input.length > 0 || (this.#unanswered > 0 && this.#resumedAt === this.#request);
    this.#askForTurn();
  };

  #askForTurn(): void {
    if (this.#isInLine) return;
    this.#isInLine = true;
    turns.add(this.#work);
  }

  #takeTurn(): void {
    this.#isInLine = false;
    this.#read(performance.now() + turnMs);
  }

  /** Reads the request that has come, without its turn. */
  readNow(): void {
    this.#read(Infinity);
  }

  #read(endsAt: number): void {
    let length = 1;
    while (this.#input.length > 0 && length > 0 && !this.#isWorking) {
      if (this.#socket.destroyed || this.#socket.writableEnded) return this.#drop();
      length = this.#nextLength();
      if (length > 0) this.#parse.call(this.#socket, this.#take(length));
      if (performance.now() >= endsAt) break;
    }
    if (this.#input.length > 0 && length > 0) {
      this.#hold(true);
      if (!this.#isWorking) this.#askForTurn();
    } else {
      this.#hold(false);
      if (this.#hasEnded) this.#tellEnd();
    }
  }

  #take(length: number): Buffer {
    const part = length < this.#input.length ? this.#input.subarray(0, length) : this.#input;
    this.#input = length < this.#input.length ? this.#input.subarray(length) : nothing;
    if (this.#bodyLeft !== undefined) this.#bodyLeft -= part.length;
    return part;
  }

  #tellEnd(): void {
    this.#hasEnded = false;
    this.#events.ends(() => this.#end.call(this.#socket), this.#mayAnswer && this.#unanswered > 0);
  }

  /**
   * Of what is part of the same request: the rest of a body of known length, or to the next empty line, which ends a header
   * and a body in chunks. 0 while there is only what may begin such an end.
   */
  #nextLength(): number {
    if (this.#request?.complete !== false) this.#bodyLeft = undefined;
    if (this.#bodyLeft !== undefined) return Math.max(1, this.#bodyLeft);
    const end = this.#input.indexOf(emptyLine);
    if (end >= 0) return end + emptyLine.length;
    return this.#hasEnded ? this.#input.length : this.#input.length - beginningOfEnd(this.#input);
  }

  #drop(): void {
    this.#input = nothing;
    this.#hold(false);
  }

  /** Node.js resumes the socket whenever it has read a request, so one that is held is paused again. */
  #hold(isHeld: boolean): void {
    if (isHeld) this.#socket.pause();
    else if (this.#isHeld) {
      this.#resumedAt = this.#request;
      if (!this.#isFull) this.#socket.resume();
    }
    this.#isHeld = isHeld;
  }

  /** The buffer of the body is full. Node.js resumes the socket when the handler reads it. */
  get #isFull(): boolean {
    const { complete = true, readableLength = 0, readableHighWaterMark = 1 } = this.#request ?? {};
    return !complete && readableLength >= readableHighWaterMark;
  }
}

/** Number of bytes at the end of the input with which an empty line may begin. */
function beginningOfEnd(input: Buffer): number {
  for (let length = emptyLine.length - 1; length > 0; length -= 1) {
    if (input.length >= length && input.subarray(-length).equals(emptyLine.subarray(0, length))) return length;
  }
  return 0;
}

/** What may be among the listeners of a socket before Node.js reads HTTP from it. */
export const dataAndEnd = (socket: Socket): readonly unknown[] => [
  ...socket.listeners('data'),
  ...socket.listeners('end'),
];

function listenerOfNode(socket: Socket, event: 'data' | 'end', before: readonly unknown[]): Listener {
  const [listener, ...others] = socket.listeners(event).filter((one) => !before.includes(one));
  if (listener === undefined || others.length > 0) {
    throw new Error(
      `this release of Node.js has ${others.length + Number(listener !== undefined)} listeners for ${event}`,
    );
  }
  return listener as Listener;
}
