import type { Clock } from '../../../core/clock.js';
import type { ClaimOptions, ClaimSites } from '../../../core/contracts/queue-lease.js';
import { type Due, DueHeap, nowhere } from './due-heap.js';
import { isWaiting, type QueuedEntry, type RecipientRecord } from './queued-entry.js';

/** Recipients of one entry and one destination, to be tried together. */
export interface Picked {
  readonly entry: QueuedEntry;
  readonly destination: string;
  readonly recipients: readonly RecipientRecord[];
}

type PickOptions = Pick<ClaimOptions, 'now' | 'limit' | 'maxRecipients' | 'room' | 'sites'>;

/** So many recipients may become ready in one go: more would hold up everybody else. */
const maxRipened = 5000;

/** Of a site without room so many destinations are looked at so often: they may have other servers by now. Milliseconds. */
const maxReseated = 64;
const reseatedMs = 1000;

/** Who waits for which destination until when. Nothing in it is ever searched from end to end. */
export class Schedule {
  readonly #byName = new Map<string, DestinationSchedule>();
  /** Destinations by the first that is not due yet. */
  readonly #timers = new DueHeap<DestinationSchedule>();
  /** Destinations with somebody who is due, whose site is to be asked for. */
  #unseated: DestinationSchedule[] = [];
  /** The others of them by site; sites take turns. */
  readonly #rows = new Map<string, SiteRow>();

  /** Puts in who waits; those that are in already keep their places. */
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

  /** Takes them out, wherever they are: to be done before anything about them changes. */
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

  /** Brings a destination whose content has changed to its place. */
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

  /** When the next is due; in the past when somebody waits for room. */
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

  /** Takes who is due and has room; sites, within them destinations, then new mail and retries, and senders, in turn. */
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

  /** Those whose site is known now stand with others of their site. */
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

  /** Who waits for room here and has moved need not wait for it. */
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

  /** The next of that site whose destination has room; the site is behind all others then. An empty row is none of ours any more. */
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

/** What one pick goes by. */
interface Pass {
  readonly now: number;
  readonly maxRecipients: number;
  readonly sites: ClaimSites;
  readonly room: Rooms;
  readonly siteRoom: Rooms;
}

/** Room that is asked for once and then counted down. */
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

/** What waits for one destination. It stands in a heap itself, by the time of its first. */
class DestinationSchedule implements Due {
  readonly name: string;
  due = Infinity;
  place = nowhere;
  /** Stands in the row of those that have something to do now. */
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

  /** How many are due. */
  get ready(): number {
    return (this.#fresh?.size ?? 0) + (this.#retried?.size ?? 0);
  }

  /** One of those that are due. */
  get firstReady(): RecipientRecord | undefined {
    return this.#fresh?.first ?? this.#retried?.first;
  }

  add(recipient: RecipientRecord, now: number): void {
    if (recipient.due <= now) this.#toLane(recipient);
    else this.#waiting.add(recipient);
    this.due = this.#waiting.first?.due ?? Infinity;
  }

  /** Takes it out, wherever it is. */
  remove(recipient: RecipientRecord): void {
    if (recipient.place === inLane) this.#laneOf(recipient).remove(recipient);
    else this.#waiting.remove(recipient);
    this.due = this.#waiting.first?.due ?? Infinity;
  }

  /** Those whose time has come are ready behind it, up to `most`; how many. */
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

  /** New mail and retries in turn. */
  take(): RecipientRecord | undefined {
    const freshFirst = this.#freshNext;
    this.#freshNext = !freshFirst;
    const [one, other] = freshFirst ? [this.#fresh, this.#retried] : [this.#retried, this.#fresh];
    return one?.take() ?? other?.take();
  }

  #toLane(recipient: RecipientRecord): void {
    this.#laneOf(recipient).add(recipient);
  }

  /** What an operator wants to have tried goes with new mail. */
  #laneOf({ state, manual }: RecipientRecord): ReadyLane {
    if (state === 'queued' || manual) {
      this.#fresh ??= new ReadyLane();
      return this.#fresh;
    }
    this.#retried ??= new ReadyLane();
    return this.#retried;
  }
}

/** Leftovers that may lie in front before they are cleared away. */
const compactRowAfter = 64;

/** Destinations of one site with somebody who is due; they take turns. */
class SiteRow {
  readonly site: string;
  /** When it was last seen to whether all of them still belong here. */
  lookedAt = 0;
  #destinations: DestinationSchedule[] = [];
  /** Those in front of it are gone. */
  #head = 0;

  constructor(site: string) {
    this.site = site;
  }

  get size(): number {
    return this.#destinations.length - this.#head;
  }

  /** Behind all others. */
  add(destination: DestinationSchedule): void {
    this.#destinations.push(destination);
  }

  /** Takes out the one whose turn it is. */
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

/** The place of a recipient that is due and waits for room; it is in no heap then. */
const inLane = -2;

interface SenderQueue {
  readonly sender: string;
  recipients: RecipientRecord[];
  /** Those in front of it are gone. */
  head: number;
}

/** So many leftovers may lie about before they are cleared away. */
const compactAfter = 256;

/**
 * Recipients that are due at one destination, first come first served for each sender, senders in turn. Who is taken out
 * otherwise leaves his name behind, which is passed over later.
 */
class ReadyLane {
  readonly #senders = new Map<string, SenderQueue>();
  #turn: SenderQueue[] = [];
  #turnHead = 0;
  #live = 0;
  #names = 0;

  /** How many are in it. */
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

  /** Takes out somebody who is in it. */
  remove(recipient: RecipientRecord): void {
    recipient.place = -1;
    this.#live -= 1;
    if (this.#names > 2 * this.#live + compactAfter) this.#clear();
  }

  /** Takes the next. */
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

  /** The next, who stays. */
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

/** Wakes those who wait for the next recipient that is due. */
export class DueSignal {
  readonly #clock: Clock;
  readonly #listeners = new Set<() => void>();
  /** What they were told last. */
  #said: number | null = null;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  say(due: number | null): number | null {
    this.#said = due;
    return due;
  }

  /** Somebody is due then. */
  scheduled(due: number): void {
    if (this.#said !== null && due >= this.#said && due > this.#clock.now()) return;
    for (const listener of this.#listeners) listener();
  }

  listen(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}
