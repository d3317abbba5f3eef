import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { performance } from 'node:perf_hooks';
import { type ClientPath, turnMs, turns, type Work } from '../../turns.js';

const headerEnd = Buffer.from('\r\n\r\n');
const nothing: Buffer = Buffer.alloc(0);
/** Bytes of a body without Content-Length that are read at a time: what lies behind its end may be further requests. */
const chunkedSlice = 4096;

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
    if (this.#isWorking) this.#hold(true);
    else this.#askForTurn();
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
    while (this.#input.length > 0 && !this.#isWorking) {
      if (this.#socket.destroyed || this.#socket.writableEnded) return this.#drop();
      const length = this.#nextLength();
      const part = length < this.#input.length ? this.#input.subarray(0, length) : this.#input;
      this.#input = length < this.#input.length ? this.#input.subarray(length) : nothing;
      if (this.#bodyLeft !== undefined) this.#bodyLeft -= part.length;
      this.#parse.call(this.#socket, part);
      if (performance.now() >= endsAt) break;
    }
    if (this.#input.length > 0) {
      this.#hold(true);
      if (!this.#isWorking) this.#askForTurn();
    } else {
      this.#hold(false);
      if (this.#hasEnded) this.#tellEnd();
    }
  }

  #tellEnd(): void {
    this.#hasEnded = false;
    this.#events.ends(() => this.#end.call(this.#socket), this.#mayAnswer && this.#unanswered > 0);
  }

  /** Of the present body, or to the end of the next header. */
  #nextLength(): number {
    if (this.#request?.complete === false) return Math.max(1, this.#bodyLeft ?? chunkedSlice);
    this.#bodyLeft = undefined;
    const end = this.#input.indexOf(headerEnd);
    return end < 0 ? this.#input.length : end + headerEnd.length;
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
      this.#socket.resume();
    }
    this.#isHeld = isHeld;
  }
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
