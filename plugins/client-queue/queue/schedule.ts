import { DestinationSchedule } from './destination-schedule.js';
import { DueHeap, nowhere } from './due-heap.js';
import { isWaiting, type QueuedEntry, type RecipientRecord } from './queued-entry.js';

/** Recipients of one entry and one destination, to be tried together. */
export interface Picked {
  readonly entry: QueuedEntry;
  readonly destination: string;
  readonly recipients: readonly RecipientRecord[];
}

export interface PickOptions {
  readonly now: number;
  readonly limit: number;
  readonly room: (destination: string) => number;
}

/** So many recipients may become ready in one go: more would hold up everybody else. */
const mostRipened = 5000;

/** Who waits for which destination until when. Nothing in it is ever searched from end to end. */
export class Schedule {
  readonly #byName = new Map<string, DestinationSchedule>();
  /** Destinations by the first that is not due yet. */
  readonly #timers = new DueHeap<DestinationSchedule>();
  /** Destinations with somebody who is due; they take turns. */
  #row: DestinationSchedule[] = [];

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
      this.#row.push(destination);
    }
    if (destination.isEmpty && !destination.inRow) this.#byName.delete(destination.name);
  }

  /** When the next is due; in the past when somebody waits for room. */
  nextDue(): number | null {
    const ready = this.#row.find(({ ready }) => ready > 0)?.firstReady;
    return ready?.due ?? this.#timers.first?.due ?? null;
  }

  /** Takes who is due and has room; destinations, and within them new mail and retries, and senders, in turn. */
  pick({ now, limit, room }: PickOptions): readonly Picked[] {
    this.#ripen(now);
    const picked: Picked[] = [];
    const rooms = new Map<string, number>();
    let row = this.#row;
    const done: DestinationSchedule[] = [];
    while (row.length > 0 && picked.length < limit) {
      const again: DestinationSchedule[] = [];
      for (const [at, destination] of row.entries()) {
        if (picked.length >= limit) {
          again.unshift(...row.slice(at));
          break;
        }
        const left = rooms.get(destination.name) ?? room(destination.name);
        const one = left > 0 ? this.#take(destination, now) : undefined;
        if (one !== undefined) picked.push(one);
        rooms.set(destination.name, one === undefined ? left : left - 1);
        (one === undefined ? done : again).push(destination);
      }
      row = again;
    }
    this.#row = [...row, ...done].filter((destination) => this.#stays(destination));
    return picked;
  }

  #stays(destination: DestinationSchedule): boolean {
    destination.inRow = destination.ready > 0;
    if (!destination.inRow) this.#place(destination);
    return destination.inRow;
  }

  #take(destination: DestinationSchedule, now: number): Picked | undefined {
    const first = destination.take();
    if (first === undefined) return undefined;
    const { entry } = first;
    const recipients = [first];
    for (const other of entry.recipients) {
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
