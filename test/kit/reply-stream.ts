import type { Duplex } from 'node:stream';
import type { RawReply } from './client-answer.js';

/** More than a hook may take that has no limit of its own. */
const timeoutMs = 15_000;

/** Reads replies (RFC 5321 §4.2.1) from the client's end of a connection, in their order. */
export class ReplyStream {
  #socket: Duplex;
  #received = '';
  #ended = false;
  #wake: () => void = () => undefined;

  constructor(socket: Duplex) {
    this.#socket = socket;
    this.#listen(socket);
  }

  /** True when the server has ended its side and everything was read. */
  get ended(): boolean {
    return this.#ended && this.#received === '';
  }

  /** The next reply. Rejects when the server ends before there is one. */
  async next(): Promise<RawReply> {
    for (;;) {
      const reply = this.#take();
      if (reply !== undefined) return reply;
      if (this.#ended) throw new Error('The server has ended the session.');
      await this.#moved('The server has not answered');
    }
  }

  async untilEnded(): Promise<void> {
    while (!this.#ended) await this.#moved('The server has not ended the session');
  }

  /** Something has come. The timer keeps the process alive while it waits. */
  #moved(inVain: string): Promise<void> {
    return new Promise((resolve, reject) => {
      const why = `${inVain} for ${timeoutMs / 1000} seconds: a hook waits, perhaps for a clock that stands.`;
      const timer = setTimeout(() => reject(new Error(why)), timeoutMs);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  /** Goes on with the socket that `wrap` puts on top of the one before. */
  wrap<S extends Duplex>(wrap: () => S): S {
    this.#socket.off('data', this.#onData);
    const socket = wrap();
    this.#socket = socket;
    this.#listen(socket);
    return socket;
  }

  #listen(socket: Duplex): void {
    const over = (): void => {
      if (socket !== this.#socket) return;
      this.#ended = true;
      this.#wake();
    };
    socket.on('data', this.#onData);
    socket.on('end', over);
    socket.on('close', over);
    socket.on('error', over);
  }

  readonly #onData = (chunk: Buffer): void => {
    this.#received += chunk.toString('latin1');
    this.#wake();
  };

  #take(): RawReply | undefined {
    const match = /^(?:\d{3}-[^\n]*\r\n)*\d{3}(?: [^\n]*)?\r\n/.exec(this.#received);
    if (match === null) return undefined;
    this.#received = this.#received.slice(match[0].length);
    const lines = match[0].split('\r\n').slice(0, -1);
    const status = /^\d{3}[ -](\d\.\d{1,3}\.\d{1,3}) /.exec(lines.at(-1) ?? '')?.[1] ?? null;
    const text = lines.map((line) => line.slice(status === null ? 4 : 5 + status.length)).join('\n');
    return { code: Number(lines[0]?.slice(0, 3)), status, text };
  }
}
