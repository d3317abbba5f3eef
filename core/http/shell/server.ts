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
import type { Log } from '../../log/log.js';
import { connectionShares } from '../../net/process-limits.js';
import type { TlsMaterial } from '../../net/tls-material.js';
import { startError } from '../../problem.js';
import { turns } from '../../turns.js';
import type { HttpLimits } from '../options.js';
import { dataAndEnd, HttpConnection } from './connection.js';
import { type ConnectionEntry, ConnectionTable } from './connection-table.js';

/** An address, or an inherited socket. */
export type HttpPlace =
  { readonly host: string; readonly port: number } | { readonly socket: string; readonly fd: number };

const shares = connectionShares();
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
  readonly #table = new ConnectionTable();
  /** By socket, that of TLS where there is TLS. */
  readonly #connections = new WeakMap<
    Duplex,
    { readonly connection: HttpConnection; readonly entry: ConnectionEntry }
  >();
  /** Those whose time is over, and the request that was in the socket all the same. */
  readonly #late = new Map<Duplex, IncomingMessage | undefined>();
  #limits: HttpLimits;
  #requests = 0;

  constructor({ listener, limits, isExempt, log, tls }: HttpServerOptions) {
    this.#log = log;
    this.#limits = limits;
    this.#isExempt = isExempt;
    const handle: RequestListener = (request, response) => {
      this.#requests += 1;
      if (this.#late.has(request.socket)) this.#late.set(request.socket, request);
      this.#note(request, response);
      listener(request, response);
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
      server.on('connection', (socket: Socket) => this.#admit(socket));
      const opened = server === this.#secure ? 'secureConnection' : 'connection';
      let before: readonly unknown[] = [];
      server.prependListener(opened, (socket: Socket) => {
        before = dataAndEnd(socket);
      });
      server.on(opened, (socket: Socket) => this.#read(server, socket, before));
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
      this.#connections.get(socket)?.connection.readNow();
      const isComplete = this.#late.get(socket)?.complete === true;
      this.#late.delete(socket);
      if (!isComplete) answerBrokenRequest(error, socket);
    });
  }

  /** Counts a connection until it is closed, or closes it at once when it exceeds a limit. */
  #admit(socket: Socket): void {
    const { maxConnections, connectionsPerClient } = this.#limits;
    const limits = { maxConnections: Math.min(maxConnections, shares.http), connectionsPerClient };
    if (this.#table.admit(socket, limits, this.#isExempt(socket.remoteAddress ?? ''))) turns.accepted();
    else socket.destroy();
  }

  #read(server: Server | TlsServer, socket: Socket, before: readonly unknown[]): void {
    if (socket.destroyed) return;
    const entry = this.#table.find(socket);
    if (entry === undefined) {
      socket.destroy();
      return;
    }
    try {
      const connection = new HttpConnection(socket, entry.names, before, {
        ends: (end, mayAnswer) => endHalf(server, end, mayAnswer),
        answered: () => this.#table.isIdle(entry),
      });
      this.#connections.set(socket, { connection, entry });
    } catch (error) {
      this.#log.error({ err: error }, 'a connection cannot be read');
      socket.destroy();
    }
  }

  /** What its connection does until the request is answered. */
  #note(request: IncomingMessage, response: ServerResponse): void {
    const opened = this.#connections.get(request.socket);
    if (opened === undefined) return;
    const { 'content-length': length = '0', 'transfer-encoding': encoding } = request.headers;
    const isWhole = length === '0' && encoding === undefined;
    opened.connection.answering(request, response);
    this.#table.hasHeader(opened.entry, isWhole);
    if (!isWhole) request.once('end', () => this.#table.hasHeader(opened.entry, true));
  }

  figures(): Readonly<Record<string, number>> {
    return { connections: this.#table.count, requestsTotal: this.#requests };
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
 * Tells Node.js that the client has closed its sending side. Then it discards requests, unless `httpAllowHalfOpen` is
 * set, which is missing in its type declarations. It is set only for this.
 */
function endHalf(server: Server | TlsServer, end: () => void, mayAnswer: boolean): void {
  const flags = server as { httpAllowHalfOpen?: boolean };
  flags.httpAllowHalfOpen = mayAnswer;
  end();
  flags.httpAllowHalfOpen = false;
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
