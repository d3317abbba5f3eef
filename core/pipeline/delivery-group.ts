import type { Delivery, DeliveryTarget, RecipientOutcome } from '../contracts/delivery-target.js';
import type { SpooledMessage } from '../spool/spool.js';
import type { Log } from '../log/log.js';
import type { DraftRecipient } from './envelope-draft.js';
import type { Patience } from './patience.js';
import { type Reply, replyToError } from '../smtp/protocol/replies.js';
import type { Transaction } from './transaction.js';

export interface GroupGround {
  readonly transaction: Transaction;
  readonly message: SpooledMessage;
  readonly log: Log;
  readonly patience: Patience;
}

/** What became of one recipient of a group; `reply` is what the client may be told of it. */
export interface GroupOutcome {
  readonly member: DraftRecipient;
  readonly target: string;
  readonly outcome: RecipientOutcome['outcome'];
  readonly reply: Reply | undefined;
}

/** The recipients of one target on their way: start → body → commit | abort. No step throws: a failure is kept. */
export class DeliveryGroup {
  readonly name: string;
  readonly members: readonly DraftRecipient[];
  readonly #target: DeliveryTarget | undefined;
  readonly #ground: GroupGround;
  #delivery: Delivery | undefined;
  /** The last step, however long it takes. */
  #step: Promise<unknown> | undefined;
  #failure: Reply | undefined;
  #outcomes: readonly GroupOutcome[] = [];

  constructor(
    name: string,
    target: DeliveryTarget | undefined,
    members: readonly DraftRecipient[],
    ground: GroupGround,
  ) {
    this.name = name;
    this.members = members;
    this.#target = target;
    this.#ground = ground;
  }

  get live(): boolean {
    return this.#target?.live === true;
  }

  get failed(): boolean {
    return this.#failure !== undefined;
  }

  /** One for each member once the group has failed or committed; none before. */
  get outcomes(): readonly GroupOutcome[] {
    const reply = this.#failure;
    if (reply === undefined) return this.#outcomes;
    const outcome = reply.code < 500 ? 'deferred' : 'refused';
    return this.members.map((member) => ({ member, target: this.name, outcome, reply }));
  }

  start(): Promise<void> {
    const { transaction } = this.#ground;
    return this.#try('start', async () => {
      if (this.#target === undefined) throw new Error(`no plugin delivers to the target ${JSON.stringify(this.name)}`);
      const recipients = this.members.map(({ recipient }) => recipient);
      this.#delivery = await this.#target.start(transaction, recipients);
    });
  }

  body(): Promise<void> {
    return this.#try('body', () => this.#delivery?.body(this.#ground.message));
  }

  commit(): Promise<void> {
    return this.#try('commit', async () => {
      const outcomes = await this.#delivery?.commit();
      this.#outcomes = this.#read(outcomes ?? []);
    });
  }

  /** Every target has committed. */
  complete(): void {
    if (!this.failed) this.#delivery?.complete?.();
  }

  /** Takes back what can be taken back, behind a step that still runs. Resolves when it is done, whatever came of it. */
  async abort(): Promise<void> {
    await this.settled();
    try {
      await this.#delivery?.abort();
    } catch (error) {
      this.#log(error, 'a delivery could not be aborted; it may be there twice');
    }
  }

  /** Resolves when no step runs. */
  async settled(): Promise<void> {
    await this.#step?.catch(() => undefined);
  }

  async #try(step: string, work: () => Promise<void> | undefined): Promise<void> {
    if (this.failed) return;
    const { patience } = this.#ground;
    try {
      if (patience.over) throw new Error('there is no time left');
      const running = work();
      this.#step = running;
      if (running !== undefined) await patience.for(running);
    } catch (error) {
      this.#failure = replyToError(error);
      this.#log(error, `${step} of a delivery failed`);
    }
  }

  /** A target that answers for other recipients, or with the wrong codes, has failed. */
  #read(outcomes: readonly RecipientOutcome[]): readonly GroupOutcome[] {
    if (outcomes.length !== this.members.length) throw new Error('a target must answer for each recipient');
    return this.members.map((member, index) => {
      const given = outcomes[index];
      if (given?.recipient.address.address !== member.recipient.address.address) {
        throw new Error('a target must answer in the order of its recipients');
      }
      return { member, target: this.name, outcome: given.outcome, reply: replyOf(given) };
    });
  }

  #log(error: unknown, sentence: string): void {
    const { transaction, log } = this.#ground;
    log.error({ transaction: transaction.id, target: this.name, err: error }, sentence);
  }
}

function replyOf(given: RecipientOutcome): Reply | undefined {
  if (given.outcome === 'delivered') {
    if (given.reply !== undefined && Math.floor(given.reply.code / 100) !== 2) {
      throw new Error(`a target says delivered with the code ${given.reply.code}`);
    }
    return given.reply;
  }
  const { code, status, text } = given;
  if (Math.floor(code / 100) !== (given.outcome === 'deferred' ? 4 : 5)) {
    throw new Error(`a target says ${given.outcome} with the code ${code}`);
  }
  return { code, status, lines: [text] };
}
