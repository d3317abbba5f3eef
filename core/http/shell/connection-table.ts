import type { Socket } from 'node:net';
import { clientPath, type ClientPath } from '../../turns.js';

/** A connection that was taken in. */
export interface ConnectionEntry {
  readonly key: string;
  readonly socket: Socket;
  /** Networks from wide to narrow, at last the client. */
  readonly names: ClientPath;
}

export interface ConnectionLimits {
  readonly maxConnections: number;
  readonly connectionsPerClient: number;
}

/**
 * Open connections by client and network. When places become few, the one goes first that has waited longest for its
 * client: for the header of a request, else for the rest of a body.
 */
export class ConnectionTable {
  readonly #counts = new Map<string, number>();
  readonly #entries = new Map<string, ConnectionEntry>();
  /** Those without a whole header, and those without a whole body; the oldest first. */
  readonly #waiting = { header: new Set<ConnectionEntry>(), body: new Set<ConnectionEntry>() };

  get count(): number {
    return this.#entries.size;
  }

  /**
   * Takes a connection in, and ends another one for it where needed. A network may have half of all (IPv4 /16, IPv6 /32),
   * a quarter (/24, /48), an eighth (/56). False when there is no place for it: then it is the caller who ends it.
   */
  admit(socket: Socket, { maxConnections, connectionsPerClient }: ConnectionLimits, isExempt: boolean): boolean {
    const { remoteAddress } = socket;
    // It was gone before it was accepted.
    if (remoteAddress === undefined) return false;
    const names = clientPath(remoteAddress);
    if (!isExempt) {
      for (const [level, name] of names.entries()) {
        const isClient = level === names.length - 1;
        const limit = isClient ? 0 : Math.floor(maxConnections / 2 ** (level + 1));
        if ((this.#counts.get(name) ?? 0) < Math.max(connectionsPerClient, limit)) continue;
        if (isClient || !this.#endOne(name)) return false;
      }
    }
    if (this.count >= maxConnections && !this.#endOne()) return false;
    this.#add(socket, names);
    return true;
  }

  /** Of a socket, or of the TLS on it. */
  find(socket: Socket): ConnectionEntry | undefined {
    return this.#entries.get(keyOf(socket));
  }

  /** A request of the connection has come as far as its header, or is whole. */
  hasHeader(entry: ConnectionEntry, isWhole: boolean): void {
    this.#waiting.header.delete(entry);
    if (isWhole) this.#waiting.body.delete(entry);
    else if (!entry.socket.destroyed) this.#waiting.body.add(entry);
  }

  /** The connection waits for its next request. */
  isIdle(entry: ConnectionEntry): void {
    this.#waiting.body.delete(entry);
    if (!entry.socket.destroyed) this.#waiting.header.add(entry);
  }

  #add(socket: Socket, names: ClientPath): void {
    const key = keyOf(socket);
    const entry = { key, socket, names };
    this.#entries.set(key, entry);
    this.#waiting.header.add(entry);
    for (const name of names) this.#counts.set(name, (this.#counts.get(name) ?? 0) + 1);
    socket.once('close', () => this.#forget(entry));
  }

  /** Only of the named network, if any. False when none waits for its client. */
  #endOne(name?: string): boolean {
    for (const entries of [this.#waiting.header, this.#waiting.body]) {
      for (const entry of entries) {
        if (name !== undefined && !entry.names.includes(name)) continue;
        this.#forget(entry);
        entry.socket.destroy();
        return true;
      }
    }
    return false;
  }

  /** Once: the key may be that of another connection by then. */
  #forget(entry: ConnectionEntry): void {
    if (this.#entries.get(entry.key) !== entry) return;
    this.#entries.delete(entry.key);
    this.#waiting.header.delete(entry);
    this.#waiting.body.delete(entry);
    for (const name of entry.names) {
      const others = (this.#counts.get(name) ?? 1) - 1;
      if (others > 0) this.#counts.set(name, others);
      else this.#counts.delete(name);
    }
  }
}

/** The same for a socket and for the TLS on it. */
const keyOf = ({ remoteAddress, remotePort, localPort }: Socket): string =>
  `${remoteAddress} ${remotePort} ${localPort}`;
