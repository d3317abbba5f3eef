import type { Recipient, Transaction } from './transaction.js';
import type { Change, Hop } from './verdict.js';

/** A recipient, and which of the client's it is: undefined for one that a hook has added. */
export interface DraftRecipient {
  readonly recipient: Recipient;
  readonly position: number | undefined;
}

type RecipientChange = Extract<Change, { change: 'add-recipient' | 'remove-recipient' }>;

/** The recipients of a transaction while hooks change them. */
export class EnvelopeDraft {
  readonly recipients: readonly DraftRecipient[];
  /** What hooks and targets see. */
  readonly transaction: Transaction;

  private constructor(transaction: Transaction, recipients: readonly DraftRecipient[]) {
    this.recipients = recipients;
    this.transaction = transaction;
  }

  static of(transaction: Transaction): EnvelopeDraft {
    return new EnvelopeDraft(
      transaction,
      transaction.recipients.map((recipient, position) => ({ recipient, position })),
    );
  }

  get hasAdded(): boolean {
    return this.recipients.some(({ position }) => position === undefined);
  }

  changed(change: RecipientChange): EnvelopeDraft {
    if (change.change === 'remove-recipient') {
      const { address } = change.address;
      return this.#with(this.recipients.filter(({ recipient }) => recipient.address.address !== address));
    }
    const recipient = { address: change.address, hop: change.hop, discarded: false };
    return this.#with([...this.recipients, { recipient, position: undefined }]);
  }

  /** Everybody that is not discarded goes to the target that holds; its data tells where they would have gone. */
  held({ target, destination, data }: Hop): EnvelopeDraft {
    const about = typeof data === 'object' ? data : {};
    return this.#map((recipient) =>
      recipient.discarded
        ? recipient
        : { ...recipient, hop: { target, destination, data: { ...about, hop: recipient.hop } } },
    );
  }

  /** The recipients that have no hop yet get theirs, or are discarded. */
  routed(routes: ReadonlyMap<Recipient, Hop | 'discard'>): EnvelopeDraft {
    return this.#map((recipient) => {
      const route = routes.get(recipient);
      if (route === undefined) return recipient;
      return route === 'discard' ? { ...recipient, discarded: true } : { ...recipient, hop: route };
    });
  }

  #map(change: (recipient: Recipient) => Recipient): EnvelopeDraft {
    return this.#with(this.recipients.map(({ recipient, position }) => ({ recipient: change(recipient), position })));
  }

  #with(recipients: readonly DraftRecipient[]): EnvelopeDraft {
    const changed = recipients.map(({ recipient }) => recipient);
    return new EnvelopeDraft(withRecipients(this.transaction, changed), recipients);
  }
}

function withRecipients(transaction: Transaction, recipients: readonly Recipient[]): Transaction {
  const { id, session, reversePath, declaredSize, body, smtputf8, dsn, repeatable, fresh, notes } = transaction;
  return {
    id,
    session,
    reversePath,
    declaredSize,
    body,
    smtputf8,
    ...(dsn !== undefined && { dsn }),
    ...(repeatable !== undefined && { repeatable }),
    ...(fresh !== undefined && { fresh }),
    recipients,
    notes,
  };
}
