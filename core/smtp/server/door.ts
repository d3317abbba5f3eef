import { createServer, type Server, type Socket } from 'node:net';
import type { InheritedSockets } from '../../net/inherited-sockets.js';
import { startError } from '../../problem.js';
import type { ListenerSettings } from './listener-options.js';
import { placeText } from '../../net/shared-place.js';

type Take = (socket: Socket) => void;

/** Connections that may wait for whoever will be behind the door; more are cut. */
const mostHeld = 1000;

/** What tells two doors apart. A free port is another one for each listener. */
export function placeOf(listener: ListenerSettings): string {
  const isFree = listener.port === 0 && !isInherited(listener);
  return isFree ? `${placeText(listener)} for ${listener.name}` : placeText(listener);
}

/** Whether it is a socket that was open before this process began. */
export const isInherited = ({ fd, socket }: ListenerSettings): boolean => fd !== undefined || socket !== undefined;

/** A listening socket. Who is behind it may change while it listens, so that no connection is lost between two of them. */
export class Door {
  readonly place: string;
  readonly #settings: ListenerSettings;
  readonly #sockets: Pick<InheritedSockets, 'find'>;
  #server: Server | undefined;
  #take: Take | undefined;
  #held: Socket[] = [];

  constructor(settings: ListenerSettings, sockets: Pick<InheritedSockets, 'find'>) {
    this.place = placeOf(settings);
    this.#settings = settings;
    this.#sockets = sockets;
  }

  get listening(): boolean {
    return this.#server?.listening === true;
  }

  /** The port that was asked for: 0 for any. */
  get wantedPort(): number {
    return this.#settings.port;
  }

  get isInherited(): boolean {
    return isInherited(this.#settings);
  }

  /** Connections wait until somebody is behind it. Throws a start error when the address cannot be had. */
  async listen(): Promise<void> {
    const { name, socket, host, port } = this.#settings;
    const fd = socket === undefined ? this.#settings.fd : this.#sockets.find(socket, `SMTP listener ${name}`);
    const server = createServer({ allowHalfOpen: true }, (socket) => this.#opened(socket));
    this.#server = server;
    await new Promise<void>((resolve, reject) => {
      const fail = (error: Error): void => reject(cannotListen(this.#settings, error));
      server.once('error', fail);
      server.listen(fd === undefined ? { host, port } : { fd }, () => {
        server.off('error', fail);
        // What may go wrong later is one connection that could not be accepted.
        server.on('error', () => undefined);
        resolve();
      });
    });
    const bound = server.address();
    if (typeof bound === 'object' && bound !== null) return;
    // Its clients would have no address to be told apart by.
    this.close();
    throw startError(`SMTP listener ${name} cannot take ${this.place}: it is no TCP socket.`);
  }

  /** From now on `take` gets the connections, those that wait first. */
  lead(take: Take): void {
    this.#take = take;
    const held = this.#held;
    this.#held = [];
    for (const socket of held) if (!socket.destroyed) take(socket);
  }

  address(): { readonly host: string; readonly port: number } {
    const bound = this.#server?.address();
    return typeof bound === 'object' && bound !== null ? { host: bound.address, port: bound.port } : this.#settings;
  }

  /** Nobody comes in any more; who is in stays. May be opened again. */
  close(): void {
    this.#server?.close();
    this.#server = undefined;
    for (const socket of this.#held) socket.destroy();
    this.#held = [];
  }

  #opened(socket: Socket): void {
    if (this.#take !== undefined) {
      this.#take(socket);
      return;
    }
    socket.on('error', () => undefined);
    if (this.#held.length >= mostHeld) socket.destroy();
    else this.#held.push(socket);
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

/** Whether `listen` failed because somebody listens there already. */
export const isTaken = (error: unknown): boolean =>
  error instanceof Error && (error.cause as NodeJS.ErrnoException | undefined)?.code === 'EADDRINUSE';
