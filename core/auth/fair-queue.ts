import { problem } from '../problem.js';

export interface FairQueueOptions {
  readonly concurrency: number;
  /** Tasks of one client that may wait. */
  readonly maxWaitingPerClient: number;
  /** Tasks of one protocol that may wait. */
  readonly maxWaiting: number;
  /** Value of `Retry-After` in a refusal. */
  readonly retryAfterSeconds: number;
}

interface Waiter {
  start(): void;
  refuse(): void;
}

/** Waiting tasks below one name of the path or, at its end, of one client. */
class Group {
  /** Ordered by turn: the last one had the last turn. */
  readonly children = new Map<string, Group>();
  readonly waiters: Waiter[] = [];
  count = 0;
}

/**
 * Runs a few tasks at once. A task has a path: the protocol, the networks of its client from wide to narrow, the
 * client. At each level the names take turns: a client or network with many tasks delays only itself, and one protocol
 * under attack does not block the other.
 */
export class FairQueue {
  readonly #options: FairQueueOptions;
  readonly #waiting = new Group();
  #running = 0;

  constructor(options: FairQueueOptions) {
    this.#options = options;
  }

  /** No task waits. */
  get idle(): boolean {
    return this.#waiting.count === 0;
  }

  /** @throws Problem `unavailable` when too many tasks of the client, or of its protocol, wait */
  async run<T>(path: readonly [protocol: string, ...networks: string[]], task: () => Promise<T>): Promise<T> {
    if (this.#running < this.#options.concurrency) this.#running += 1;
    else await this.#turn(path);
    try {
      return await task();
    } finally {
      const next = takeNext(this.#waiting);
      if (next === undefined) this.#running -= 1;
      else next.start();
    }
  }

  /** Resolves when a finished task hands over its place. */
  async #turn(path: readonly [protocol: string, ...networks: string[]]): Promise<void> {
    const { maxWaiting, maxWaitingPerClient } = this.#options;
    const [protocol, ...networks] = path;
    const ofProtocol = childOf(this.#waiting, protocol);
    const ofClient = networks.reduce(childOf, ofProtocol);
    if (ofClient.count >= maxWaitingPerClient) throw this.#refusal();
    if (ofProtocol.count >= maxWaiting) {
      const newest = takeFromLargest(ofProtocol, networks);
      if (newest === undefined) throw this.#refusal();
      this.#waiting.count -= 1;
      newest.refuse();
    }
    await new Promise<void>((resolve, reject) => {
      add(this.#waiting, path, { start: resolve, refuse: () => reject(this.#refusal()) });
    });
  }

  #refusal(): Error {
    return problem('unavailable', {
      detail: 'Too many sign-ins are being checked. Try again in a moment.',
      headers: { 'Retry-After': String(this.#options.retryAfterSeconds) },
    });
  }
}

function childOf(group: Group, name: string): Group {
  return group.children.get(name) ?? new Group();
}

function add(group: Group, [name, ...rest]: readonly string[], waiter: Waiter): void {
  group.count += 1;
  if (name === undefined) {
    group.waiters.push(waiter);
    return;
  }
  const child = childOf(group, name);
  group.children.set(name, child);
  add(child, rest, waiter);
}

/** From the group whose turn it is. */
function takeNext(group: Group): Waiter | undefined {
  const [turn] = group.children;
  const waiter = turn === undefined ? group.waiters.shift() : takeNext(turn[1]);
  if (waiter !== undefined) group.count -= 1;
  if (turn === undefined) return waiter;
  const [name, child] = turn;
  group.children.delete(name);
  if (child.count > 0) group.children.set(name, child);
  return waiter;
}

/**
 * The newest task of the largest client in the largest network. Undefined when the newcomer, whose path below this
 * group is given, would then have as many.
 */
function takeFromLargest(group: Group, newcomer: readonly string[] | undefined): Waiter | undefined {
  if (group.children.size === 0) return newcomer === undefined ? takeLast(group) : undefined;
  const [name, largest] = [...group.children].reduce((most, one) => (one[1].count > most[1].count ? one : most));
  const own = newcomer?.[0];
  if (own !== undefined && own !== name && largest.count <= childOf(group, own).count + 1) return undefined;
  const waiter = takeFromLargest(largest, own === name ? newcomer?.slice(1) : undefined);
  if (waiter === undefined) return undefined;
  group.count -= 1;
  if (largest.count === 0) group.children.delete(name);
  return waiter;
}

function takeLast(group: Group): Waiter | undefined {
  group.count -= 1;
  return group.waiters.pop();
}
