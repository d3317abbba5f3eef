import { targets } from '../../../core/contracts/targets.js';
import type { Clock } from '../../../core/clock.js';
import type { Delivery, DeliveryTarget, RecipientOutcome } from '../../../core/pipeline/delivery-target.js';
import { asStorageProblem, isMissing, isNameTaken } from '../../../core/disk/fault.js';
import { allSettledOrThrow } from '../../../core/concurrency.js';
import type { LinkTarget, SpooledMessage } from '../../../core/spool/spool.js';
import type { WriteHealth } from '../../../core/spool/health.js';
import type { Log } from '../../../core/log/log.js';
import { classOf, problem } from '../../../core/problem.js';
import type { Recipient, Transaction } from '../../../core/pipeline/transaction.js';
import { MailboxDelivery } from './delivery-place.js';
import { mailboxNameOfUser } from '../maildir/mailbox-name.js';
import type { MailboxQuotas } from './mailbox-quota.js';
import { placedMessageFinder } from './message-finder.js';
import type { MaildirTree } from '../maildir/maildir.js';
import { deliveryMarkOf, type UniqueNames } from '../maildir/maildir-name.js';
import type { StoreMetrics } from './store-metrics.js';

/** Attempts after a name conflict or a vanished mailbox. */
const tries = 3;

export interface DeliveryDeps {
  readonly maildirs: MaildirTree;
  readonly names: UniqueNames;
  /** Without quotas if absent. */
  readonly quotas?: Pick<MailboxQuotas, 'reserve' | 'noteChange'>;
  readonly health: WriteHealth;
  readonly metrics: StoreMetrics;
  readonly clock: Clock;
  readonly log: Log;
}

/** Delivers messages to the `new` folder of mailboxes; the destination of a hop is the user name, `local@domain`. */
export function maildirTarget(deps: DeliveryDeps): DeliveryTarget {
  return {
    // Async, so that an invalid destination rejects instead of throwing.
    start: (transaction, recipients) =>
      Promise.resolve().then(() => new MaildirDelivery(deps, recipients, transaction)),
    finder: () => placedMessageFinder(deps.maildirs.root),
    explain: ({ destination }) => Promise.resolve([`It is put into the INBOX of ${destination}, on this server.`]),
  };
}

/** Delivery of one message to the mailboxes of its recipients: once per mailbox, however many recipients share it. */
class MaildirDelivery implements Delivery {
  readonly #deps: DeliveryDeps;
  readonly #recipients: readonly Recipient[];
  readonly #mark: string | undefined;
  /** By destination. */
  readonly #places: ReadonlyMap<string, MailboxDelivery>;
  #placed: readonly LinkTarget[] = [];
  #message: SpooledMessage | undefined;
  #aborted = false;
  #isCommitted = false;

  constructor(deps: DeliveryDeps, recipients: readonly Recipient[], { id, repeatable, fresh }: Transaction) {
    this.#deps = deps;
    this.#mark = repeatable === true ? deliveryMarkOf(id) : undefined;
    const mayBeThere = fresh !== true;
    this.#recipients = recipients;
    const place = (user: string): MailboxDelivery =>
      new MailboxDelivery(deps, mailboxNameOfUser(user), this.#mark, mayBeThere);
    this.#places = new Map([...new Set(recipients.map(destinationOf))].map((user) => [user, place(user)]));
  }

  /** A full mailbox affects only its recipients: it is an outcome. */
  async body(message: SpooledMessage): Promise<void> {
    this.#message = message;
    const prepared = [...this.#places.values()].map((place) => place.prepare(message.size));
    try {
      await allSettledOrThrow([message.prepare(), ...prepared]);
    } catch (error) {
      throw this.#fault(error);
    }
  }

  expected(): readonly RecipientOutcome[] {
    return this.#recipients.map((recipient) => this.#outcomeOf(recipient));
  }

  async commit(): Promise<readonly RecipientOutcome[]> {
    const message = this.#message;
    if (message === undefined) throw new Error('commit before body');
    const { clock, metrics } = this.#deps;
    const began = clock.monotonic();
    try {
      await this.#place(message);
    } catch (error) {
      await this.abort();
      throw this.#fault(error);
    }
    this.#isCommitted = true;
    this.#note(message.size, 1);
    const { length } = this.#open;
    if (length > 0) metrics.delivered(length, message.size, (clock.monotonic() - began) / 1000);
    return this.expected();
  }

  /** May be called during a commit: links created afterwards are removed again. */
  async abort(): Promise<void> {
    this.#aborted = true;
    for (const place of this.#places.values()) place.release();
    const message = this.#message;
    if (message === undefined) return;
    const placed = this.#placed;
    this.#placed = [];
    if (placed.length === 0) return;
    if (this.#isCommitted) this.#note(-message.size, -1);
    if (await message.rollback(placed)) return;
    this.#deps.log.error('possible duplicate: a delivery could not be taken back');
  }

  /** Mailboxes that are not full. */
  get #open(): readonly MailboxDelivery[] {
    return [...this.#places.values()].filter(({ refusal }) => refusal === undefined);
  }

  #outcomeOf(recipient: Recipient): RecipientOutcome {
    const refusal = this.#places.get(destinationOf(recipient))?.refusal;
    if (refusal === undefined) return { recipient, outcome: 'delivered' };
    const [code, status] = classOf(refusal).smtp;
    return { recipient, outcome: 'deferred', code, status, text: refusal.message };
  }

  #note(size: number, count: number): void {
    for (const place of this.#places.values()) place.noteUsage(size, count);
  }

  /** Delivers to all mailboxes that are not full, or to none. */
  async #place(message: SpooledMessage): Promise<void> {
    for (let attempt = 1; this.#folders().length > 0; attempt++) {
      const placements = this.#folders().map((folder) => this.#placement(folder, message.size));
      try {
        await message.link(placements);
        this.#placed = placements;
        return await this.#unlessAborted();
      } catch (error) {
        if (attempt === tries || !(isNameTaken(error) || isMissing(error))) throw error;
        await allSettledOrThrow(this.#open.map((place) => place.find()));
      }
    }
  }

  #folders(): readonly string[] {
    return this.#open.flatMap(({ folder }) => folder ?? []);
  }

  #placement(folder: string, size: number): LinkTarget {
    const { names } = this.#deps;
    // A repeated delivery uses its mark instead of a random part.
    return { folder, name: names.next(size, this.#mark), isUnique: this.#mark === undefined, owner: targets.mailbox };
  }

  async #unlessAborted(): Promise<void> {
    if (!this.#aborted) return;
    await this.abort();
    throw new Error('the delivery was aborted');
  }

  #fault(error: unknown): Error {
    const { health, metrics, log } = this.#deps;
    const fault = asStorageProblem(error);
    health.failed(fault.details.cause);
    metrics.failed(this.#places.size);
    log.error({ err: fault.details.cause ?? fault }, 'a message could not be put into its mailboxes');
    return fault;
  }
}

function destinationOf(recipient: Recipient): string {
  if (recipient.hop === undefined) throw problem('internal', { cause: new Error('a recipient without a hop') });
  return recipient.hop.destination;
}
