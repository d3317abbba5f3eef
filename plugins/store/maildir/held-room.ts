import type { Clock } from '../../../core/clock.js';

interface Hold {
  readonly bytes: number;
  /** By the monotonic clock. */
  readonly since: number;
}

/** What takes longer than that hangs, and shall not fill a mailbox for ever. */
const maxMs = 15 * 60_000;

/** What was admitted to mailboxes and is on its way. */
export class HeldRoom {
  readonly #clock: Clock;
  readonly #holds = new Map<string, Set<Hold>>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Bytes. */
  in(mailbox: string): number {
    let sum = 0;
    const earliest = this.#clock.monotonic() - maxMs;
    for (const { bytes, since } of this.#holds.get(mailbox) ?? []) if (since > earliest) sum += bytes;
    return sum;
  }

  /** The answer gives it back; a second call of it does nothing. */
  hold(mailbox: string, bytes: number): () => void {
    const hold = { bytes, since: this.#clock.monotonic() };
    const holds = this.#holds.get(mailbox) ?? new Set();
    this.#holds.set(mailbox, holds.add(hold));
    return () => {
      holds.delete(hold);
      if (holds.size === 0 && this.#holds.get(mailbox) === holds) this.#holds.delete(mailbox);
    };
  }
}
