import { AsyncResource } from 'node:async_hooks';
import { performance } from 'node:perf_hooks';
import { LRUCache } from 'lru-cache';
import { clientNetworks } from './net/ip-address.js';

/** Whose work it is: names of its networks from wide to narrow, at last the client. They take turns at each level. */
export type ClientPath = readonly string[];

const paths = new LRUCache<string, ClientPath>({ max: 10_000 });

/** The path of a client by its address: IPv4 /16, /24, address; IPv6 /32, /48, /56, /64. */
export function clientPath(address: string): ClientPath {
  const remembered = paths.get(address);
  if (remembered !== undefined) return remembered;
  const networks = clientNetworks(address);
  const client = networks.at(-1);
  // The narrowest network of an IPv4 address is the address.
  const path = [...new Set(networks.filter((name) => name !== `${client}/32`))];
  paths.set(address, path);
  return path;
}

/** Items below one name of the path or, at its end, of one client. */
class Group<T> {
  /** Ordered by turn: the last one had the last turn. */
  readonly children = new Map<string, Group<T>>();
  readonly items: T[] = [];
  count = 0;
}

type MayTake = (name: string, level: number) => boolean;

/** Items that wait by client. At each level of the path the names take turns: who has many delays only itself. */
export class FairLine<T> {
  readonly #all = new Group<T>();

  get count(): number {
    return this.#all.count;
  }

  /** Items below that name. */
  countOf(path: ClientPath): number {
    return path.reduce(childOf<T>, this.#all).count;
  }

  add(path: ClientPath, item: T): void {
    let group = this.#all;
    group.count += 1;
    for (const name of path) {
      const child = childOf(group, name);
      group.children.set(name, child);
      child.count += 1;
      group = child;
    }
    group.items.push(item);
  }

  /** The oldest item of the next client, among those below names that may be taken from. */
  take(mayTake?: MayTake): T | undefined {
    return takeNext(this.#all, mayTake, 0);
  }

  /**
   * Takes the newest item of the largest client in the largest network below `[name]`. Undefined when the newcomer at
   * that path would then have as many.
   */
  takeFromLargest([name, ...newcomer]: ClientPath): T | undefined {
    if (name === undefined) return undefined;
    const item = takeFromLargest(childOf(this.#all, name), newcomer);
    if (item !== undefined) this.#all.count -= 1;
    return item;
  }

  /** False when it was not there any more. */
  remove(path: ClientPath, item: T): boolean {
    const groups = [this.#all];
    for (const name of path) groups.push(childOf(groups.at(-1) ?? this.#all, name));
    const items = groups.at(-1)?.items ?? [];
    const index = items.indexOf(item);
    if (index < 0) return false;
    items.splice(index, 1);
    for (const group of groups) group.count -= 1;
    path.forEach((name, level) => {
      if (groups[level + 1]?.count === 0) groups[level]?.children.delete(name);
    });
    return true;
  }
}

function childOf<T>(group: Group<T>, name: string): Group<T> {
  return group.children.get(name) ?? new Group();
}

function takeNext<T>(group: Group<T>, mayTake: MayTake | undefined, level: number): T | undefined {
  if (group.children.size === 0) {
    if (group.items.length > 0) group.count -= 1;
    return group.items.shift();
  }
  for (const [name, child] of group.children) {
    if (mayTake?.(name, level) === false) continue;
    const item = takeNext(child, mayTake, level + 1);
    if (item === undefined) continue;
    group.count -= 1;
    // One alone has every turn.
    if (child.count > 0 && group.children.size === 1) return item;
    group.children.delete(name);
    if (child.count > 0) group.children.set(name, child);
    return item;
  }
  return undefined;
}

function takeFromLargest<T>(group: Group<T>, newcomer: ClientPath | undefined): T | undefined {
  if (group.children.size === 0) {
    if (newcomer !== undefined) return undefined;
    group.count -= 1;
    return group.items.pop();
  }
  const [name, largest] = [...group.children].reduce((most, one) => (one[1].count > most[1].count ? one : most));
  const own = newcomer?.[0];
  if (own !== undefined && own !== name && largest.count <= childOf(group, own).count + 1) return undefined;
  const item = takeFromLargest(largest, own === name ? newcomer?.slice(1) : undefined);
  if (item === undefined) return undefined;
  group.count -= 1;
  if (largest.count === 0) group.children.delete(name);
  return item;
}

/** How long clients work before the event loop runs. */
const passMs = 8;
/** How long one client works in its turn; what it has left to do waits for the next one. */
export const turnMs = 2;
/** Works between which promises go on: their time counts as that of the pass. Long ones are counted by what they took. */
const batch = 32;
const longBatch = 8;
/** How long a pass waits while connections are accepted. */
const maxAcceptingMs = 4;

/** What a client wants of the event loop: the same object each time, where it wants that often. */
export interface Work {
  readonly client: ClientPath;
  /** An error that it throws is uncaught; others are done all the same. */
  readonly run: () => void;
  /** It wakes promises that work for long. */
  readonly isLong?: boolean;
}

/**
 * Does what the clients of all protocols want of the event loop, in passes: at the end of a turn of the event loop, all
 * that waits. That costs less than half of what it costs one by one, because the same code runs many times in a row, and
 * those who wait for the disk share a sync. A pass ends after 8 ms; then the loop runs, and from what is left and what
 * comes the clients, and before them their networks, take turns. A single work must be short: one of a session that
 * has more to do than 2 ms asks for another turn. Node accepts one connection a turn of the loop: while there are more,
 * the pass waits (docs/decisions/0046-one-pass.md, 0049-turns.md).
 */
class Turns {
  #newcomers: Work[] = [];
  /** Those of this pass that have not begun, from `#next` on. */
  #pass: Work[] = [];
  #next = 0;
  /** What passes have left. */
  readonly #line = new FairLine<Work>();
  #isScheduled = false;
  #hasAccepted = false;
  /** Since when the pass waits for connections, monotonic, in milliseconds. */
  #acceptingSince = Infinity;
  /** When the pass ends, monotonic, in milliseconds. */
  #endsAt = 0;
  /** Of the last batch. */
  #longWorks = 0;
  #batchBegan = 0;
  /** Milliseconds that a long work takes: more at once, less slowly. */
  #longMs = passMs;

  add(work: Work): void {
    this.#newcomers.push(work);
    this.#schedule();
  }

  /** Some wait for their turn. */
  get isBusy(): boolean {
    return this.#line.count > 0 || this.#newcomers.length > 0;
  }

  /** Resolves when it is the client's turn: for work that takes milliseconds. */
  wait(client: ClientPath): Promise<void> {
    return new Promise((run) => this.add({ client, run, isLong: true }));
  }

  /** To call for each connection that a server of this process accepts. */
  accepted(): void {
    this.#hasAccepted = true;
    this.#schedule();
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(this.#begin);
  }

  /** Does not run in the asynchronous context of the caller that scheduled it. */
  readonly #begin = AsyncResource.bind((): void => {
    const now = performance.now();
    if (this.#hasAccepted) {
      this.#acceptingSince = Math.min(this.#acceptingSince, now);
      if (now - this.#acceptingSince < maxAcceptingMs) {
        this.#hasAccepted = false;
        setImmediate(this.#begin);
        return;
      }
    }
    this.#hasAccepted = false;
    this.#acceptingSince = Infinity;
    this.#endsAt = now + passMs;
    this.#pass = this.#newcomers;
    this.#newcomers = [];
    this.#next = 0;
    if (this.#line.count > 0) this.#lineUp();
    this.#runBatch();
  });

  #lineUp(): void {
    for (const work of this.#pass.splice(0).slice(this.#next)) this.#line.add(work.client, work);
    this.#next = 0;
  }

  #take(): Work | undefined {
    if (this.#line.count > 0) return this.#line.take();
    const work = this.#pass[this.#next];
    this.#next += 1;
    return work;
  }

  readonly #runBatch = (): void => {
    let isWhole = false;
    try {
      isWhole = this.#runSome();
    } finally {
      // After an error too.
      if (!isWhole) this.#end();
    }
    if (isWhole) queueMicrotask(this.#afterBatch);
  };

  /** True when the pass may go on, or what promises take is to be measured. */
  #runSome(): boolean {
    const most = Math.max(1, Math.min(longBatch, passMs / this.#longMs));
    this.#longWorks = 0;
    this.#batchBegan = performance.now();
    for (let left = batch; left > 0; left -= 1) {
      const work = this.#take();
      if (work === undefined) return this.#longWorks > 0;
      work.run();
      if (work.isLong === true) this.#longWorks += 1;
      if (this.#longWorks >= most) return true;
      if (performance.now() >= this.#endsAt) return this.#longWorks > 0;
    }
    return true;
  }

  /** A tick begins when all promises have gone on as far as they can. */
  readonly #afterBatch = (): void => process.nextTick(this.#continue);

  readonly #continue = (): void => {
    const now = performance.now();
    if (this.#longWorks > 0) {
      const ms = (now - this.#batchBegan) / this.#longWorks;
      this.#longMs = Math.max(ms, 0.8 * this.#longMs + 0.2 * ms);
    }
    if (now < this.#endsAt) this.#runBatch();
    else this.#end();
  };

  /** What is left waits in line, where clients take turns. */
  #end(): void {
    if (this.#next < this.#pass.length) this.#lineUp();
    this.#pass = [];
    this.#next = 0;
    this.#isScheduled = false;
    if (this.#line.count + this.#newcomers.length > 0) this.#schedule();
  }
}

/** Of this process, as the event loop is. */
export const turns: Turns = new Turns();
