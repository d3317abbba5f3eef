import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../core/clock.js';
import type { Delivery, DeliveryTarget, RecipientOutcome } from '../../core/contracts/delivery-target.js';
import { asStorageProblem, isMissing, isTaken } from '../../core/disk/fault.js';
import { jointly } from '../../core/disk/joint.js';
import type { Placement, SpooledMessage } from '../../core/disk/spool.js';
import type { WriteHealth } from '../../core/disk/write-health.js';
import type { Log } from '../../core/log.js';
import { problem } from '../../core/problem.js';
import type { Recipient } from '../../core/smtp/transaction.js';
import type { MailboxName } from '../../core/contracts/mailboxes.js';
import { mailboxNameOfUser } from './mailbox-name.js';
import type { MailboxQuotas, Room } from './mailbox-quota.js';
import { placedMessageFinder } from './placed-message.js';
import type { MaildirTree } from './maildir.js';
import { hasMark, markOf, type UniqueNames } from './maildir-name.js';
import type { StoreMetrics } from './store-metrics.js';

/** How often a name that is taken, or a mailbox that vanished, is answered by another try. */
const tries = 3;

export interface DeliveryGround {
  readonly maildirs: MaildirTree;
  readonly names: UniqueNames;
  /** None are kept if absent. */
  readonly quotas?: Pick<MailboxQuotas, 'reserve' | 'changed'>;
  readonly health: WriteHealth;
  readonly metrics: StoreMetrics;
  readonly clock: Clock;
  readonly log: Log;
}

/** The name of the target. */
export const mailboxTarget = 'mailbox';

/** Puts messages into the `new` folder of mailboxes; the destination of a hop is the user's name, `local@domain`. */
export function maildirTarget(ground: DeliveryGround): DeliveryTarget {
  return {
    // In a promise, so that a destination that cannot be a mailbox rejects and does not throw.
    start: (transaction, recipients) =>
      Promise.resolve().then(
        () => new MaildirDelivery(ground, recipients, transaction.repeatable ? transaction.id : null),
      ),
    finder: () => placedMessageFinder(ground.maildirs.root),
    explain: ({ destination }) => Promise.resolve([`It is put into the INBOX of ${destination}, on this server.`]),
  };
}

/** One message on its way to the mailboxes of its recipients: once for each mailbox, however many recipients share it. */
class MaildirDelivery implements Delivery {
  readonly #ground: DeliveryGround;
  readonly #recipients: readonly Recipient[];
  readonly #mailboxes: readonly MailboxName[];
  /** Of a delivery that a crash may have hidden: it is done where a message with this mark is. */
  readonly #mark: string | undefined;
  /** Where `body` found or made them. */
  readonly #folders = new Map<MailboxName, string>();
  /** In the only mailbox, if it has a quota. */
  #room: Room | undefined;
  #placed: readonly Placement[] = [];
  #message: SpooledMessage | undefined;
  #aborted = false;
  #isCommitted = false;

  constructor(ground: DeliveryGround, recipients: readonly Recipient[], repeatedId: string | null) {
    this.#ground = ground;
    this.#mark = repeatedId === null ? undefined : markOf(repeatedId);
    this.#recipients = recipients;
    this.#mailboxes = [...new Set(recipients.map(destinationOf))].map(mailboxNameOfUser);
  }

  async body(message: SpooledMessage): Promise<void> {
    this.#message = message;
    this.#room = await this.#reserve(message.size);
    try {
      await jointly([message.sync(), ...this.#mailboxes.map((mailbox) => this.#ensure(mailbox))]);
    } catch (error) {
      throw this.#fault(error);
    }
  }

  async commit(): Promise<readonly RecipientOutcome[]> {
    const message = this.#message;
    if (message === undefined) throw new Error('commit before body');
    const { clock, metrics } = this.#ground;
    const began = clock.monotonic();
    try {
      await this.#place(message);
    } catch (error) {
      await this.abort();
      throw this.#fault(error);
    }
    this.#isCommitted = true;
    this.#note(message.size, 1);
    metrics.delivered(this.#mailboxes.length, message.size, (clock.monotonic() - began) / 1000);
    return this.#recipients.map((recipient) => ({ recipient, outcome: 'delivered' }));
  }

  /** May come while the commit is under way: then what is placed later takes itself back. */
  async abort(): Promise<void> {
    this.#aborted = true;
    this.#room?.giveBack();
    const message = this.#message;
    if (message === undefined) return;
    const placed = this.#placed;
    this.#placed = [];
    if (placed.length === 0) return;
    if (this.#isCommitted) this.#note(-message.size, -1);
    if (await message.withdraw(placed)) return;
    this.#ground.log.error('possible duplicate: a delivery could not be taken back');
  }

  /**
   * A full mailbox has been refused at RCPT, by the size that was declared. One message more than its quota is better than
   * that the others of the transaction wait until somebody tidies up.
   */
  #reserve(size: number): Promise<Room> | undefined {
    const [mailbox, ...others] = this.#mailboxes;
    return mailbox === undefined || others.length > 0 ? undefined : this.#ground.quotas?.reserve(mailbox, size);
  }

  /** In the background: nobody waits for an estimate. */
  #note(size: number, count: number): void {
    const room = this.#room;
    this.#room = undefined;
    for (const mailbox of this.#folders.keys()) {
      void (room?.taken(size, count) ?? this.#ground.quotas?.changed(mailbox, size, count));
    }
    // The mailbox has it from an earlier try.
    if (this.#folders.size === 0) room?.giveBack();
  }

  async #ensure(mailbox: MailboxName): Promise<void> {
    const inbox = await this.#ground.maildirs.ensure(mailbox);
    if (!(await this.#isThere(inbox))) this.#folders.set(mailbox, `${inbox}/new`);
  }

  /** Whether the mailbox has the message from an earlier try. */
  async #isThere(inbox: string): Promise<boolean> {
    const mark = this.#mark;
    if (mark === undefined) return false;
    const names = await Promise.all(['new', 'cur'].map((part) => readdir(join(inbox, part))));
    return names.flat().some((name) => hasMark(name, mark));
  }

  /** In all mailboxes or in none. */
  async #place(message: SpooledMessage): Promise<void> {
    for (let attempt = 1; this.#folders.size > 0; attempt++) {
      const placements = [...this.#folders.values()].map((folder) => this.#placement(folder, message.size));
      try {
        await message.place(placements);
        this.#placed = placements;
        return await this.#unlessAborted();
      } catch (error) {
        if (attempt === tries || !(isTaken(error) || isMissing(error))) throw error;
        await jointly(this.#mailboxes.map((mailbox) => this.#ensure(mailbox)));
      }
    }
  }

  #placement(folder: string, size: number): Placement {
    const { names } = this.#ground;
    // A repeated delivery has its mark in place of chance.
    return { folder, name: names.next(size, this.#mark), unique: this.#mark === undefined, owner: mailboxTarget };
  }

  async #unlessAborted(): Promise<void> {
    if (!this.#aborted) return;
    await this.abort();
    throw new Error('the delivery was aborted');
  }

  #fault(error: unknown): Error {
    const { health, metrics, log } = this.#ground;
    const fault = asStorageProblem(error);
    health.failed(fault.details.cause);
    metrics.failed(this.#mailboxes.length);
    log.error({ err: fault.details.cause ?? fault }, 'a message could not be put into its mailboxes');
    return fault;
  }
}

function destinationOf(recipient: Recipient): string {
  if (recipient.hop === undefined) throw problem('internal', { cause: new Error('a recipient without a hop') });
  return recipient.hop.destination;
}
