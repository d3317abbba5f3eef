import { DueHeap, type Due, nowhere } from '../queue/due-heap.js';
import type { ClaimOptions } from '../../../core/contracts/relay-queue-store.js';

/** Destinations that are asked for in one claim, and what each may get of it. */
const maxAsked = 64;
export const maxEach = 64;
/** Destinations that are looked at in one claim: of those without room there may be very many. */
const maxLooked = 2000;
/** What commits late lies below the marks: they are forgotten so often. Milliseconds. */
const marksMs = 60_000;

/**
 * What is known of a destination: a lower bound of its next due time. The database has the last word; a wrong hint costs
 * an empty claim.
 */
class DestinationHint implements Due {
  readonly name: string;
  due = Infinity;
  place = nowhere;
  /** Everything before these turns and due times was taken: a claim does not pass what is dead. */
  fromTurn = 0;
  fromDue = 0;
  markedAt = 0;
  /** Rises with each `add`: what a claim has found before is then out of date. */
  additions = 0;

  constructor(name: string) {
    this.name = name;
  }
}

/** A part of a claim. */
export interface Wanted {
  readonly destination: string;
  /** Leases at most. */
  readonly room: number;
  readonly fromTurn: number;
  readonly fromDue: number;
  readonly additions: number;
}

/** Which destinations have something due. */
export class DestinationHints {
  readonly #byName = new Map<string, DestinationHint>();
  readonly #waiting = new DueHeap<DestinationHint>();
  /** Those that are due, the longest waiting first. */
  readonly #ready = new Set<DestinationHint>();

  get size(): number {
    return this.#byName.size;
  }

  /** When something may be due; null for never. */
  nextDue(): number | null {
    const [ready] = this.#ready;
    return ready?.due ?? this.#waiting.first?.due ?? null;
  }

  /** When something of this destination may be due; null for never. */
  dueOf(name: string): number | null {
    return this.#byName.get(name)?.due ?? null;
  }

  /** Something of this destination is due at that time, whichever node accepted it. */
  add(name: string, due: number): void {
    const hint = this.#byName.get(name) ?? new DestinationHint(name);
    this.#byName.set(name, hint);
    hint.additions += 1;
    hint.fromTurn = 0;
    hint.fromDue = Math.min(hint.fromDue, due);
    if (due < hint.due) this.#move(hint, due);
  }

  /** What a claim has left in a destination: nothing is due before that, unless something was added since. */
  left({ destination, additions }: Wanted, due: number | null): void {
    const hint = this.#byName.get(destination);
    if (hint === undefined || hint.additions !== additions) return;
    if (due !== null) return this.#move(hint, due);
    this.#ready.delete(hint);
    this.#waiting.remove(hint);
    this.#byName.delete(destination);
  }

  /** So far a claim has come. */
  taken({ destination, additions }: Wanted, turn: number, due: number): void {
    const hint = this.#byName.get(destination);
    if (hint === undefined || hint.additions !== additions) return;
    hint.fromTurn = Math.max(hint.fromTurn, turn);
    hint.fromDue = Math.max(hint.fromDue, due);
  }

  #move(hint: DestinationHint, due: number): void {
    this.#ready.delete(hint);
    this.#waiting.remove(hint);
    hint.due = due;
    this.#waiting.add(hint);
  }

  /** Shares a claim among destinations with room: sites take turns, and so do the destinations of a site. */
  share({ now, limit, room, sites }: ClaimOptions): readonly Wanted[] {
    this.#ripen(now);
    const bySite = new Map<string, { left: number; readonly those: Asked[] }>();
    let asked = 0;
    let looks = 0;
    for (const hint of this.#ready) {
      if (asked >= Math.min(maxAsked, limit) || looks >= maxLooked) break;
      looks += 1;
      const site = sites === undefined ? hint.name : sites.of(hint.name);
      if (site === undefined) continue;
      const known = bySite.get(site) ?? { left: sites?.room(site) ?? Infinity, those: [] };
      bySite.set(site, known);
      const most = Math.min(room(hint.name), maxEach);
      if (known.left <= known.those.length || most <= 0) continue;
      known.those.push({ hint, most, count: 0 });
      asked += 1;
    }
    this.#rotate(looks);
    return handOut([...bySite.values()], limit).map(({ hint, count }) => {
      if (now - hint.markedAt > marksMs) Object.assign(hint, { fromTurn: 0, fromDue: 0, markedAt: now });
      const { name, fromTurn, fromDue, additions } = hint;
      return { destination: name, room: count, fromTurn, fromDue, additions };
    });
  }

  #ripen(now: number): void {
    for (let first = this.#waiting.first; first !== undefined && first.due <= now; first = this.#waiting.first) {
      this.#waiting.remove(first);
      this.#ready.add(first);
    }
  }

  /** The next claim begins with others. */
  #rotate(looks: number): void {
    if (looks >= this.#ready.size) return;
    let left = looks;
    for (const hint of this.#ready) {
      if (left === 0) return;
      left -= 1;
      this.#ready.delete(hint);
      this.#ready.add(hint);
    }
  }
}

interface Asked {
  readonly hint: DestinationHint;
  readonly most: number;
  count: number;
}

/** One for each in turn, until the claim, the site or the destination is full. */
function handOut(
  sites: readonly { left: number; readonly those: readonly Asked[] }[],
  limit: number,
): readonly Asked[] {
  let left = limit;
  for (let isGiven = true; isGiven && left > 0;) {
    isGiven = false;
    for (const site of sites) {
      for (const one of site.those) {
        if (left <= 0 || site.left <= 0 || one.count >= one.most) continue;
        one.count += 1;
        site.left -= 1;
        left -= 1;
        isGiven = true;
      }
    }
  }
  return sites.flatMap(({ those }) => those.filter(({ count }) => count > 0));
}
