import { problem } from './problem.js';

export interface FairQueueOptions {
  readonly atOnce: number;
  /** Tasks of one client that may wait. */
  readonly maxWaitingPerClient: number;
  readonly maxWaiting: number;
  /** Seconds that a refused caller is told to wait. */
  readonly retryAfterSeconds: number;
}

interface Waiter {
  start(): void;
  refuse(): void;
}

/**
 * Runs a few tasks at once. Protocols take turns, and within a protocol its clients: a client with many tasks delays only
 * itself, and one protocol under attack does not stop the other.
 */
export class FairQueue {
  readonly #options: FairQueueOptions;
  /** Protocol, then client; whoever had the last turn is the last in its map. */
  readonly #waiting = new Map<string, Map<string, Waiter[]>>();
  #count = 0;
  #running = 0;

  constructor(options: FairQueueOptions) {
    this.#options = options;
  }

  /** Nothing waits. */
  get idle(): boolean {
    return this.#count === 0;
  }

  /** @throws Problem `unavailable` when too many tasks of the client wait */
  async run<T>(protocol: string, client: string, task: () => Promise<T>): Promise<T> {
    if (this.#running < this.#options.atOnce) this.#running += 1;
    else await this.#turn(protocol, client);
    try {
      return await task();
    } finally {
      const next = this.#next();
      if (next === undefined) this.#running -= 1;
      else next.start();
    }
  }

  /** Resolves when a task that has ended hands its place over. */
  async #turn(protocol: string, client: string): Promise<void> {
    const clients = this.#waiting.get(protocol) ?? new Map<string, Waiter[]>();
    const own = clients.get(client) ?? [];
    if (own.length >= this.#options.maxWaitingPerClient) throw this.#refusal();
    if (this.#count >= this.#options.maxWaiting && !this.#makeRoom(own.length)) throw this.#refusal();
    this.#waiting.set(protocol, clients.set(client, own));
    this.#count += 1;
    await new Promise<void>((resolve, reject) => {
      own.push({ start: resolve, refuse: () => reject(this.#refusal()) });
    });
  }

  #next(): Waiter | undefined {
    for (const [protocol, clients] of this.#waiting) {
      for (const [client, waiters] of clients) {
        const next = waiters.shift();
        clients.delete(client);
        this.#waiting.delete(protocol);
        if (waiters.length > 0) clients.set(client, waiters);
        if (clients.size > 0) this.#waiting.set(protocol, clients);
        this.#count -= 1;
        return next;
      }
    }
    return undefined;
  }

  /** Refuses the newest task of the client with the most, if it has more than the newcomer. */
  #makeRoom(own: number): boolean {
    const all = [...this.#waiting.values()].flatMap((clients) => [...clients.values()]);
    const longest = all.reduce((most, waiters) => (waiters.length > most.length ? waiters : most), []);
    if (longest.length <= own + 1) return false;
    longest.pop()?.refuse();
    this.#count -= 1;
    return true;
  }

  #refusal(): Error {
    return problem('unavailable', {
      detail: 'Too many sign-ins are being checked. Try again in a moment.',
      headers: { 'Retry-After': String(this.#options.retryAfterSeconds) },
    });
  }
}
