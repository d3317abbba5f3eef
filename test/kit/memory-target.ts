import { text } from 'node:stream/consumers';
import type { Delivery, DeliveryTarget, RecipientOutcome } from '../../core/pipeline/delivery-target.js';
import type { SpooledMessage } from '../../core/spool/spool.js';
import { HookMessage } from '../../core/pipeline/delivery.js';
import type { Recipient, Transaction } from '../../core/pipeline/transaction.js';
import type { DeliveredMail } from './delivered-mail.js';

/** Keeps what arrives in memory. */
export class MemoryTarget implements DeliveryTarget {
  readonly #name: DeliveredMail['target'];
  readonly #delivered: DeliveredMail[];

  /** @param delivered where all targets of one server put their mail, in the order of its arrival */
  constructor(name: DeliveredMail['target'], delivered: DeliveredMail[]) {
    this.#name = name;
    this.#delivered = delivered;
  }

  start(transaction: Transaction, recipients: readonly Recipient[]): Promise<Delivery> {
    return Promise.resolve(new MemoryDelivery(this.#name, this.#delivered, transaction, recipients));
  }
}

class MemoryDelivery implements Delivery {
  readonly #name: DeliveredMail['target'];
  readonly #delivered: DeliveredMail[];
  readonly #transaction: Transaction;
  readonly #recipients: readonly Recipient[];
  #mails: readonly DeliveredMail[] = [];

  constructor(
    name: DeliveredMail['target'],
    delivered: DeliveredMail[],
    transaction: Transaction,
    recipients: readonly Recipient[],
  ) {
    this.#name = name;
    this.#delivered = delivered;
    this.#transaction = transaction;
    this.#recipients = recipients;
  }

  async body(message: SpooledMessage): Promise<void> {
    const view = new HookMessage(message);
    const { headers } = view;
    const eml = await text(view.open());
    const from = this.#transaction.reversePath?.address ?? '';
    const mailboxes = [...new Set(this.#recipients.map((recipient) => this.#mailboxOf(recipient)))];
    this.#mails = mailboxes.map((mailbox) => {
      const mine = this.#recipients.filter((recipient) => this.#mailboxOf(recipient) === mailbox);
      const to = mine.map(({ address }) => address.address);
      const reason = reasonOf(mine[0]);
      return { target: this.#name, mailbox, from, to, headers, eml, ...(reason !== undefined && { reason }) };
    });
  }

  commit(): Promise<readonly RecipientOutcome[]> {
    this.#delivered.push(...this.#mails);
    return Promise.resolve(this.#recipients.map((recipient) => ({ recipient, outcome: 'delivered' as const })));
  }

  abort(): Promise<void> {
    for (const mail of this.#mails) {
      const at = this.#delivered.indexOf(mail);
      if (at >= 0) this.#delivered.splice(at, 1);
    }
    return Promise.resolve();
  }

  #mailboxOf({ hop, address }: Recipient): string {
    return this.#name === 'mailbox' ? (hop?.destination ?? address.address) : address.address;
  }
}

function reasonOf(recipient: Recipient | undefined): string | undefined {
  const data = recipient?.hop?.data;
  if (typeof data !== 'object' || data === null || !('reason' in data)) return undefined;
  return typeof data.reason === 'string' ? data.reason : undefined;
}
