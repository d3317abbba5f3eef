import type { Socket } from 'node:net';
import { normalAddress } from '../../net/ip-address.js';
import { Connection } from './connection.js';
import type { ClientLimits } from './limits.js';
import type { ListenerGround } from './listener-ground.js';
import type { ListenerSettings } from './listener-options.js';
import { connectionShares } from '../../host/process-limits.js';
import { MailServer } from './mail-server.js';
import { parseNetworks, type NetworkSet } from '../../net/networks.js';
import { readProxyHeader, type ForwardedPeer } from './proxy-header.js';
import { replies } from '../protocol/replies.js';
import type { TlsMaterial } from '../../net/tls-material.js';

/** Beyond the limit so many are still told why they are refused; further ones are cut without a word. */
const mostRefused = Math.min(256, connectionShares().refused);

export interface ListenerInput {
  readonly ground: Omit<ListenerGround, 'tlsOptions'>;
  readonly material: TlsMaterial | undefined;
  readonly clients: ClientLimits;
  /** Between two looks at the deadlines, in milliseconds. */
  readonly sweepMs: number;
}

/** What is behind one door where mail comes in, and the sessions that came in there. */
export class Listener {
  readonly #ground: ListenerGround;
  readonly #server: MailServer;
  readonly #clients: ClientLimits;
  readonly #sweepMs: number;
  readonly #proxies: NetworkSet;
  /** Connections of proxies whose header has not come yet. */
  readonly #unannounced = new Set<Socket>();
  /** The client behind a proxy, by the proxy's own address and port. */
  readonly #forwarded = new Map<string, ForwardedPeer>();
  readonly #connections = new Set<Connection>();
  #timer: NodeJS.Timeout | undefined;
  #stopping = false;
  #retired: (() => void) | undefined;
  /** Sweeps in a row that found nobody: a connection may be on its way for a turn of the event loop. */
  #emptySweeps = 0;
  /** Clients that are being told that there is no place. */
  #refused = 0;
  #wake: () => void = () => undefined;
  #accepted = 0;

  constructor({ ground, material, clients, sweepMs }: ListenerInput) {
    this.#clients = clients;
    this.#sweepMs = sweepMs;
    this.#proxies = parseNetworks(ground.listener.proxyProtocol);
    this.#server = new MailServer({
      tls: ground.listener.tls,
      material,
      ciphers: ground.listener.ciphers,
      mostPending: ground.settings().limits.clients,
      accept: (socket) => this.#accept(socket),
    });
    // Failed handshakes, and connections that broke before they were sessions.
    this.#server.on('error', (error: Error) => {
      ground.log.debug({ listener: ground.listener.name, err: error }, 'a connection failed before it was a session');
    });
    this.#ground = { ...ground, tlsOptions: () => this.#server.startTlsOptions };
  }

  get settings(): ListenerSettings {
    return this.#ground.listener;
  }

  get sessions(): { readonly open: number; readonly total: number } {
    return { open: this.#connections.size, total: this.#accepted };
  }

  /** Looks at the deadlines of its sessions from now on. */
  start(): void {
    this.#timer ??= setInterval(() => this.#sweep(), this.#sweepMs).unref();
  }

  /** Takes a connection that came in through its door. */
  take(socket: Socket): void {
    const { remoteAddress } = socket;
    if (remoteAddress !== undefined && this.#proxies.has(remoteAddress)) void this.#takeFromProxy(socket);
    else this.#takeClient(socket);
  }

  async #takeFromProxy(socket: Socket): Promise<void> {
    const { remoteAddress: proxy } = socket;
    if (this.#stopping || this.#unannounced.size >= this.#limits.clients) {
      socket.on('error', () => undefined).destroy();
      return;
    }
    this.#unannounced.add(socket);
    try {
      const client = await readProxyHeader(socket);
      const key = transportKey(socket);
      if (client !== undefined && !socket.destroyed) {
        this.#forwarded.set(key, client);
        socket.once('close', () => this.#forwarded.delete(key));
      }
      if (!socket.destroyed) this.#takeClient(socket);
    } catch (error) {
      this.#ground.meter.refused();
      const facts = { listener: this.settings.name, proxy, err: error };
      this.#ground.log.info(facts, 'a connection of a proxy was closed');
    } finally {
      this.#unannounced.delete(socket);
    }
  }

  #takeClient(socket: Socket): void {
    if (this.settings.tls === 'implicit' && !this.#admitHandshake(socket)) return;
    this.#server.take(socket);
  }

  /** Before a handshake nobody can be told why there is no place: the connection is closed. */
  #admitHandshake(socket: Socket): boolean {
    const client = this.#clientOf(socket);
    const place = client === undefined ? undefined : this.#clients.enter(client.address);
    if (place?.place === 'given') {
      socket.once('close', () => place.leave());
      return true;
    }
    this.#ground.meter.refused();
    this.#ground.log.debug(
      { listener: this.settings.name, remote: client?.address },
      'a connection was closed: no place',
    );
    socket.on('error', () => undefined).destroy();
    return false;
  }

  /** Who is at the other end, or behind the proxy there; undefined when the connection is over. */
  #clientOf(socket: Socket): ForwardedPeer | undefined {
    const { remoteAddress, remotePort } = socket;
    if (remoteAddress === undefined) return undefined;
    return (
      this.#forwarded.get(transportKey(socket)) ?? { address: normalAddress(remoteAddress), port: remotePort ?? 0 }
    );
  }

  /** New sessions, and new STARTTLS handshakes, use this certificate. */
  renew(material: TlsMaterial): void {
    this.#server.updateSecureContext({ ...material });
  }

  /** Its door leads elsewhere now: the sessions go on to their end, as long as they take, and then `done` runs. */
  retire(done: () => void): void {
    this.#retired = done;
  }

  /** Ends idle sessions; resolves when the others are done, or cuts them after `graceMs`. */
  async close(graceMs: number): Promise<void> {
    this.#stopping = true;
    this.#server.stop();
    for (const socket of this.#unannounced) socket.destroy();
    for (const connection of this.#connections) connection.shutdown();
    if (this.#connections.size > 0) await this.#untilEmpty(graceMs);
    for (const connection of this.#connections) connection.cut();
    clearInterval(this.#timer);
  }

  #untilEmpty(graceMs: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, graceMs);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  #accept(socket: Socket): void {
    const remote = this.#clientOf(socket);
    if (remote === undefined || this.#refused >= mostRefused) {
      socket.on('error', () => undefined);
      socket.destroy();
      return;
    }
    const { address } = remote;
    // With implicit TLS the place was taken before the handshake, and is left when the socket closes.
    const place = this.settings.tls === 'implicit' ? undefined : this.#clients.enter(address);
    const given = place === undefined || place.place === 'given';
    if (!given) this.#refused += 1;
    const peer = {
      listener: { name: this.settings.name, mode: this.settings.mode },
      remote,
      exempt: this.#clients.isExempt(address),
      localAddress: normalAddress(socket.localAddress ?? ''),
    };
    const connection = new Connection(this.#ground, socket, peer, (closed) => {
      if (place?.place === 'given') place.leave();
      else if (!given) this.#refused -= 1;
      this.#connections.delete(closed);
      if (this.#connections.size === 0) this.#wake();
    });
    this.#connections.add(connection);
    this.#accepted += 1;
    if (this.#stopping) connection.start(replies.shutdown);
    else connection.start(given ? undefined : replies.tooManySessions);
  }

  get #limits(): ReturnType<ListenerGround['settings']>['limits'] {
    return this.#ground.settings().limits;
  }

  #sweep(): void {
    const now = this.#ground.clock.monotonic();
    for (const connection of this.#connections) connection.check(now);
    this.#server.checkHandshakes(now, this.#limits.tlsSeconds);
    if (this.#retired !== undefined) this.#endWhenEmpty(this.#retired);
  }

  #endWhenEmpty(done: () => void): void {
    this.#emptySweeps =
      this.#connections.size + this.#unannounced.size + this.#server.pending === 0 ? this.#emptySweeps + 1 : 0;
    if (this.#emptySweeps < 2) return;
    clearInterval(this.#timer);
    done();
  }
}

/** A TLS socket has the same as the socket below it. */
const transportKey = ({ remoteAddress, remotePort }: Socket): string => `${remoteAddress} ${remotePort}`;
