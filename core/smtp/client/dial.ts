import { X509Certificate } from 'node:crypto';
import { connect as connectSocket, isIP, type Socket } from 'node:net';
import { connect as connectTls, type DetailedPeerCertificate, type TLSSocket } from 'node:tls';
import { type Dane, DaneFault, daneFault, usableTlsa } from '../../net/tlsa.js';
import { type Channel, timerMs } from './channel.js';
import { type RemoteServer, verifies } from './remote-server.js';
import { clientFailure, type ClientFailure, localFailure, timeoutFailure } from './failure.js';

export interface DialLimits {
  /** Timeout in milliseconds. */
  readonly ms: number;
  readonly signal: AbortSignal | undefined;
}

/** Opens a TCP connection. Rejects with a `ClientFailure`. */
export function dial(server: RemoteServer, { ms, signal }: DialLimits): Promise<Socket> {
  const { address, port, localAddress } = server;
  if (isIP(address) === 0) return Promise.reject(localFailure('connect', 'The server must be given by its IP address'));
  if (signal?.aborted === true) return Promise.reject(abortFailure('connect'));
  return new Promise((resolve, reject) => {
    const socket = connectSocket({ host: address, port, ...(localAddress !== undefined && { localAddress }) });
    const settle = (failure?: ClientFailure): void => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', aborted);
      socket.off('error', failed).off('connect', connected);
      if (failure === undefined) return resolve(socket);
      socket.on('error', () => undefined).destroy();
      reject(failure);
    };
    const connected = (): void => settle();
    const failed = (cause: NodeJS.ErrnoException): void => settle(connectFailure(cause));
    const aborted = (): void => settle(abortFailure('connect'));
    const timer = setTimeout(() => settle(timeoutFailure('connect')), timerMs(ms));
    signal?.addEventListener('abort', aborted, { once: true });
    socket.setNoDelay(true).once('connect', connected).once('error', failed);
  });
}

export function abortFailure(step: ClientFailure['step']): ClientFailure {
  return localFailure(step, 'The attempt was stopped here');
}

/** The error code of the system; never our addresses. */
const reasons: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'Connection refused',
  EHOSTUNREACH: 'The host cannot be reached',
  ENETUNREACH: 'The network cannot be reached',
  ETIMEDOUT: 'The server did not answer in time',
  ECONNRESET: 'The server reset the connection',
};

/** A missing file descriptor or local address is a local fault. */
const ours: ReadonlySet<string> = new Set([
  'EMFILE',
  'ENFILE',
  'EADDRNOTAVAIL',
  'EADDRINUSE',
  'EACCES',
  'EPERM',
  'ENOBUFS',
]);

function connectFailure(cause: NodeJS.ErrnoException): ClientFailure {
  const code = cause.code ?? '';
  if (ours.has(code)) return localFailure('connect', `No connection can be opened here (${code})`, cause);
  const text = reasons[code] ?? `The connection failed${code === '' ? '' : ` (${code})`}`;
  return clientFailure({ kind: 'connect', step: 'connect', code: 451, status: '4.4.1', text, cause });
}

/**
 * Upgrades the channel's connection to TLS. Resolves when the handshake is done; undefined when the channel has failed,
 * which then holds the failure.
 */
export async function secure(channel: Channel, server: RemoteServer, ms: number): Promise<ClientTls | undefined> {
  const { tls, address, host = address } = server;
  const name = tls.servername ?? host;
  let agreed: ClientTls | undefined;
  const make = (plain: Socket, ready: () => void): Socket => {
    const socket = connectTls({
      socket: plain,
      host: name,
      // SNI takes no IP addresses (RFC 6066 §3).
      servername: isIP(name) === 0 ? name : '',
      rejectUnauthorized: verifies(server),
      minVersion: 'TLSv1.2',
      ...(tls.ca !== undefined && { ca: tls.ca }),
    });
    return socket.once('secureConnect', () => {
      const isDane = tls.dane !== undefined && usableTlsa(tls.dane).length > 0;
      const fault = isDane ? refusedBy(tls.dane, socket, channel.clock.now()) : undefined;
      // Before anything is said under TLS.
      if (fault !== undefined) return void socket.destroy(fault);
      agreed = isDane ? { ...agreement(socket), verified: true, fault: null } : agreement(socket);
      return ready();
    });
  };
  channel.perform('starttls', ms);
  await channel.replace(make, (cause) => tlsFailure('starttls', cause));
  channel.perform('hello', Infinity);
  return agreed;
}

function refusedBy(dane: Dane, socket: TLSSocket, now: number): DaneFault | undefined {
  try {
    return daneFault(chainOf(socket), dane, now);
  } catch {
    return new DaneFault('DANE_NO_MATCH', 'The certificate, or one of its issuers, cannot be read');
  }
}

const maxChain = 20;

/** The certificate of the server, and each issuer as far as it is known. */
function chainOf(socket: TLSSocket): readonly X509Certificate[] {
  const chain: Buffer[] = [];
  let one: DetailedPeerCertificate | undefined = socket.getPeerCertificate(true);
  while (one?.raw !== undefined && chain.length < maxChain) {
    chain.push(one.raw);
    const issuer: DetailedPeerCertificate | undefined = one.issuerCertificate;
    one = issuer === undefined || issuer.raw.equals(one.raw) ? undefined : issuer;
  }
  return chain.map((raw) => new X509Certificate(raw));
}

function agreement(socket: TLSSocket): ClientTls {
  const { authorized: verified, authorizationError: error } = socket;
  const fault = verified ? null : String(error);
  return { protocol: socket.getProtocol() ?? 'TLS', cipher: socket.getCipher().name, verified, fault };
}

/** 4.7.5: a cryptographic failure (RFC 3463 §3.8); a later attempt may find another certificate. */
function tlsFailure(step: ClientFailure['step'], cause: unknown): ClientFailure {
  const reason = cause instanceof Error ? (cause as NodeJS.ErrnoException).code : undefined;
  const text =
    cause instanceof DaneFault ? cause.message : `TLS could not be agreed${reason === undefined ? '' : ` (${reason})`}`;
  return clientFailure({ kind: 'tls', step, code: 451, status: '4.7.5', text, cause });
}

/** The negotiated TLS. */
export interface ClientTls {
  readonly protocol: string;
  readonly cipher: string;
  /** The certificate is valid for the name. */
  readonly verified: boolean;
  /** Why it is not: code of the error. Null when it is valid. */
  readonly fault: string | null;
}
