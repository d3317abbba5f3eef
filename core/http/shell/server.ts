import { constants } from 'node:crypto';
import {
  createServer,
  type IncomingMessage,
  STATUS_CODES,
  type RequestListener,
  type Server,
  type ServerResponse,
} from 'node:http';
import {
  createServer as createTlsServer,
  type Server as TlsServer,
  type ServerOptions as TlsServerOptions,
} from 'node:https';
import type { Server as NetServer, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { SecureContext, TLSSocket } from 'node:tls';
import { onePass } from '../../concurrency.js';
import { clientKey } from '../../net/ip-address.js';
import type { Log } from '../../log/log.js';
import { connectionShares } from '../../net/process-limits.js';
import type { TlsMaterial } from '../../net/tls-material.js';
import { startError } from '../../problem.js';
import type { HttpLimits } from '../options.js';

/** An address, or an inherited socket. */
export type HttpPlace =
  { readonly host: string; readonly port: number } | { readonly socket: string; readonly fd: number };

const shares = connectionShares();
/** Connections beyond the limit, on which only health and metrics are answered. */
const reservedConnections = Math.min(32, shares.reserved);
const reservedPath = /^\/(?:health|metrics)(?:\/(?:extended|prometheus|graphite))?(?:\?|$)/;
/** A reserved connection is for one request, which must come at once. */
const reservedMs = 3000;
/** Time for a client to read a refusal; then the socket is destroyed, whether or not the client closes its side. */
const lingerMs = 1000;

export interface HttpServerOptions {
  readonly listener: RequestListener;
  readonly limits: HttpLimits;
  /** Clients without a limit of connections, such as reverse proxies. */
  readonly isExempt: (address: string) => boolean;
  readonly log: Log;
  /** For the HTTPS listener; none if absent. */
  readonly tls?: HttpsInput | undefined;
}

export interface HttpsInput {
  readonly place: { readonly host: string; readonly port: number };
  readonly material: TlsMaterial;
  /** Certificate that answers a TLS-ALPN-01 challenge for the name (RFC 8737 §3). */
  readonly challengeFor: (name: string) => SecureContext | undefined;
}

/** ALPN protocol of TLS-ALPN-01 challenges (RFC 8737 §3). */
const challengeProtocol = 'acme-tls/1';
const handshakeMs = 15_000;

/** The listening side: time limits, connection limits, responses to invalid HTTP. */
export class HttpServer {
  readonly #server: Server;
  readonly #secure: TlsServer | undefined;
  readonly #tlsPlace: HttpsInput['place'] | undefined;
  readonly #log: Log;
  readonly #isExempt: (address: string) => boolean;
  readonly #perClient = new Map<string, number>();
  readonly #reserved = new WeakSet<Socket>();
  /** Those of requests that wait for the pass. */
  readonly #deferred = new WeakSet<Socket>();
  /** Those whose time is over, and the request that was in the socket all the same. */
  readonly #late = new Map<Duplex, IncomingMessage | undefined>();
  #limits: HttpLimits;
  #connections = 0;
  #requests = 0;

  constructor({ listener, limits, isExempt, log, tls }: HttpServerOptions) {
    this.#log = log;
    this.#limits = limits;
    this.#isExempt = isExempt;
    const handle: RequestListener = (request, response) => {
      this.#requests += 1;
      if (this.#late.has(request.socket)) this.#late.set(request.socket, request);
      const isReserved = this.#reserved.has(request.socket);
      if (isReserved) response.setHeader('Connection', 'close');
      if (isReserved && !reservedPath.test(request.url ?? '')) refuseForNow(response);
      else {
        this.#deferred.add(request.socket);
        onePass.add(() => {
          this.#deferred.delete(request.socket);
          if (!request.destroyed) listener(request, response);
        });
      }
    };
    const options = { maxHeaderSize: limits.headerBytes, connectionsCheckingInterval: 1000, requireHostHeader: true };
    this.#server = createServer(options, handle);
    this.#tlsPlace = tls?.place;
    this.#secure = tls && secureServer(tls, { ...options, handshakeTimeout: handshakeMs }, handle);
    for (const server of this.#servers) {
      server.on('checkContinue', handle);
      server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
        if (error.code === 'ERR_HTTP_REQUEST_TIMEOUT') this.#lookOnceMore(error, socket);
        else answerBrokenRequest(error, socket);
      });
      server.on('connection', (socket: Socket) => this.#admit(socket, server === this.#secure));
      server.on(server === this.#secure ? 'secureConnection' : 'connection', (socket: Socket) =>
        answerHalfClosed(server, socket, () => this.#deferred.has(socket)),
      );
      server.on('timeout', (socket: Socket) => {
        if (!this.#late.has(socket)) destroyUnlessWorking(socket);
      });
    }
    this.limit(limits);
  }

  /**
   * After a pause of this process, Node.js checks times before it reads sockets. A request that is complete once they
   * are read came in time.
   */
  #lookOnceMore(error: NodeJS.ErrnoException, socket: Duplex): void {
    this.#late.set(socket, undefined);
    setImmediate(() => {
      const isComplete = this.#late.get(socket)?.complete === true;
      this.#late.delete(socket);
      if (!isComplete) answerBrokenRequest(error, socket);
    });
  }

  /** Counts a connection until it is closed, or closes it at once when it exceeds a limit. */
  #admit(socket: Socket, isHandshake: boolean): void {
    const key = clientKey(socket.remoteAddress ?? '');
    const ofClient = this.#perClient.get(key) ?? 0;
    const isReserved = this.#connections >= Math.min(this.#limits.maxConnections, shares.http);
    const limit = isReserved ? 2 : this.#limits.connectionsPerClient;
    if (isReserved && isHandshake) {
      socket.destroy();
      return;
    }
    if (ofClient >= limit && !this.#isExempt(socket.remoteAddress ?? '')) {
      socket.destroy();
      return;
    }
    onePass.accepted();
    this.#connections += 1;
    this.#perClient.set(key, ofClient + 1);
    socket.once('close', () => this.#forget(key));
    if (!isReserved) return;
    this.#reserved.add(socket);
    setTimeout(() => destroyUnlessWorking(socket), reservedMs).unref();
  }

  #forget(key: string): void {
    this.#connections -= 1;
    const others = (this.#perClient.get(key) ?? 1) - 1;
    if (others > 0) this.#perClient.set(key, others);
    else this.#perClient.delete(key);
  }

  figures(): Readonly<Record<string, number>> {
    return { connections: this.#connections, requestsTotal: this.#requests };
  }

  /** Applies new limits; open connections keep theirs. */
  limit(limits: HttpLimits): void {
    this.#limits = limits;
    for (const server of this.#servers) {
      server.headersTimeout = Math.min(limits.headersSeconds, limits.requestSeconds) * 1000;
      server.requestTimeout = limits.requestSeconds * 1000;
      server.keepAliveTimeout = limits.keepAliveSeconds * 1000;
      // A client that does not read its response is cut off like one that does not finish its request.
      server.timeout = limits.requestSeconds * 1000;
      server.maxConnections = Math.min(limits.maxConnections, shares.http) + reservedConnections;
      server.maxRequestsPerSocket = 10_000;
    }
  }

  get #servers(): readonly (Server | TlsServer)[] {
    return this.#secure === undefined ? [this.#server] : [this.#server, this.#secure];
  }

  /** New connections use this certificate. */
  renew({ key, cert }: TlsMaterial): void {
    this.#secure?.setSecureContext({ key, cert, ...secureOptions });
  }

  /** Opens the plain listener, then the one with TLS. Throws a start error. */
  async listen(place: HttpPlace): Promise<void> {
    const server = this.#server;
    await this.#open(server, place);
    // A Unix socket has no address.
    if ('socket' in place && typeof (server.address() ?? '') === 'string') {
      server.close();
      throw startError(`HTTP cannot take the socket ${place.socket}: it is no TCP socket.`);
    }
    if (this.#secure === undefined || this.#tlsPlace === undefined) return;
    try {
      await this.#open(this.#secure, this.#tlsPlace);
    } catch (error) {
      server.close();
      throw error;
    }
  }

  async #open(server: NetServer, place: HttpPlace): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      server.once('error', (cause: NodeJS.ErrnoException) => reject(cannotListen(place, cause)));
      const { fd, host, port } = { fd: undefined, host: '', port: undefined, ...place };
      server.listen(fd === undefined ? { host: host.replace(/^\[|\]$/g, ''), port } : { fd }, resolve);
    });
    server.removeAllListeners('error');
    server.on('error', (error) => this.#log.error({ err: error }, 'the HTTP listener failed'));
  }

  get listening(): boolean {
    return this.#server.listening;
  }

  address(): { readonly host: string; readonly port: number } {
    return addressOf(this.#server);
  }

  /** Of the HTTPS listener; undefined without one. */
  tlsAddress(): { readonly host: string; readonly port: number } | undefined {
    return this.#secure?.listening === true ? addressOf(this.#secure) : undefined;
  }

  /** Stops accepting, lets running requests finish for that long, then closes the rest. */
  async close(graceMs: number): Promise<void> {
    const open = this.#servers.filter(({ listening }) => listening);
    const closed = open.map((server) => new Promise<void>((resolve) => server.close(() => resolve())));
    for (const server of open) server.closeIdleConnections();
    const timer = setTimeout(() => open.forEach((server) => server.closeAllConnections()), graceMs);
    await Promise.all(closed);
    clearTimeout(timer);
  }
}

/**
 * Answers a client that closes its sending side while its request waits for the pass. Node.js would discard the request,
 * unless `httpAllowHalfOpen` is set, which is missing in its type declarations. It is set only during that event.
 */
function answerHalfClosed(server: Server | TlsServer, socket: Socket, hasDeferred: () => boolean): void {
  const flags = server as { httpAllowHalfOpen?: boolean };
  socket.prependListener('end', () => {
    flags.httpAllowHalfOpen = hasDeferred();
  });
  socket.on('end', () => {
    flags.httpAllowHalfOpen = false;
  });
}

function addressOf(server: NetServer): { readonly host: string; readonly port: number } {
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('the HTTP server is not listening');
  return { host: address.address, port: address.port };
}

/** TLS 1.2 or newer, and no renegotiation, which costs the server work on demand of the client. */
const secureOptions = { minVersion: 'TLSv1.2', secureOptions: constants.SSL_OP_NO_RENEGOTIATION } as const;

/** Answers TLS-ALPN-01 challenges itself; no application data follows one (RFC 8737 §3). */
function secureServer(
  { material, challengeFor }: HttpsInput,
  options: TlsServerOptions,
  handle: RequestListener,
): TlsServer {
  const { key, cert } = material;
  const ALPNCallback = function (this: TLSSocket, { servername, protocols }: AlpnOffer): string | undefined {
    if (!protocols.includes(challengeProtocol)) return protocols.find((one) => one === 'http/1.1');
    const context = challengeFor(servername);
    if (context === undefined) return undefined;
    this.setKeyCert(context);
    return challengeProtocol;
  };
  const server = createTlsServer({ ...options, ...secureOptions, key, cert, ALPNCallback }, handle);
  server.prependListener('secureConnection', (socket) => {
    if (socket.alpnProtocol === challengeProtocol) socket.end();
  });
  return server;
}

interface AlpnOffer {
  readonly servername: string;
  readonly protocols: readonly string[];
}

function cannotListen(place: HttpPlace, cause: NodeJS.ErrnoException) {
  const reasons: Readonly<Record<string, string>> = {
    EADDRINUSE: 'another program uses that port; choose another with --http-port or http.port',
    EACCES: 'this user may not use that port; choose one above 1023',
    EADDRNOTAVAIL: 'this machine has no such address; correct http.host',
    ENOTFOUND: 'there is no such host; correct http.host',
    EINVAL: 'it is not a socket that listens',
  };
  const reason = reasons[cause.code ?? ''] ?? `the system refuses it (${cause.code ?? 'unknown reason'})`;
  const where = 'socket' in place ? `the socket ${place.socket}` : `${place.host}:${place.port}`;
  return startError(`HTTP cannot listen on ${where}: ${reason}.`, cause);
}

const statuses: Readonly<Record<string, number>> = {
  ERR_HTTP_REQUEST_TIMEOUT: 408,
  HPE_HEADER_OVERFLOW: 431,
  HPE_CHUNK_EXTENSIONS_OVERFLOW: 413,
};

/** An invalid request: one response, and the connection is closed. */
function answerBrokenRequest(error: NodeJS.ErrnoException, socket: Duplex): void {
  const started = (socket as Socket & { _httpMessage?: { headersSent: boolean } })._httpMessage?.headersSent === true;
  if (error.code === 'ECONNRESET' || !socket.writable || started) {
    socket.destroy();
    return;
  }
  const status = statuses[error.code ?? ''] ?? 400;
  const title = STATUS_CODES[status] ?? 'Bad Request';
  const body = `${JSON.stringify({ type: 'about:blank', title, status })}\n`;
  const head = [
    `HTTP/1.1 ${status} ${title}`,
    'Content-Type: application/problem+json',
    `Content-Length: ${body.length}`,
    'X-Content-Type-Options: nosniff',
    'Cache-Control: no-store',
    'Connection: close',
  ];
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`);
  setTimeout(() => socket.destroy(), lingerMs).unref();
}

/** An idle connection, or one whose client does not read; a slow handler keeps its socket. */
function destroyUnlessWorking(socket: Socket): void {
  const response = (socket as Socket & { _httpMessage?: object | null })._httpMessage;
  if (response === undefined || response === null || socket.writableLength > 0) socket.destroy();
}

export function refuseForNow(response: ServerResponse): void {
  const body = `${JSON.stringify({ type: 'about:blank', title: 'Service Unavailable', status: 503 })}\n`;
  response.writeHead(503, {
    'Content-Type': 'application/problem+json',
    'Content-Length': body.length,
    'Retry-After': '5',
    Connection: 'close',
  });
  response.end(body);
}
