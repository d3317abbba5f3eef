import { LRUCache } from 'lru-cache';
import type { NewEntry } from '../../../core/contracts/queue-entry.js';

/** What a message of a sender puts between it and the next one of the same sender. Milliseconds. */
const stepMs = 1000;
const maxSenders = 50_000;

/**
 * The order of new mail in its destination: by time, but a sender's next message comes a second after the one before. So
 * one with 100,000 messages is passed by one with three.
 */
export class Turns {
  readonly #last = new LRUCache<string, number>({ max: maxSenders });

  /** Turns of an entry by destination: its recipients of one destination have the same. */
  of({ sender, queuedAt }: Pick<NewEntry, 'sender' | 'queuedAt'>): (destination: string) => number {
    const given = new Map<string, number>();
    return (destination) => {
      const known = given.get(destination);
      if (known !== undefined) return known;
      const key = `${destination} ${sender ?? ''}`;
      const turn = Math.max(queuedAt, (this.#last.get(key) ?? -Infinity) + stepMs);
      this.#last.set(key, turn);
      given.set(destination, turn);
      return turn;
    };
  }
}
