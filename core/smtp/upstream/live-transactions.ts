import type { Transaction } from '../transaction.js';
import { LiveTransaction } from './live-transaction.js';
import type { Upstream } from './upstream.js';

interface Open {
  readonly byDestination: Map<string, LiveTransaction>;
  /** The destination that has taken the first recipient: the one that is in line with the client. */
  first: string | undefined;
}

/** What is open at upstreams for the transactions of clients. */
export class LiveTransactions {
  readonly #open = new WeakMap<Transaction['notes'], Open>();
  /** A hook may be asked still when its client has left: nothing is begun for it. */
  readonly #over = new WeakSet<Transaction['notes']>();

  /** The destination that has the first recipient of the transaction, if one has any. */
  first({ notes }: Transaction): string | undefined {
    return this.#open.get(notes)?.first;
  }

  /** A recipient of the transaction goes there. */
  claim({ notes }: Transaction, destination: string): void {
    const open = this.#open.get(notes);
    if (open !== undefined) open.first ??= destination;
  }

  find({ notes }: Transaction, destination: string): LiveTransaction | undefined {
    return this.#open.get(notes)?.byDestination.get(destination);
  }

  /** The open one, or a new one there; one that has ended when the client's transaction is over. */
  at(transaction: Transaction, destination: string, upstream: Upstream): LiveTransaction {
    const { notes } = transaction;
    if (this.#over.has(notes)) return ended(upstream, transaction);
    const open: Open = this.#open.get(notes) ?? { byDestination: new Map(), first: undefined };
    this.#open.set(notes, open);
    const live = open.byDestination.get(destination) ?? new LiveTransaction(upstream, transaction);
    open.byDestination.set(destination, live);
    return live;
  }

  /** To be called when the client's transaction is over. */
  end({ notes }: Transaction): void {
    const open = this.#open.get(notes);
    this.#open.delete(notes);
    this.#over.add(notes);
    for (const live of open?.byDestination.values() ?? []) live.end();
  }
}

function ended(upstream: Upstream, transaction: Transaction): LiveTransaction {
  const live = new LiveTransaction(upstream, transaction);
  live.end();
  return live;
}
