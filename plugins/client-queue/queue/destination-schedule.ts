import { DueHeap, nowhere, type Due } from './due-heap.js';
import type { RecipientRecord } from './queued-entry.js';
import { inLane, ReadyLane } from './ready-lane.js';

/** What waits for one destination. It stands in a heap itself, by the time of its first. */
export class DestinationSchedule implements Due {
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
