import { createServer, STATUS_CODES, type RequestListener, type Server, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { clientKey } from '../../net/ip-address.js';
import type { Log } from '../../log/log.js';
import { connectionShares } from '../../net/process-limits.js';
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
}

/** The listening side: time limits, connection limits, responses to invalid HTTP. */
export class HttpServer {
  readonly #server: Server;
  readonly #log: Log;
  readonly #isExempt: (address: string) => boolean;
  readonly #perClient = new Map<string, number>();
  readonly #reserved = new WeakSet<Socket>();
  #limits: HttpLimits;
  #connections = 0;
  #requests = 0;

  constructor({ listener, limits, isExempt, log }: HttpServerOptions) {
    this.#log = log;
    this.#limits = limits;
    this.#isExempt = isExempt;
    const handle: RequestListener = (request, response) => {
      this.#requests += 1;
      const isReserved = this.#reserved.has(request.socket);
      if (isReserved) response.setHeader('Connection', 'close');
      if (isReserved && !reservedPath.test(request.url ?? '')) refuseForNow(response);
      else listener(request, response);
    };
    const options = { maxHeaderSize: limits.headerBytes, connectionsCheckingInterval: 1000, requireHostHeader: true };
    this.#server = createServer(options, handle);
    this.#server.on('checkContinue', handle);
    this.#server.on('clientError', answerBrokenRequest);
    this.#server.on('connection', (socket: Socket) => this.#admit(socket));
    this.#server.on('timeout', destroyUnlessWorking);
    this.limit(limits);
  }

  /** Counts a connection until it is closed, or closes it at once when it exceeds a limit. */
  #admit(socket: Socket): void {
    const key = clientKey(socket.remoteAddress ?? '');
    const ofClient = this.#perClient.get(key) ?? 0;
    const isReserved = this.#connections >= Math.min(this.#limits.maxConnections, shares.http);
    const limit = isReserved ? 2 : this.#limits.connectionsPerClient;
    if (ofClient >= limit && !this.#isExempt(socket.remoteAddress ?? '')) {
      socket.destroy();
      return;
    }
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
    this.#server.headersTimeout = Math.min(limits.headersSeconds, limits.requestSeconds) * 1000;
    this.#server.requestTimeout = limits.requestSeconds * 1000;
    this.#server.keepAliveTimeout = limits.keepAliveSeconds * 1000;
    // A client that does not read its response is cut off like one that does not finish its request.
    this.#server.timeout = limits.requestSeconds * 1000;
    this.#server.maxConnections = Math.min(limits.maxConnections, shares.http) + reservedConnections;
    this.#server.maxRequestsPerSocket = 10_000;
  }

  async listen(place: HttpPlace): Promise<void> {
    const server = this.#server;
    await new Promise<void>((resolve, reject) => {
      server.once('error', (cause: NodeJS.ErrnoException) => reject(cannotListen(place, cause)));
      const { fd, host, port } = { fd: undefined, host: '', port: undefined, ...place };
      server.listen(fd === undefined ? { host: host.replace(/^\[|\]$/g, ''), port } : { fd }, resolve);
    });
    // A Unix socket has no address.
    if ('socket' in place && typeof (server.address() ?? '') === 'string') {
      server.close();
      throw startError(`HTTP cannot take the socket ${place.socket}: it is no TCP socket.`);
    }
    server.removeAllListeners('error');
    server.on('error', (error) => this.#log.error({ err: error }, 'the HTTP listener failed'));
  }

  get listening(): boolean {
    return this.#server.listening;
  }

  address(): { readonly host: string; readonly port: number } {
    const address = this.#server.address();
    if (address === null || typeof address === 'string') throw new Error('the HTTP server is not listening');
    return { host: address.address, port: address.port };
  }

  /** Stops accepting, lets running requests finish for that long, then closes the rest. */
  async close(graceMs: number): Promise<void> {
    if (!this.#server.listening) return;
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    this.#server.closeIdleConnections();
    const timer = setTimeout(() => this.#server.closeAllConnections(), graceMs);
    await closed;
    clearTimeout(timer);
  }
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

function refuseForNow(response: ServerResponse): void {
  const body = `${JSON.stringify({ type: 'about:blank', title: 'Service Unavailable', status: 503 })}\n`;
  response.writeHead(503, {
    'Content-Type': 'application/problem+json',
    'Content-Length': body.length,
    'Retry-After': '5',
    Connection: 'close',
  });
  response.end(body);
}
