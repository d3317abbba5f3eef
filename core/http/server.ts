import { createServer, STATUS_CODES, type RequestListener, type Server } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Log } from '../log.js';
import { startError } from '../start-error.js';
import type { HttpLimits } from './options.js';

/** An address, or a socket that was listening before this process began. */
export type HttpPlace =
  { readonly host: string; readonly port: number } | { readonly socket: string; readonly fd: number };

/** The listening side: time limits, connection limit, answers to what is no HTTP. */
export class HttpServer {
  readonly #server: Server;
  readonly #log: Log;
  #connections = 0;
  #requests = 0;

  constructor(listener: RequestListener, limits: HttpLimits, log: Log) {
    this.#log = log;
    const options = { maxHeaderSize: limits.headerBytes, connectionsCheckingInterval: 1000, requireHostHeader: true };
    this.#server = createServer(options, listener);
    this.#server.on('checkContinue', listener);
    this.#server.on('clientError', answerBrokenRequest);
    this.#server.on('connection', (socket: Socket) => {
      this.#connections += 1;
      socket.once('close', () => (this.#connections -= 1));
    });
    this.#server.on('request', () => (this.#requests += 1));
    this.limit(limits);
  }

  figures(): Readonly<Record<string, number>> {
    return { connections: this.#connections, requestsTotal: this.#requests };
  }

  /** Takes new limits; connections that are open keep theirs. */
  limit(limits: HttpLimits): void {
    this.#server.headersTimeout = Math.min(limits.headersSeconds, limits.requestSeconds) * 1000;
    this.#server.requestTimeout = limits.requestSeconds * 1000;
    this.#server.keepAliveTimeout = limits.keepAliveSeconds * 1000;
    this.#server.maxConnections = limits.maxConnections;
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

  /** Accepts nothing new, lets running requests finish for that long, then closes what is left. */
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

/** What the parser refuses never becomes a request: one answer, and the connection is closed. */
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
}
