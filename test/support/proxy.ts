import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { atEnd, type Ending } from './ending.js';

export type Direction = 'toServer' | 'toClient';

/** A direction holds back no more than this; then its sender has to wait, as behind a full window. */
const maxHeldBytes = 1024 * 1024;

/** The network as it is now, for all connections. */
interface Weather {
  readonly silent: Set<Direction>;
  delayMs: number;
}

/** One direction of one connection. Bytes, and the end behind them, leave in their order, each after the delay. */
class Lane {
  readonly #from: Socket;
  readonly #to: Socket;
  readonly #direction: Direction;
  readonly #weather: Weather;
  readonly #held: { readonly dueMs: number; readonly bytes: Buffer | undefined }[] = [];
  #heldBytes = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(from: Socket, to: Socket, direction: Direction, weather: Weather) {
    this.#from = from;
    this.#to = to;
    this.#direction = direction;
    this.#weather = weather;
    to.on('drain', () => this.flush());
    from.on('end', () => this.push(undefined));
    from.on('close', () => this.push(undefined));
  }

  /** `undefined` is the end. */
  push(bytes: Buffer | undefined): void {
    this.#held.push({ dueMs: performance.now() + this.#weather.delayMs, bytes });
    this.#heldBytes += bytes?.length ?? 0;
    if (this.#heldBytes > maxHeldBytes) this.#from.pause();
    this.flush();
  }

  flush(): void {
    clearTimeout(this.#timer);
    while (!this.#weather.silent.has(this.#direction) && !this.#to.writableNeedDrain) {
      const [next] = this.#held;
      if (next === undefined) break;
      const waitMs = next.dueMs - performance.now();
      if (waitMs > 0) {
        this.#timer = setTimeout(() => this.flush(), waitMs);
        break;
      }
      this.#held.shift();
      this.#heldBytes -= next.bytes?.length ?? 0;
      if (next.bytes === undefined) this.#to.end();
      else this.#to.write(next.bytes);
    }
    if (this.#heldBytes <= maxHeldBytes) this.#from.resume();
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#held.length = 0;
  }
}

class Connection {
  readonly #client: Socket;
  readonly #server: Socket;
  readonly #lanes: { readonly [direction in Direction]: Lane };

  constructor(client: Socket, server: Socket, weather: Weather) {
    this.#client = client;
    this.#server = server;
    this.#lanes = {
      toServer: new Lane(client, server, 'toServer', weather),
      toClient: new Lane(server, client, 'toClient', weather),
    };
  }

  /** `pass` sees all bytes first; those that it answers with false go no further. */
  open(pass: (bytes: Buffer, direction: Direction, connection: Connection) => boolean): void {
    const listen = (from: Socket, direction: Direction): void => {
      from.on('error', () => undefined);
      from.on('data', (bytes: Buffer) => {
        if (pass(bytes, direction, this)) this.#lanes[direction].push(bytes);
      });
    };
    listen(this.#client, 'toServer');
    listen(this.#server, 'toClient');
  }

  flush(): void {
    this.#lanes.toServer.flush();
    this.#lanes.toClient.flush();
  }

  cut(): void {
    this.#lanes.toServer.stop();
    this.#lanes.toClient.stop();
    this.#client.destroy();
    this.#server.destroy();
  }
}

interface Drop {
  readonly question: string;
  readonly dropped: () => void;
  /** Where the question went by. */
  connection?: Connection;
}

/**
 * A TCP proxy on 127.0.0.1 whose network can fail. What a silent network holds back arrives after it has healed, as TCP
 * sends it again; also that somebody has closed.
 */
export class Proxy {
  readonly #server: Server;
  readonly #connections = new Set<Connection>();
  readonly #weather: Weather = { silent: new Set(), delayMs: 0 };
  #drop: Drop | undefined;

  private constructor(targetPort: number) {
    this.#server = createServer({ noDelay: true, allowHalfOpen: true }, (client) => {
      const server = connect({ port: targetPort, host: '127.0.0.1', noDelay: true, allowHalfOpen: true });
      const connection = new Connection(client, server, this.#weather);
      this.#connections.add(connection);
      let open = 2;
      const closed = (): void => {
        open -= 1;
        if (open === 0) this.#connections.delete(connection);
      };
      client.on('close', closed);
      server.on('close', closed);
      connection.open((bytes, direction, from) => this.#pass(bytes, direction, from));
    });
  }

  /** Closed, with all connections, when the test ends. */
  static async start(test: Ending, targetPort: number): Promise<Proxy> {
    const proxy = new Proxy(targetPort);
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    atEnd(test, async () => {
      const closed = once(proxy.#server, 'close');
      proxy.#server.close();
      proxy.cut();
      await closed;
    });
    return proxy;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** Nothing goes through any more; new connections are taken, and nothing comes of them. Both directions if none is given. */
  silence(...directions: readonly Direction[]): void {
    const all: readonly Direction[] = directions.length === 0 ? ['toServer', 'toClient'] : directions;
    for (const direction of all) this.#weather.silent.add(direction);
  }

  /** For what comes from now on. */
  delay(ms: number): void {
    this.#weather.delayMs = ms;
  }

  /** No silence and no delay any more. */
  heal(): void {
    this.#weather.silent.clear();
    this.#weather.delayMs = 0;
    for (const connection of this.#connections) connection.flush();
  }

  /** Ends all connections at both sides. */
  cut(): void {
    for (const connection of this.#connections) connection.cut();
    this.#connections.clear();
  }

  /**
   * Passes the next bytes that hold `question`, such as `COMMIT`, waits for what the server says to them, and cuts that
   * connection in place of passing it on. Resolves when that has happened.
   */
  dropAnswer(question: string): Promise<void> {
    return new Promise((dropped) => {
      this.#drop = { question, dropped };
    });
  }

  #pass(bytes: Buffer, direction: Direction, connection: Connection): boolean {
    const drop = this.#drop;
    if (drop === undefined) return true;
    if (direction === 'toServer') {
      if (drop.connection === undefined && bytes.includes(drop.question)) drop.connection = connection;
      return true;
    }
    if (drop.connection !== connection) return true;
    this.#drop = undefined;
    connection.cut();
    drop.dropped();
    return false;
  }
}
