import type { Socket } from 'node:net';
import { TLSSocket, type TLSSocketOptions } from 'node:tls';
import { InputBuffer } from './input-buffer.js';
import { ReplyWriter } from './reply-writer.js';

/** So much may wait to be used before the socket is paused. */
const mostAhead = 64 * 1024;
/** So much is read and thrown away from a client that was told goodbye. */
const mostIgnored = 32 * 1024 * 1024;

export interface WireEvents {
  /** Bytes are in the input, the client has ended its side, or it reads again. */
  moved(): void;
  received(bytes: number): void;
  failed(error: Error): void;
  /** Told once. */
  closed(): void;
}

export interface TlsFacts {
  readonly protocol: string;
  readonly cipher: string;
}

/** The socket of a connection, plain or TLS: what came and was not used, what is said and not written. */
export class Wire {
  readonly input: InputBuffer = new InputBuffer();
  readonly #events: WireEvents;
  readonly #writer = new ReplyWriter();
  #socket: Socket;
  #paused = false;
  #clientEnded = false;
  #finishing = false;
  #closed = false;
  #ignored = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(socket: Socket, events: WireEvents) {
    this.#socket = socket;
    this.#events = events;
    socket.setNoDelay(true);
    socket.on('error', this.#onError);
    this.#attach(socket);
  }

  get clientEnded(): boolean {
    return this.#clientEnded;
  }

  /** The client does not read what is said to it. */
  get blocked(): boolean {
    return this.#writer.blocked;
  }

  get tls(): TlsFacts | undefined {
    const socket = this.#socket;
    if (!(socket instanceof TLSSocket)) return undefined;
    return { protocol: socket.getProtocol() ?? 'TLS', cipher: socket.getCipher().name };
  }

  /** Waits before the first word: one turn of the event loop shows the bytes that came with the connection. */
  listenFirst(delayMs: number, then: () => void): void {
    if (delayMs === 0) setImmediate(then);
    else this.#timer = setTimeout(then, delayMs);
  }

  say(bytes: Buffer): void {
    this.#writer.add(bytes);
  }

  /** Writes what is to be said, all at once, and stops reading from a client that is far ahead of its answers. */
  flush(): void {
    this.#writer.flush(this.#socket);
    const ahead = this.input.length > (this.#writer.blocked ? 0 : mostAhead);
    const pause = ahead && !this.#finishing;
    if (pause === this.#paused) return;
    this.#paused = pause;
    if (pause) this.#socket.pause();
    else this.#socket.resume();
  }

  /** What is said in this turn of the event loop still joins. */
  flushSoon(): void {
    if (!this.#writer.empty) setImmediate(() => this.#writer.flush(this.#socket));
  }

  /** Ends our side. What still comes is read and forgotten, so that the last words arrive. */
  finish(): void {
    this.#finishing = true;
    this.input.clear();
    this.flush();
    this.#socket.end();
  }

  destroy(): void {
    this.#socket.destroy();
  }

  /** Puts TLS on top. What came in the clear behind STARTTLS is not a command of the TLS session (RFC 3207 §5). */
  upgrade(options: TLSSocketOptions, secured: () => void): void {
    const plain = this.#socket;
    this.#writer.flush(plain);
    this.input.clear();
    // TLS on a destroyed socket ends the process; its close is on the way.
    if (plain.destroyed) return;
    this.#detach(plain);
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
      if (this.#ignored > mostIgnored) this.#socket.destroy();
      return;
    }
    this.input.add(chunk);
    this.#events.moved();
  };

  readonly #onEnd = (): void => {
    this.#clientEnded = true;
    this.#events.moved();
  };

  readonly #onDrain = (): void => {
    this.#writer.drained();
    this.#events.moved();
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
