import { constants } from 'node:crypto';
import { createServer, type Server, type Socket } from 'node:net';
import { DEFAULT_CIPHERS, type TLSSocketOptions } from 'node:tls';
import { SMTPServer } from 'smtp-server';
import * as library from 'smtp-server/lib/smtp-connection.js';
import { turns } from '../../turns.js';
import { connectionShares } from '../../net/process-limits.js';
import type { InheritedSockets } from '../../net/inherited-sockets.js';
import { normalAddress } from '../../net/ip-address.js';
import { type NetworkSet, parseNetworks } from '../../net/networks.js';
import { type ListenPlace, placeText } from '../../net/listening-place.js';
import type { TlsMaterial } from '../../net/tls-material.js';
import { startError } from '../../problem.js';
import { replies } from '../protocol/replies.js';
import { Connection } from './connection.js';
import type { ClientLimits } from './limits.js';
import type { ListenerContext } from './listener-context.js';
import type { ListenerSettings } from './listener-options.js';
import { type ForwardedPeer, readProxyHeader } from './proxy-header.js';

/** Beyond the limit this many connections still get a 421; further ones are closed silently. */
const maxRefused = Math.min(256, connectionShares().refused);

/** One configured listener and its sessions. */
export class Listener {
  readonly #context: ListenerContext;
  readonly #server: MailServer;
  readonly #clients: ClientLimits;
  readonly #sweepMs: number;
  readonly #proxies: NetworkSet;
  /** Proxied connections whose header has not arrived yet. */
  readonly #unannounced = new Set<Socket>();
  /** The client behind a proxy, by the proxy's own address and port. */
  readonly #forwarded = new Map<string, ForwardedPeer>();
  readonly #connections = new Set<Connection>();
  #timer: NodeJS.Timeout | undefined;
  #stopping = false;
  #retired: (() => void) | undefined;
  /** Consecutive checks without any session: a new connection needs a turn of the event loop. */
  #emptySweeps = 0;
  /** Clients that are being refused with a reply. */
  #refused = 0;
  #wake: () => void = () => undefined;
  #accepted = 0;

  constructor({
    context,
    material,
    ticketKeys,
    clients,
    sweepMs,
  }: {
    readonly context: Omit<ListenerContext, 'tlsOptions'>;
    readonly material: TlsMaterial | undefined;
    /** Of TLS session tickets: 48 random bytes, the same for all listeners. */
    readonly ticketKeys: Buffer;
    readonly clients: ClientLimits;
    /** Interval of the checks of deadlines, in milliseconds. */
    readonly sweepMs: number;
  }) {
    this.#clients = clients;
    this.#sweepMs = sweepMs;
    this.#proxies = parseNetworks(context.listener.proxyProtocol);
    this.#server = new MailServer({
      tls: context.listener.tls,
      material,
      ticketKeys,
      ciphers: context.listener.ciphers,
      maxPending: context.settings().limits.clients,
      accept: (socket) => this.#beginSession(socket),
    });
    // Failed handshakes, and connections that broke before their session began.
    this.#server.on('error', (error: Error) => {
      context.log.debug({ listener: context.listener.name, err: error }, 'a connection failed before it was a session');
    });
    this.#context = { ...context, tlsOptions: () => this.#server.startTlsOptions };
  }

  get settings(): ListenerSettings {
    return this.#context.listener;
  }

  get sessions(): { readonly open: number; readonly total: number } {
    return { open: this.#connections.size, total: this.#accepted };
  }

  /** Starts the checks of deadlines. */
  start(): void {
    this.#timer ??= setInterval(() => this.#sweep(), this.#sweepMs).unref();
  }

  /** Takes a connection from its listening socket. */
  accept(socket: Socket): void {
    const { remoteAddress } = socket;
    if (remoteAddress !== undefined && this.#proxies.has(remoteAddress)) void this.#acceptFromProxy(socket);
    else this.#acceptClient(socket);
  }

  async #acceptFromProxy(socket: Socket): Promise<void> {
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
      if (!socket.destroyed) this.#acceptClient(socket);
    } catch (error) {
      this.#context.meter.refused();
      const facts = { listener: this.settings.name, proxy, err: error };
      this.#context.log.info(facts, 'a connection of a proxy was closed');
    } finally {
      this.#unannounced.delete(socket);
    }
  }

  #acceptClient(socket: Socket): void {
    if (this.settings.tls === 'implicit' && !this.#admitHandshake(socket)) return;
    this.#server.accept(socket);
  }

  /** Before a TLS handshake no reply is possible: the connection is closed. */
  #admitHandshake(socket: Socket): boolean {
    const client = this.#clientOf(socket);
    const place = client === undefined ? undefined : this.#clients.enter(client.address);
    if (place?.place === 'given') {
      socket.once('close', () => place.leave());
      return true;
    }
    this.#context.meter.refused();
    this.#context.log.debug(
      { listener: this.settings.name, remote: client?.address },
      'a connection was closed: no place',
    );
    socket.on('error', () => undefined).destroy();
    return false;
  }

  /** The client, or the client behind a proxy; undefined when the connection is over. */
  #clientOf(socket: Socket): ForwardedPeer | undefined {
    const { remoteAddress, remotePort } = socket;
    if (remoteAddress === undefined) return undefined;
    return (
      this.#forwarded.get(transportKey(socket)) ?? { address: normalAddress(remoteAddress), port: remotePort ?? 0 }
    );
  }

  /** New sessions and STARTTLS handshakes use this certificate. */
  renew(material: TlsMaterial): void {
    this.#server.updateSecureContext({ ...material });
  }

  /** A session whose ticket has other keys is not resumed: its client makes a full handshake. */
  replaceTicketKeys(ticketKeys: Buffer): void {
    if (this.settings.tls !== 'none') this.#server.updateSecureContext({ ticketKeys });
  }

  /** The socket now belongs to another listener; existing sessions drain, then `done` runs. */
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

  #beginSession(socket: Socket): void {
    const remote = this.#clientOf(socket);
    if (remote === undefined || this.#refused >= maxRefused) {
      socket.on('error', () => undefined);
      socket.destroy();
      return;
    }
    const { address } = remote;
    // With implicit TLS the session was counted before the handshake, until the socket closes.
    const place = this.settings.tls === 'implicit' ? undefined : this.#clients.enter(address);
    const given = place === undefined || place.place === 'given';
    if (!given) this.#refused += 1;
    const peer = {
      listener: { name: this.settings.name, mode: this.settings.mode },
      remote,
      exempt: this.#clients.isExempt(address),
      localAddress: () => normalAddress(socket.localAddress ?? ''),
    };
    const connection = new Connection(this.#context, socket, peer, (closed) => {
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

  get #limits(): ReturnType<ListenerContext['settings']>['limits'] {
    return this.#context.settings().limits;
  }

  #sweep(): void {
    const now = this.#context.clock.monotonic();
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

/** Exported by smtp-server for its own use, and left out of its declarations; a contract test holds it to this. */
const { createTLSSocketOptions } = library as unknown as {
  readonly createTLSSocketOptions: (server: SMTPServer) => TLSSocketOptions;
};

interface MailServerOptions {
  readonly tls: 'none' | 'starttls' | 'implicit';
  readonly material: TlsMaterial | undefined;
  readonly ticketKeys: Buffer;
  readonly ciphers: 'recommended' | 'compatible';
  /** Current handshakes of implicit TLS. */
  readonly maxPending: number;
  /** Called with a new connection; with implicit TLS, after its handshake. */
  readonly accept: (socket: Socket) => void;
}

/**
 * Ephemeral keys and authenticated encryption alone (RFC 9325 §4.2), with the suites of TLS 1.3; or what Node takes.
 */
const cipherLists = {
  recommended: [
    'TLS_AES_256_GCM_SHA384',
    'TLS_CHACHA20_POLY1305_SHA256',
    'TLS_AES_128_GCM_SHA256',
    'ECDHE-ECDSA-AES128-GCM-SHA256',
    'ECDHE-RSA-AES128-GCM-SHA256',
    'ECDHE-ECDSA-AES256-GCM-SHA384',
    'ECDHE-RSA-AES256-GCM-SHA384',
    'ECDHE-ECDSA-CHACHA20-POLY1305',
    'ECDHE-RSA-CHACHA20-POLY1305',
  ].join(':'),
  compatible: DEFAULT_CIPHERS,
} as const;

/**
 * smtp-server for its TLS and certificates; it never listens. With implicit TLS it passes the socket on in `connect`,
 * before its own connection starts.
 */
class MailServer extends SMTPServer {
  readonly #accept: (socket: Socket) => void;
  readonly #tls: MailServerOptions['tls'];
  /** Start of each pending handshake, in monotonic milliseconds. */
  readonly #pendingSince = new Map<Socket, number>();

  constructor(options: MailServerOptions) {
    super({
      secure: options.tls === 'implicit',
      // Keeps smtp-server from warning about its built-in certificate, which is never used. What clients are offered is
      // in `Session`.
      hideSTARTTLS: options.tls !== 'starttls',
      logger: false,
      disableReverseLookup: true,
      allowHalfOpen: true,
      minVersion: 'TLSv1.2',
      // Disables TLS renegotiation, which costs the server work on demand of the client.
      secureOptions: constants.SSL_OP_NO_RENEGOTIATION,
      ciphers: cipherLists[options.ciphers],
      // Clients show no certificate. Without this each context reads the authorities of Node, the first one for 100 ms.
      ca: [],
      ticketKeys: options.ticketKeys,
      maxClients: options.maxPending,
      ...options.material,
    });
    this.#accept = options.accept;
    this.#tls = options.tls;
  }

  /** Takes a new connection; with implicit TLS, smtp-server does the handshake. */
  accept(socket: Socket): void {
    if (this.#tls === 'implicit') this.server.emit('connection', socket);
    else this.#accept(socket);
  }

  override connect(socket: Socket): void {
    this.#accept(socket);
  }

  get startTlsOptions(): TLSSocketOptions | undefined {
    return this.#tls === 'starttls' ? createTLSSocketOptions(this) : undefined;
  }

  /**
   * Destroys what is not a session yet. smtp-server begins a handshake one turn after the connection, and TLS on a
   * destroyed socket ends the process, so pending ones are destroyed a turn later.
   */
  stop(): void {
    setImmediate(() => this.close());
  }

  /** Current handshakes of implicit TLS. */
  get pending(): number {
    return this._pendingSockets.size;
  }

  /** Destroys implicit TLS handshakes that take too long, even if bytes trickle in. */
  checkHandshakes(nowMs: number, maxSeconds: number): void {
    for (const socket of this.#pendingSince.keys()) {
      if (!this._pendingSockets.has(socket)) this.#pendingSince.delete(socket);
    }
    for (const [socket, top] of this._pendingSockets) {
      const since = this.#pendingSince.get(socket);
      if (since === undefined) this.#pendingSince.set(socket, nowMs);
      else if (nowMs - since > maxSeconds * 1000) top.destroy();
    }
  }
}

type AcceptSocket = (socket: Socket) => void;

/** Maximum of connections that wait for their listener; more are closed. */
const maxHeld = 1000;

/** Identity of a listening socket. A free port is another one for each listener. */
export function placeOf(listener: ListenerSettings): string {
  const place = `${placeText(listener)}${listener.reusePort ? ', shared' : ''}`;
  const isFree = listener.port === 0 && !isInherited(listener);
  return isFree ? `${place} for ${listener.name}` : place;
}

/** Whether the socket was inherited. */
export const isInherited = ({ fd, socket }: ListenerSettings): boolean => fd !== undefined || socket !== undefined;

/** A listening socket. Its listener may change while it listens, so that a reload loses no connection. */
export class ListeningSocket {
  readonly place: string;
  readonly #settings: ListenerSettings;
  readonly #sockets: Pick<InheritedSockets, 'find'>;
  #server: Server | undefined;
  #accept: AcceptSocket | undefined;
  #waiting: Socket[] = [];

  constructor(settings: ListenerSettings, sockets: Pick<InheritedSockets, 'find'>) {
    this.place = placeOf(settings);
    this.#settings = settings;
    this.#sockets = sockets;
  }

  get listening(): boolean {
    return this.#server?.listening === true;
  }

  /** The configured port: 0 for any. */
  get wantedPort(): number {
    return this.#settings.port;
  }

  get isInherited(): boolean {
    return isInherited(this.#settings);
  }

  /** Connections wait until a listener takes them. Throws a start error when the address is not available. */
  async listen(): Promise<void> {
    const { name, socket, host, port, reusePort } = this.#settings;
    const fd = socket === undefined ? this.#settings.fd : this.#sockets.find(socket, `SMTP listener ${name}`);
    const server = createServer({ allowHalfOpen: true }, (socket) => this.#opened(socket));
    this.#server = server;
    await new Promise<void>((resolve, reject) => {
      const fail = (error: Error): void => reject(cannotListen(this.#settings, error));
      server.once('error', fail);
      const place: ListenPlace = { host, port, reusePort };
      server.listen(fd === undefined ? place : { fd }, () => {
        server.off('error', fail);
        // Later errors concern one connection that could not be accepted.
        server.on('error', () => undefined);
        resolve();
      });
    });
    const bound = server.address();
    if (typeof bound === 'object' && bound !== null) return;
    // Clients of a Unix socket have no address for limits.
    this.close();
    throw startError(`SMTP listener ${name} cannot take ${this.place}: it is no TCP socket.`);
  }

  /** Passes connections to `take` from now on, those that wait first. */
  passTo(take: AcceptSocket): void {
    this.#accept = take;
    const held = this.#waiting;
    this.#waiting = [];
    for (const socket of held) if (!socket.destroyed) take(socket);
  }

  address(): { readonly host: string; readonly port: number } {
    const bound = this.#server?.address();
    return typeof bound === 'object' && bound !== null ? { host: bound.address, port: bound.port } : this.#settings;
  }

  /** Stops accepting; existing sessions continue. May be opened again. */
  close(): void {
    this.#server?.close();
    this.#server = undefined;
    for (const socket of this.#waiting) socket.destroy();
    this.#waiting = [];
  }

  #opened(socket: Socket): void {
    turns.accepted();
    if (this.#accept !== undefined) {
      this.#accept(socket);
      return;
    }
    socket.on('error', () => undefined);
    if (this.#waiting.length >= maxHeld) socket.destroy();
    else this.#waiting.push(socket);
  }
}

const reasons: Readonly<Record<string, string>> = {
  EADDRINUSE: 'another program uses it; stop that, or choose another port',
  EACCES: 'this user may not use it; choose a port above 1023',
  EADDRNOTAVAIL: 'this machine has no such address',
  ENOTFOUND: 'there is no host of that name',
  EINVAL: 'it is not a socket that listens',
};

function cannotListen(settings: ListenerSettings, error: NodeJS.ErrnoException): Error {
  const { name } = settings;
  const place = placeText(settings);
  const reason = reasons[error.code ?? ''] ?? `the system says ${error.code ?? error.name}`;
  return startError(`SMTP listener ${name} cannot listen on ${place}: ${reason}.`, error);
}

/** Whether `listen` failed because the address is in use. */
export const isTaken = (error: unknown): boolean =>
  error instanceof Error && (error.cause as NodeJS.ErrnoException | undefined)?.code === 'EADDRINUSE';
