import { constants } from 'node:crypto';
import type { Socket } from 'node:net';
import { DEFAULT_CIPHERS, type TLSSocketOptions } from 'node:tls';
import { SMTPServer } from 'smtp-server';
import * as library from 'smtp-server/lib/smtp-connection.js';
import type { TlsMaterial } from '../../net/tls-material.js';

/** Exported by smtp-server for its own use, and left out of its declarations; a contract test holds it to this. */
const { createTLSSocketOptions } = library as unknown as {
  readonly createTLSSocketOptions: (server: SMTPServer) => TLSSocketOptions;
};

export interface MailServerOptions {
  readonly tls: 'none' | 'starttls' | 'implicit';
  readonly material: TlsMaterial | undefined;
  readonly ciphers: 'recommended' | 'compatible';
  /** Handshakes of implicit TLS at once. */
  readonly mostPending: number;
  /** Takes a connection once it is there; with implicit TLS, once its handshake is done. */
  readonly accept: (socket: Socket) => void;
}

/** Ephemeral keys and authenticated encryption alone (RFC 9325 §4.2), with the suites of TLS 1.3; or what Node takes. */
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

/** smtp-server as listener and TLS layer. Its seam is `connect`, where its own connection would begin. */
export class MailServer extends SMTPServer {
  readonly #accept: (socket: Socket) => void;
  readonly #tls: MailServerOptions['tls'];
  /** When a handshake that is still going on was first seen, in monotonic milliseconds. */
  readonly #pendingSince = new Map<Socket, number>();

  constructor(options: MailServerOptions) {
    super({
      secure: options.tls === 'implicit',
      // Keeps smtp-server from warning about the certificate of its own, which is never used.
      hideSTARTTLS: options.tls !== 'starttls',
      logger: false,
      disableReverseLookup: true,
      allowHalfOpen: true,
      minVersion: 'TLSv1.2',
      // A client could make the server do the work of a handshake again and again.
      secureOptions: constants.SSL_OP_NO_RENEGOTIATION,
      ciphers: cipherLists[options.ciphers],
      maxClients: options.mostPending,
      ...options.material,
    });
    this.#accept = options.accept;
    this.#tls = options.tls;
  }

  /** Takes a connection that came in: where a handshake comes first, the library makes it. */
  take(socket: Socket): void {
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
   * Cuts what is no session yet. smtp-server begins a handshake one turn of the event loop after the connection, and TLS on
   * a socket that was destroyed meanwhile ends the process: so what is pending is cut a turn later.
   */
  stop(): void {
    setImmediate(() => this.close());
  }

  /** Handshakes of implicit TLS that are going on. */
  get pending(): number {
    return this._pendingSockets.size;
  }

  /** Cuts handshakes of implicit TLS that take too long, whatever trickles in. */
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
