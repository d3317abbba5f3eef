import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';

/** Where a connection comes from and goes to, as both ends see it. */
export interface SocketPlace {
  readonly remoteAddress: string;
  readonly remotePort: number;
}

/** One end of a connection without a network. It has of a `net.Socket` what servers and clients ask for. */
export class MemorySocket extends Duplex {
  readonly remoteAddress: string;
  readonly remotePort: number;
  readonly localAddress = '127.0.0.1';
  readonly localPort = 0;
  #peer: MemorySocket | undefined;
  #drained: (() => void) | undefined;

  private constructor({ remoteAddress, remotePort }: SocketPlace) {
    super({ allowHalfOpen: true });
    this.remoteAddress = remoteAddress;
    this.remotePort = remotePort;
  }

  /** The two ends; `client` is where the server sees its client. */
  static pair(client: SocketPlace): { readonly server: MemorySocket; readonly client: MemorySocket } {
    const ends = {
      server: new MemorySocket(client),
      client: new MemorySocket({ remoteAddress: '127.0.0.1', remotePort: 0 }),
    };
    ends.server.#peer = ends.client;
    ends.client.#peer = ends.server;
    return ends;
  }

  /** For those who take sockets: it has of one what they use. */
  asSocket(): Socket {
    return this as unknown as Socket;
  }

  override _read(): void {
    const drained = this.#drained;
    this.#drained = undefined;
    drained?.();
  }

  override _write(chunk: Buffer, _encoding: string, done: (error?: Error | null) => void): void {
    const peer = this.#peer;
    if (peer === undefined || peer.destroyed) done(new Error('the other end is closed'));
    // In a later turn, as from a network, and only as fast as the other end reads.
    else if (peer.push(chunk)) setImmediate(done);
    else peer.#drained = () => done();
  }

  override _final(done: (error?: Error | null) => void): void {
    const peer = this.#peer;
    if (peer !== undefined && !peer.destroyed) peer.push(null);
    done();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    const peer = this.#peer;
    this.#peer = undefined;
    if (peer !== undefined) setImmediate(() => peer.#leftAlone(error));
    done(error);
  }

  /** The other end is gone: after an error nothing more is read, else what is on its way still is. */
  #leftAlone(error: Error | null): void {
    const drained = this.#drained;
    this.#drained = undefined;
    drained?.();
    if (error !== null) this.destroy();
    else if (!this.destroyed && !this.readableEnded) this.push(null);
  }

  destroySoon(): void {
    this.end(() => this.destroy());
  }

  setNoDelay(): this {
    return this;
  }

  setKeepAlive(): this {
    return this;
  }

  setTimeout(): this {
    return this;
  }

  ref(): this {
    return this;
  }

  unref(): this {
    return this;
  }
}
