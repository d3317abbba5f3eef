import type { Delivery, DeliveryTarget, RecipientOutcome } from '../../../core/pipeline/delivery-target.js';
import type { Log } from '../../../core/log/log.js';
import type { Recipient, Transaction } from '../../../core/pipeline/transaction.js';
import type { SpooledMessage } from '../../../core/spool/spool.js';
import type { PeerLink } from './peer-link.js';

/** Where a mailbox is, for a message. */
export type Whereabouts =
  | { readonly at: 'here'; readonly release: () => void }
  | { readonly at: 'node'; readonly node: string }
  /** It moves, or has just come. */
  | { readonly at: 'nowhere' };

interface DividedInput {
  /** Of the mailboxes that are here. */
  readonly target: DeliveryTarget;
  /** @throws Problem */
  readonly find: (username: string) => Promise<Whereabouts>;
  /** The other node that has the mailbox, as far as this one knows. */
  readonly otherNode: (username: string) => string | undefined;
  /** The user whose mailbox that path is in. */
  readonly usernameIn: (path: string) => string | undefined;
  readonly link: Pick<PeerLink, 'deliver'>;
  readonly log: Log;
}

/** In the data of a hop: another node has handed the mail to this one, which hands it no further. */
export const handedOver = { handedOver: true } as const;

const isHandedOver = ({ hop }: Recipient): boolean =>
  (hop?.data as { readonly handedOver?: unknown } | undefined)?.handedOver === true;

const usernameOf = ({ hop }: Recipient): string => hop?.destination ?? '';

/** The target of mailboxes that several nodes divide: those of others are handed to their nodes. */
export function dividedTarget(input: DividedInput): DeliveryTarget {
  const { target } = input;
  return {
    start: (transaction, recipients) => startDivided(input, asFirstTried(transaction), recipients),
    // What was logged for a mailbox that has moved since has moved with it.
    finder: () => {
      const find = target.finder?.();
      return async (placement, content) => {
        const username = input.usernameIn(placement.folder);
        const isElsewhere = username !== undefined && input.otherNode(username) !== undefined;
        return isElsewhere ? null : find?.(placement, content);
      };
    },
    async explain(hop) {
      const node = input.otherNode(hop.destination);
      if (node !== undefined) return [`It is handed to the node ${node}, which has the mailbox ${hop.destination}.`];
      return (await target.explain?.(hop)) ?? [];
    },
  };
}

/** What the queue appends to the id of a message that it takes over from the mailboxes. */
const takenOver = /-retry$/;

/**
 * A message that the queue has taken over has the id of its first try, by which a mailbox recognises it. That try may
 * have succeeded without an answer.
 */
function asFirstTried(transaction: Transaction): Transaction {
  const { id, repeatable } = transaction;
  if (repeatable !== true || !takenOver.test(id)) return transaction;
  return { ...transaction, id: id.replace(takenOver, ''), fresh: false };
}

async function startDivided(
  input: DividedInput,
  transaction: Transaction,
  recipients: readonly Recipient[],
): Promise<Delivery> {
  const found = new Map<string, Whereabouts>();
  try {
    for (const username of new Set(recipients.map(usernameOf))) found.set(username, await input.find(username));
    const here = recipients.filter((recipient) => found.get(usernameOf(recipient))?.at === 'here');
    const local = here.length > 0 ? await input.target.start(transaction, here) : undefined;
    return new DividedDelivery({ ...input, transaction, recipients, found, local });
  } catch (error) {
    releaseAll(found);
    throw error;
  }
}

function releaseAll(found: ReadonlyMap<string, Whereabouts>): void {
  for (const where of found.values()) if (where.at === 'here') where.release();
}

interface DeliveryInput extends Pick<DividedInput, 'link' | 'log'> {
  readonly transaction: Transaction;
  readonly recipients: readonly Recipient[];
  /** By mailbox. */
  readonly found: ReadonlyMap<string, Whereabouts>;
  readonly local: Delivery | undefined;
}

/** One message: first into the mailboxes here, then to the nodes of the others. */
class DividedDelivery implements Delivery {
  readonly #input: DeliveryInput;
  #message: SpooledMessage | undefined;
  #isHanded = false;

  constructor(input: DeliveryInput) {
    this.#input = input;
  }

  async body(message: SpooledMessage): Promise<void> {
    this.#message = message;
    await this.#input.local?.body(message);
  }

  /** Those of the mailboxes here; the others are not known yet. */
  expected(): readonly RecipientOutcome[] {
    const { local, recipients } = this.#input;
    const known = new Map(local?.expected?.().map((outcome) => [outcome.recipient, outcome]));
    return recipients.map((recipient) => known.get(recipient) ?? { recipient, outcome: 'delivered' });
  }

  async commit(): Promise<readonly RecipientOutcome[]> {
    const { local, transaction, recipients } = this.#input;
    const outcomes = new Map<Recipient, RecipientOutcome>();
    const note = (some: readonly RecipientOutcome[]): void => {
      for (const outcome of some) outcomes.set(outcome.recipient, outcome);
    };
    note((await local?.commit()) ?? []);
    // A stranger has to send all of it again, and what was handed over cannot be taken back.
    const mayHand =
      transaction.stranger !== true || [...outcomes.values()].every(({ outcome }) => outcome === 'delivered');
    if (mayHand) await Promise.all([...this.#byNode()].map(async ([node, some]) => note(await this.#hand(node, some))));
    return recipients.map((recipient) => outcomes.get(recipient) ?? this.#refused(recipient, mayHand));
  }

  complete(): void {
    releaseAll(this.#input.found);
    this.#input.local?.complete?.();
  }

  async abort(): Promise<void> {
    const { found, local, log, transaction } = this.#input;
    try {
      await local?.abort();
    } finally {
      releaseAll(found);
    }
    if (this.#isHanded)
      log.warn({ transaction: transaction.id }, 'possible duplicate: handed to another node, then refused as a whole');
  }

  async #hand(node: string, recipients: readonly Recipient[]): Promise<readonly RecipientOutcome[]> {
    const { link, transaction } = this.#input;
    if (this.#message === undefined) throw new Error('commit before body');
    const outcomes = await link.deliver(node, transaction, recipients, this.#message);
    this.#isHanded ||= outcomes.some(({ outcome }) => outcome === 'delivered');
    return outcomes;
  }

  #byNode(): ReadonlyMap<string, readonly Recipient[]> {
    const byNode = new Map<string, Recipient[]>();
    for (const recipient of this.#input.recipients) {
      const where = this.#input.found.get(usernameOf(recipient));
      if (where?.at !== 'node' || isHandedOver(recipient)) continue;
      byNode.set(where.node, [...(byNode.get(where.node) ?? []), recipient]);
    }
    return byNode;
  }

  /** Of a mailbox that moves, or that was not handed over. */
  #refused(recipient: Recipient, mayQueue: boolean): RecipientOutcome {
    const text = 'The mailbox moves to another server';
    return { recipient, outcome: 'deferred', code: 451, status: '4.2.1', text, ...(mayQueue && { queue: true }) };
  }
}
