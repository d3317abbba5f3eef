import type { Socket } from 'node:net';
import type { HealthReport } from '../health.js';
import { normalAddress } from '../ip-address.js';
import { startError } from '../start-error.js';
import { Connection } from './connection.js';
import type { ClientLimits } from './limits.js';
import type { ListenerGround } from './listener-ground.js';
import type { ListenerSettings } from './listener-options.js';
import { MailServer } from './mail-server.js';
import { replies } from './replies.js';
import type { TlsMaterial } from './tls-material.js';

/** Beyond the limit so many are still told why they are refused; further ones are cut without a word. */
const mostRefused = 256;

export interface ListenerInput {
  readonly ground: Omit<ListenerGround, 'tlsOptions'>;
  readonly material: TlsMaterial | undefined;
  readonly clients: ClientLimits;
  /** Between two looks at the deadlines, in milliseconds. */
  readonly sweepMs: number;
}

/** One place where mail comes in, and the sessions that came in there. */
export class Listener {
  readonly #ground: ListenerGround;
  readonly #server: MailServer;
  readonly #clients: ClientLimits;
  readonly #sweepMs: number;
  readonly #connections = new Set<Connection>();
  #timer: NodeJS.Timeout | undefined;
  #stopping = false;
  /** Clients that are being told that there is no place. */
  #refused = 0;
  #wake: () => void = () => undefined;

  constructor({ ground, material, clients, sweepMs }: ListenerInput) {
    this.#clients = clients;
    this.#sweepMs = sweepMs;
    this.#server = new MailServer({
      tls: ground.listener.tls,
      material,
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

  /** Throws a start error when the address cannot be had. */
  listen(): Promise<void> {
    const { fd, host, port } = this.settings;
    const { server } = this.#server;
    return new Promise((resolve, reject) => {
      const fail = (error: Error): void => reject(cannotListen(this.settings, error));
      server.once('error', fail);
      server.listen(fd === undefined ? { host, port } : { fd }, () => {
        server.off('error', fail);
        this.#timer = setInterval(() => this.#sweep(), this.#sweepMs).unref();
        resolve();
      });
    });
  }

  address(): { readonly name: string; readonly host: string; readonly port: number } {
    const { name, host, port } = this.settings;
    const bound = this.#server.server.address();
    return typeof bound === 'object' && bound !== null
      ? { name, host: bound.address, port: bound.port }
      : { name, host, port };
  }

  health(): HealthReport {
    if (this.#stopping) return { status: 'down', why: 'The listener is shutting down.' };
    return this.#server.server.listening ? { status: 'up' } : { status: 'down', why: 'The listener is not open.' };
  }

  /** New sessions, and new STARTTLS handshakes, use this certificate. */
  renew(material: TlsMaterial): void {
    this.#server.updateSecureContext({ ...material });
  }

  /** Accepts nobody any more and ends idle sessions; resolves when the others are done, or cuts them after `graceMs`. */
  async close(graceMs: number): Promise<void> {
    this.#stopping = true;
    this.#server.stop();
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
    const { remoteAddress, remotePort } = socket;
    if (remoteAddress === undefined || this.#refused >= mostRefused) {
      socket.on('error', () => undefined);
      socket.destroy();
      return;
    }
    const address = normalAddress(remoteAddress);
    const place = this.#clients.enter(address);
    const given = place.place === 'given';
    if (!given) this.#refused += 1;
    const peer = {
      listener: { name: this.settings.name, mode: this.settings.mode },
      remote: { address, port: remotePort ?? 0 },
      exempt: this.#clients.isExempt(address),
    };
    const connection = new Connection(this.#ground, socket, peer, (closed) => {
      if (given) place.leave();
      else this.#refused -= 1;
      this.#connections.delete(closed);
      if (this.#connections.size === 0) this.#wake();
    });
    this.#connections.add(connection);
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
  }
}

const reasons: Readonly<Record<string, string>> = {
  EADDRINUSE: 'another program uses it; stop that, or choose another port',
  EACCES: 'this user may not use it; choose a port above 1023',
  EADDRNOTAVAIL: 'this machine has no such address',
  ENOTFOUND: 'there is no host of that name',
  EINVAL: 'it is not a socket that listens',
};

function cannotListen({ name, host, port, fd }: ListenerSettings, error: NodeJS.ErrnoException): Error {
  const place = fd === undefined ? `${host} port ${port}` : `file descriptor ${fd}`;
  const reason = reasons[error.code ?? ''] ?? `the system says ${error.code ?? error.name}`;
  return startError(`SMTP listener ${name} cannot listen on ${place}: ${reason}.`, error);
}
