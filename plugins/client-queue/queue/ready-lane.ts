import type { RecipientRecord } from './queued-entry.js';

/** The place of a recipient that is due and waits for room; it is in no heap then. */
export const inLane = -2;

interface SenderQueue {
  readonly sender: string;
  recipients: RecipientRecord[];
  /** Those in front of it are gone. */
  head: number;
}

/** So many leftovers may lie about before they are cleared away. */
const patience = 256;

/**
 * Recipients that are due at one destination, first come first served for each sender, senders in turn. Who is taken out
 * otherwise leaves his name behind, which is passed over later.
 */
export class ReadyLane {
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
    if (this.#names > 2 * this.#live + patience) this.#clear();
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
