import { createServer, isIPv6, type ListenOptions } from 'node:net';
import { normalAddress } from './ip-address.js';

/** Address of a listener. */
export interface ListenAddress {
  readonly host: string;
  readonly port: number;
  /** Opened before this process began; then host and port are not used. */
  readonly fd?: number | undefined;
  readonly socket?: string | undefined;
}

export function placeText({ host, port, fd, socket }: ListenAddress): string {
  if (socket !== undefined) return `the socket ${socket}`;
  return fd === undefined ? `${host} port ${port}` : `file descriptor ${fd}`;
}

/** Pairs of listeners with the same address, which no system allows. */
export function sharedPlaces<P extends ListenAddress>(
  places: readonly P[],
): readonly (readonly [taken: P, again: P])[] {
  return places.flatMap((again, index) => {
    const taken = places.slice(0, index).find((one) => isShared(one, again));
    return taken === undefined ? [] : [[taken, again] as const];
  });
}

function isShared(one: ListenAddress, other: ListenAddress): boolean {
  if (one.socket !== undefined || other.socket !== undefined) return one.socket === other.socket;
  if (one.fd !== undefined || other.fd !== undefined) return one.fd === other.fd;
  // Port 0 is a different port for each.
  return one.port !== 0 && one.port === other.port && (covers(one.host, other.host) || covers(other.host, one.host));
}

/** `::` includes IPv4. Host names are not resolved. */
function covers(wide: string, host: string): boolean {
  const [one, other] = [wide, host].map((name) => normalAddress(name.toLowerCase().replace(/^\[|\]$/g, '')));
  return one === other || one === '::' || (one === '0.0.0.0' && !isIPv6(other ?? ''));
}

/** The types of Node.js 20 do not know `reusePort`. */
export interface ListenPlace extends ListenOptions {
  readonly reusePort?: boolean;
}

/** Whether this Node.js can open a port that another process has open in the same way (`reusePort`). */
export function canReusePort(version = process.versions.node): boolean {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  return major > 23 || (major === 23 && minor >= 1) || (major === 22 && minor >= 12);
}

/**
 * Listens for a moment to test whether a server could.
 *
 * @returns undefined on success, else the system's code: `EADDRINUSE`, `EACCES`, `EADDRNOTAVAIL`, `ENOTFOUND`, …
 */
export function tryToListen(host: string, port: number, reusePort = false): Promise<string | undefined> {
  const server = createServer((socket) => socket.destroy());
  return new Promise((resolve) => {
    server.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.name));
    const place: ListenPlace = { host, port, exclusive: true, reusePort };
    server.listen(place, () => server.close(() => resolve(undefined)));
  });
}
