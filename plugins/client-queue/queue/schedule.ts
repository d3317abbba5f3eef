import type { ClaimOptions, ClaimSites } from '../../../core/contracts/queue-lease.js';
import { DestinationSchedule } from './destination-schedule.js';
import { DueHeap, nowhere } from './due-heap.js';
import { isWaiting, type QueuedEntry, type RecipientRecord } from './queued-entry.js';
import { SiteRow } from './site-row.js';

/** Recipients of one entry and one destination, to be tried together. */
export interface Picked {
  readonly entry: QueuedEntry;
  readonly destination: string;
  readonly recipients: readonly RecipientRecord[];
}

export type PickOptions = Pick<ClaimOptions, 'now' | 'limit' | 'maxRecipients' | 'room' | 'sites'>;

/** So many recipients may become ready in one go: more would hold up everybody else. */
const mostRipened = 5000;

/** Of a site without room so many destinations are looked at so often: they may have other servers by now. Milliseconds. */
const mostReseated = 64;
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
    for (let looks = Math.min(row.size, mostReseated); looks > 0; looks -= 1) {
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
    let left = mostRipened;
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
