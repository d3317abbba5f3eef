import type { Socket } from 'node:net';

/** Gathers replies and writes each group at once (RFC 2920 §3.2). */
export class ReplyWriter {
  #waiting: Buffer[] = [];
  #blocked = false;

  /** The client does not read: no command is taken until it does. */
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
