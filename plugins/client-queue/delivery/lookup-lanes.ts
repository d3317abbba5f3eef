/** Lookups at a time that nothing is known against. */
const quickAtOnce = 200;
/** One that takes longer than that hangs, and leaves its place to another. Milliseconds. */
export const patienceMs = 1000;
/** Lookups that have left their places, at most. */
const mostHanging = 1000;
/** Lookups at a time of those who hung the last time. */
const slowAtOnce = 100;

/** Those that wait for a lookup; the oldest and the newest in turn. */
class Waiting {
  #names: (string | undefined)[] = [];
  /** Those in front of it are gone. */
  #head = 0;
  #newestNext = false;

  get size(): number {
    return this.#names.length - this.#head;
  }

  add(name: string): void {
    this.#names.push(name);
  }

  take(): string | undefined {
    if (this.size === 0) return undefined;
    this.#newestNext = !this.#newestNext;
    if (!this.#newestNext) return this.#names.pop();
    const oldest = this.#names[this.#head];
    this.#names[this.#head] = undefined;
    this.#head += 1;
    if (this.#head * 2 > this.#names.length) {
      this.#names = this.#names.slice(this.#head);
      this.#head = 0;
    }
    return oldest;
  }
}

interface Lane {
  readonly most: number;
  readonly waiting: Waiting;
  busy: number;
}

interface Lookup {
  lane: Lane | 'hanging';
}

/**
 * Looks destinations up, a bounded number at a time. Those whose name servers do not answer soon make room for others, and those
 * who hung the last time have a few places of their own: a burst of mail for dead domains keeps no living one waiting. Nor does
 * one that came before, for every second place goes to who came last.
 */
export class LookupLanes {
  /** Never rejects. */
  readonly #look: (destination: string) => Promise<void>;
  readonly #ended: () => void;
  readonly #quick: Lane = { most: quickAtOnce, waiting: new Waiting(), busy: 0 };
  readonly #slow: Lane = { most: slowAtOnce, waiting: new Waiting(), busy: 0 };
  readonly #asked = new Set<string>();
  #hanging = 0;
  /** They hang too, and wait to be counted as such. */
  readonly #lingering = new Set<Lookup>();

  /** @param ended called behind each lookup */
  constructor(look: (destination: string) => Promise<void>, ended: () => void) {
    this.#look = look;
    this.#ended = ended;
  }

  /** Some wait for their turn. */
  get isCrowded(): boolean {
    return this.#quick.waiting.size + this.#slow.waiting.size > 0;
  }

  /** It is looked up, or waits for that. */
  has(destination: string): boolean {
    return this.#asked.has(destination);
  }

  /** @param hung its last lookup did */
  ask(destination: string, hung: boolean): void {
    if (this.#asked.has(destination)) return;
    this.#asked.add(destination);
    const lane = hung ? this.#slow : this.#quick;
    lane.waiting.add(destination);
    this.#serve(lane);
  }

  #serve(lane: Lane): void {
    while (lane.busy < lane.most) {
      const next = lane.waiting.take();
      if (next === undefined) return;
      lane.busy += 1;
      void this.#run(next, lane);
    }
  }

  async #run(destination: string, lane: Lane): Promise<void> {
    const lookup: Lookup = { lane };
    const timer = lane === this.#quick ? setTimeout(() => this.#overdue(lookup), patienceMs).unref() : undefined;
    await this.#look(destination);
    clearTimeout(timer);
    this.#lingering.delete(lookup);
    this.#asked.delete(destination);
    if (lookup.lane === 'hanging') this.#hanging -= 1;
    else lookup.lane.busy -= 1;
    const [lingering] = this.#lingering;
    if (lingering !== undefined) this.#overdue(lingering);
    this.#serve(lane);
    this.#ended();
  }

  #overdue(lookup: Lookup): void {
    this.#lingering.add(lookup);
    if (this.#hanging >= mostHanging) return;
    this.#lingering.delete(lookup);
    lookup.lane = 'hanging';
    this.#hanging += 1;
    this.#quick.busy -= 1;
    this.#serve(this.#quick);
  }
}
