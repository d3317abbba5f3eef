import type { Transaction } from '../../core/pipeline/transaction.js';
import { LiveTransaction } from './live-transaction.js';
import type { Upstream } from './upstream.js';

/** What is open at upstreams for the transactions of clients. */
export class LiveTransactions {
  /** By destination. */
  readonly #open = new WeakMap<Transaction['notes'], Map<string, LiveTransaction>>();
  /** A hook may be asked still when its client has left: nothing is begun for it. */
  readonly #over = new WeakSet<Transaction['notes']>();

  find({ notes }: Transaction, destination: string): LiveTransaction | undefined {
    return this.#open.get(notes)?.get(destination);
  }

  /** The open one, or a new one there; one that has ended when the client's transaction is over. */
  at(transaction: Transaction, destination: string, upstream: Upstream): LiveTransaction {
    const { notes } = transaction;
    if (this.#over.has(notes)) return ended(upstream, transaction);
    const open = this.#open.get(notes) ?? new Map<string, LiveTransaction>();
    this.#open.set(notes, open);
    const live = open.get(destination) ?? new LiveTransaction(upstream, transaction);
    open.set(destination, live);
    return live;
  }

  /** To be called when the client's transaction is over. */
  end({ notes }: Transaction): void {
    const open = this.#open.get(notes);
    this.#open.delete(notes);
    this.#over.add(notes);
    for (const live of open?.values() ?? []) live.end();
  }
}

function ended(upstream: Upstream, transaction: Transaction): LiveTransaction {
  const live = new LiveTransaction(upstream, transaction);
  live.end();
  return live;
}
