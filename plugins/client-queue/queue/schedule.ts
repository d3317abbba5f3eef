import type { Clock } from '../../../core/clock.js';
import type { ClaimOptions, ClaimSites } from '../../../core/contracts/relay-queue-store.js';
import { type Due, DueHeap, nowhere } from './due-heap.js';
import { isWaiting, type QueuedEntry, type RecipientRecord } from './queued-entry.js';

/** Recipients of one entry and one destination, to be tried together. */
export interface Picked {
  readonly entry: QueuedEntry;
  readonly destination: string;
  readonly recipients: readonly RecipientRecord[];
}

type PickOptions = Pick<ClaimOptions, 'now' | 'limit' | 'maxRecipients' | 'room' | 'sites'>;

/** Maximum recipients that become ready in one step: more would block other work. */
const maxRipened = 5000;

/** Destinations of a full site that are checked in one pass: their servers may have changed. */
const maxReseated = 64;
const reseatedMs = 1000;

/** Which recipient waits for which destination until when. No operation scans it from end to end. */
export class Schedule {
  readonly #byName = new Map<string, DestinationSchedule>();
  /** Destinations by their first recipient that is not due yet. */
  readonly #timers = new DueHeap<DestinationSchedule>();
  /** Destinations with due recipients whose site is to be looked up. */
  #unseated: DestinationSchedule[] = [];
  /** Destinations with a known site, by site; sites take turns. */
  readonly #rows = new Map<string, SiteRow>();

  /** Adds waiting recipients; those already in it keep their positions. */
  add(recipients: Iterable<RecipientRecord>, now: number): void {
    for (const recipient of recipients) {
      if (recipient.place === nowhere && isWaiting(recipient)) this.#add(recipient, now);
    }
  }

  #add(recipient: RecipientRecord, now: number): void {
    let destination = this.#byName.get(recipient.destination);
    if (destination === undefined) {
      destination = new DestinationSchedule(recipient.destination);
      this.#byName.set(destination.name, destination);
    }
    destination.add(recipient, now);
    this.#place(destination);
  }

  /** Removes them; must be called before they change. */
  remove(recipients: Iterable<RecipientRecord>): void {
    for (const recipient of recipients) {
      if (recipient.place !== nowhere) this.#remove(recipient);
    }
  }

  #remove(recipient: RecipientRecord): void {
    const destination = this.#byName.get(recipient.destination);
    destination?.remove(recipient);
    if (destination !== undefined) this.#place(destination);
  }

  /** Moves a destination whose content has changed to its new position. */
  #place(destination: DestinationSchedule): void {
    if (destination.due === Infinity) this.#timers.remove(destination);
    else if (destination.place === nowhere) this.#timers.add(destination);
    else this.#timers.moved(destination);
    if (destination.ready > 0 && !destination.inRow) {
      destination.inRow = true;
      this.#unseated.push(destination);
    }
    if (destination.isEmpty && !destination.inRow) this.#byName.delete(destination.name);
  }

  /** Time of the next due recipient; in the past when one waits for a connection slot. */
  nextDue(): number | null {
    return this.#firstReady()?.due ?? this.#timers.first?.due ?? null;
  }

  #firstReady(): RecipientRecord | undefined {
    const unseated = this.#unseated.find(({ ready }) => ready > 0);
    if (unseated !== undefined) return unseated.firstReady;
    for (const row of this.#rows.values()) {
      for (const destination of row) if (destination.ready > 0) return destination.firstReady;
    }
    return undefined;
  }

  /**
   * Picks due recipients with capacity; sites, destinations of a site, new mail and retries, and senders take turns.
   */
  pick({ now, limit, maxRecipients = Infinity, room, sites = eachItsOwn }: PickOptions): readonly Picked[] {
    this.#ripen(now);
    this.#seat(sites);
    const picked: Picked[] = [];
    const pass: Pass = {
      now,
      maxRecipients,
      sites,
      room: new Rooms(room),
      siteRoom: new Rooms((site) => sites.room(site)),
    };
    for (let rows = [...this.#rows.values()]; rows.length > 0 && picked.length < limit;) {
      const again: SiteRow[] = [];
      for (const row of rows) {
        if (picked.length >= limit) break;
        const hasRoom = pass.siteRoom.left(row.site) > 0;
        if (!hasRoom) this.#reseat(row, pass);
        const one = hasRoom ? this.#pickFrom(row, pass) : undefined;
        if (one === undefined) continue;
        picked.push(one);
        pass.siteRoom.use(row.site);
        again.push(row);
      }
      rows = again;
    }
    return picked;
  }

  /** Moves destinations whose site is now known to the row of that site. */
  #seat(sites: ClaimSites): void {
    const unseated = this.#unseated;
    this.#unseated = [];
    for (const destination of unseated) {
      if (destination.ready === 0) this.#leave(destination);
      else this.#sit(destination, sites);
    }
  }

  #sit(destination: DestinationSchedule, sites: ClaimSites): void {
    const site = sites.of(destination.name);
    if (site === undefined) {
      this.#unseated.push(destination);
      return;
    }
    let row = this.#rows.get(site);
    if (row === undefined) {
      row = new SiteRow(site);
      this.#rows.set(site, row);
    }
    row.add(destination);
  }

  /** A destination whose site has changed need not wait for capacity here. */
  #reseat(row: SiteRow, { now, sites }: Pass): void {
    if (Math.abs(now - row.lookedAt) < reseatedMs) return;
    row.lookedAt = now;
    for (let looks = Math.min(row.size, maxReseated); looks > 0; looks -= 1) {
      const destination = row.take();
      if (destination === undefined) break;
      if (destination.ready === 0) this.#leave(destination);
      else if (sites.of(destination.name) === row.site) row.add(destination);
      else this.#sit(destination, sites);
    }
    if (row.size === 0) this.#rows.delete(row.site);
  }

  #leave(destination: DestinationSchedule): void {
    destination.inRow = false;
    this.#place(destination);
  }

  /** The next destination of that site with capacity; the site then moves to the end. An empty row is removed. */
  #pickFrom(row: SiteRow, { now, maxRecipients, sites, room }: Pass): Picked | undefined {
    if (row.size === 0) return undefined;
    let one: Picked | undefined;
    for (let looks = row.size; looks > 0 && one === undefined; looks -= 1) {
      const destination = row.take();
      if (destination === undefined) break;
      const isHere = sites.of(destination.name) === row.site;
      if (isHere && destination.ready > 0 && room.left(destination.name) > 0) {
        one = this.#take(destination, { now, maxRecipients });
        room.use(destination.name);
      }
      if (destination.ready === 0) this.#leave(destination);
      else if (isHere) row.add(destination);
      else this.#sit(destination, sites);
    }
    if (row.size === 0 || one !== undefined) this.#rows.delete(row.site);
    if (row.size > 0 && one !== undefined) this.#rows.set(row.site, row);
    return one;
  }

  #take(
    destination: DestinationSchedule,
    { now, maxRecipients }: Pick<Pass, 'now' | 'maxRecipients'>,
  ): Picked | undefined {
    const first = destination.take();
    if (first === undefined) return undefined;
    const { entry } = first;
    const recipients = [first];
    for (const other of entry.recipients) {
      if (recipients.length >= maxRecipients) break;
      if (other === first || other.destination !== destination.name || other.place === nowhere) continue;
      if (other.due > now || other.manual !== first.manual) continue;
      destination.remove(other);
      recipients.push(other);
    }
    this.#place(destination);
    return { entry, destination: destination.name, recipients: recipients.sort((a, b) => a.index - b.index) };
  }

  #ripen(now: number): void {
    let left = maxRipened;
    for (let first = this.#timers.first; first !== undefined && left > 0; first = this.#timers.first) {
      if (first.due > now) return;
      left -= first.ripen(now, left);
      this.#place(first);
    }
  }
}

/** Arguments of one pick. */
interface Pass {
  readonly now: number;
  readonly maxRecipients: number;
  readonly sites: ClaimSites;
  readonly room: Rooms;
  readonly siteRoom: Rooms;
}

/** Capacity that is looked up once and then counted down. */
class Rooms {
  readonly #ask: (name: string) => number;
  readonly #left = new Map<string, number>();

  constructor(ask: (name: string) => number) {
    this.#ask = ask;
  }

  left(name: string): number {
    let left = this.#left.get(name);
    if (left === undefined) {
      left = this.#ask(name);
      this.#left.set(name, left);
    }
    return left;
  }

  use(name: string): void {
    this.#left.set(name, this.left(name) - 1);
  }
}

const eachItsOwn: ClaimSites = { of: (destination) => destination, room: () => Infinity };

/** Recipients waiting for one destination. Itself an item of a heap, ordered by its first recipient. */
class DestinationSchedule implements Due {
  readonly name: string;
  due = Infinity;
  place = nowhere;
  /** True while it is in the row of its site. */
  inRow = false;
  readonly #waiting = new DueHeap<RecipientRecord>();
  #fresh: ReadyLane | undefined;
  #retried: ReadyLane | undefined;
  #freshNext = true;

  constructor(name: string) {
    this.name = name;
  }

  get isEmpty(): boolean {
    return this.#waiting.size === 0 && this.ready === 0;
  }

  /** Number of due recipients. */
  get ready(): number {
    return (this.#fresh?.size ?? 0) + (this.#retried?.size ?? 0);
  }

  /** The first due recipient. */
  get firstReady(): RecipientRecord | undefined {
    return this.#fresh?.first ?? this.#retried?.first;
  }

  add(recipient: RecipientRecord, now: number): void {
    if (recipient.due <= now) this.#toLane(recipient);
    else this.#waiting.add(recipient);
    this.due = this.#waiting.first?.due ?? Infinity;
  }

  /** Removes the recipient. */
  remove(recipient: RecipientRecord): void {
    if (recipient.place === inLane) this.#laneOf(recipient).remove(recipient);
    else this.#waiting.remove(recipient);
    this.due = this.#waiting.first?.due ?? Infinity;
  }

  /** Moves recipients whose time has come to the ready lanes, up to `most`; returns how many. */
  ripen(now: number, most: number): number {
    let count = 0;
    for (let first = this.#waiting.first; first !== undefined && count < most; first = this.#waiting.first) {
      if (first.due > now) break;
      this.#waiting.remove(first);
      this.#toLane(first);
      count += 1;
    }
    this.due = this.#waiting.first?.due ?? Infinity;
    return count;
  }

  /** Takes from new mail and retries in turn. */
  take(): RecipientRecord | undefined {
    const freshFirst = this.#freshNext;
    this.#freshNext = !freshFirst;
    const [one, other] = freshFirst ? [this.#fresh, this.#retried] : [this.#retried, this.#fresh];
    return one?.take() ?? other?.take();
  }

  #toLane(recipient: RecipientRecord): void {
    this.#laneOf(recipient).add(recipient);
  }

  /** A retry that an operator asked for counts as new mail. */
  #laneOf({ state, manual }: RecipientRecord): ReadyLane {
    if (state === 'queued' || manual) {
      this.#fresh ??= new ReadyLane();
      return this.#fresh;
    }
    this.#retried ??= new ReadyLane();
    return this.#retried;
  }
}

/** Removed items that may accumulate at the front before the array is compacted. */
const compactRowAfter = 64;

/** Destinations of one site with due recipients; they take turns. */
class SiteRow {
  readonly site: string;
  /** When the destinations were last checked to belong to this site. */
  lookedAt = 0;
  #destinations: DestinationSchedule[] = [];
  /** Items before it were removed. */
  #head = 0;

  constructor(site: string) {
    this.site = site;
  }

  get size(): number {
    return this.#destinations.length - this.#head;
  }

  /** Appends it. */
  add(destination: DestinationSchedule): void {
    this.#destinations.push(destination);
  }

  /** Removes and returns the next one. */
  take(): DestinationSchedule | undefined {
    const first = this.#destinations[this.#head];
    if (first === undefined) return undefined;
    this.#head += 1;
    if (this.#head >= compactRowAfter && this.#head * 2 >= this.#destinations.length) {
      this.#destinations = this.#destinations.slice(this.#head);
      this.#head = 0;
    }
    return first;
  }

  *[Symbol.iterator](): Generator<DestinationSchedule> {
    for (let at = this.#head; at < this.#destinations.length; at += 1) {
      const one = this.#destinations[at];
      if (one !== undefined) yield one;
    }
  }
}

/** Index of a due recipient that waits for capacity; it is in no heap then. */
const inLane = -2;

interface SenderQueue {
  readonly sender: string;
  recipients: RecipientRecord[];
  /** Items before it were removed. */
  head: number;
}

/** Removed items that may accumulate before the array is compacted. */
const compactAfter = 256;

/**
 * Due recipients of one destination: first in, first out for each sender, and senders take turns. A removed recipient
 * leaves a gap, which is skipped later.
 */
class ReadyLane {
  readonly #senders = new Map<string, SenderQueue>();
  #turn: SenderQueue[] = [];
  #turnHead = 0;
  #live = 0;
  #names = 0;

  /** Number of recipients in it. */
  get size(): number {
    return this.#live;
  }

  add(recipient: RecipientRecord): void {
    const sender = recipient.entry.sender ?? '';
    let queue = this.#senders.get(sender);
    if (queue === undefined) {
      queue = { sender, recipients: [], head: 0 };
      this.#senders.set(sender, queue);
      this.#turn.push(queue);
    }
    recipient.place = inLane;
    queue.recipients.push(recipient);
    this.#live += 1;
    this.#names += 1;
  }

  /** Removes a recipient. */
  remove(recipient: RecipientRecord): void {
    recipient.place = -1;
    this.#live -= 1;
    if (this.#names > 2 * this.#live + compactAfter) this.#clear();
  }

  /** Removes and returns the next. */
  take(): RecipientRecord | undefined {
    for (let queue = this.#turn[this.#turnHead]; queue !== undefined; queue = this.#turn[this.#turnHead]) {
      this.#turnHead += 1;
      const next = this.#next(queue);
      if (queue.head < queue.recipients.length) this.#turn.push(queue);
      else this.#senders.delete(queue.sender);
      this.#shorten();
      if (next === undefined) continue;
      next.place = -1;
      this.#live -= 1;
      return next;
    }
    return undefined;
  }

  /** The next, without removing it. */
  get first(): RecipientRecord | undefined {
    for (let at = this.#turnHead; at < this.#turn.length; at++) {
      const first = firstOf(this.#turn[at]);
      if (first !== undefined) return first;
    }
    return undefined;
  }

  #next(queue: SenderQueue): RecipientRecord | undefined {
    while (queue.head < queue.recipients.length) {
      const recipient = queue.recipients[queue.head];
      queue.head += 1;
      this.#names -= 1;
      if (recipient?.place === inLane) return recipient;
    }
    return undefined;
  }

  #shorten(): void {
    if (this.#turnHead > 1000 && this.#turnHead * 2 > this.#turn.length) {
      this.#turn = this.#turn.slice(this.#turnHead);
      this.#turnHead = 0;
    }
  }

  #clear(): void {
    this.#names = 0;
    for (const queue of this.#senders.values()) {
      const live = new Set(queue.recipients.slice(queue.head).filter(({ place }) => place === inLane));
      queue.recipients = [...live];
      queue.head = 0;
      this.#names += live.size;
    }
  }
}

function firstOf(queue: SenderQueue | undefined): RecipientRecord | undefined {
  const { recipients, head } = queue ?? { recipients: [], head: 0 };
  for (let at = head; at < recipients.length; at++) {
    const recipient = recipients[at];
    if (recipient?.place === inLane) return recipient;
  }
  return undefined;
}

/** Wakes waiters for the next due recipient. */
export class DueSignal {
  readonly #clock: Clock;
  readonly #listeners = new Set<() => void>();
  /** The time that waiters were last given. */
  #said: number | null = null;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  say(due: number | null): number | null {
    this.#said = due;
    return due;
  }

  /** A recipient is due at that time. */
  scheduled(due: number): void {
    if (this.#said !== null && due >= this.#said && due > this.#clock.now()) return;
    for (const listener of this.#listeners) listener();
  }

  listen(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}
