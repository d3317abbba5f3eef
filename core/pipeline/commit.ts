import { targets } from '../contracts/targets.js';
import type { Delivery, DeliveryTarget, RecipientOutcome } from '../contracts/delivery-target.js';
import type { Log } from '../log/log.js';
import { type Reply, replyToError } from '../smtp/protocol/replies.js';
import type { SpooledMessage } from '../spool/spool.js';
import type { DraftRecipient, Transaction } from './transaction.js';

/** Targets that may own what a recipient's own target does not take, so that the client can still get its 250. */
const ownerTargets = { deferred: targets.retry, refused: targets.bounce } as const;

interface CommitContext extends GroupContext {
  /** False for a stranger: what mailboxes here do not take is the client's to try again, for a notice may go to a forged sender. */
  readonly mayReassign: boolean;
  readonly targets: ReadonlyMap<string, DeliveryTarget>;
}

/** How the deliveries of a message ended. */
export interface CommitResult {
  /** True when everything was taken back that can be: nobody may be told yes. */
  readonly aborted: boolean;
  /** What the targets of the recipients have answered; when aborted, not necessarily for each. */
  readonly outcomes: readonly GroupOutcome[];
  /** Recipients that were not delivered and that another target owns; of no meaning when aborted. */
  readonly owned: ReadonlySet<DraftRecipient>;
}

/**
 * Hands a message to the targets of its recipients, grouped by hop. All bodies are durable before the first commit; live
 * targets come in between.
 */
export class DeliveryCommit {
  readonly #context: CommitContext;
  readonly #groups: readonly DeliveryGroup[];
  readonly #owners: DeliveryGroup[] = [];
  readonly #owned = new Set<DraftRecipient>();

  constructor(members: readonly DraftRecipient[], context: CommitContext) {
    this.#context = context;
    const byTarget = grouped(members, ({ recipient }) => recipient.hop?.target ?? '');
    this.#groups = [...byTarget].map(([name, recipients]) => this.#group(name, recipients));
  }

  /** For clients that get an answer for each recipient (LMTP): a target that fails is the matter of its recipients alone. */
  async perRecipient(): Promise<CommitResult> {
    await all(this.#groups, (group) => group.start());
    await all(this.#ordinary, (group) => group.body());
    await all(this.#live, (group) => group.body().then(() => group.commit()));
    await all(this.#ordinary, (group) => group.commit());
    await this.#abort(this.#groups.filter((group) => group.failed));
    return this.#complete();
  }

  /** For clients that get one answer for all: every recipient has an owner in the end, or nothing is left. */
  async atomically(): Promise<CommitResult> {
    if ((await this.#prepare()) && (await this.#askLive()) && (await this.#commit())) {
      return this.#complete();
    }
    await this.#abort([...this.#groups, ...this.#owners]);
    return this.#result(true);
  }

  /** Resolves when no target works on the message any more. */
  async settled(): Promise<void> {
    await all([...this.#groups, ...this.#owners], (group) => group.settled());
  }

  get #live(): readonly DeliveryGroup[] {
    return this.#groups.filter((group) => group.live);
  }

  get #ordinary(): readonly DeliveryGroup[] {
    return this.#groups.filter((group) => !group.live);
  }

  async #prepare(): Promise<boolean> {
    await all(this.#groups, (group) => group.start());
    if (this.#groups.some((group) => group.failed)) return false;
    await all(this.#ordinary, (group) => group.body());
    return !this.#groups.some((group) => group.failed);
  }

  /** One after the other, and no further than the first that fails: what a live target has sent cannot be taken back. */
  async #askLive(): Promise<boolean> {
    for (const group of this.#live) {
      await group.body();
      await group.commit();
      if (group.failed) return false;
      const orphans = orphansOf([group]);
      if (orphans.length > 0 && !(this.#mayLeave(orphans, group) && (await this.#prepareOwners(orphans)))) return false;
    }
    return true;
  }

  /**
   * True when an owner may stand in for a live target. When it took none of its recipients, the client gets its answer if
   * that is temporary, for nothing is sent yet, or if there is nobody else to deliver to.
   */
  #mayLeave(orphans: readonly GroupOutcome[], group: DeliveryGroup): boolean {
    if (orphans.length < group.members.length) return true;
    // What another live target has sent would be sent twice.
    if (this.#live.some((other) => other.outcomes.some(({ outcome }) => outcome === 'delivered'))) return true;
    return this.#groups.length > 1 && orphans.every(({ outcome }) => outcome === 'refused');
  }

  async #commit(): Promise<boolean> {
    await all([...this.#ordinary, ...this.#owners], (group) => group.commit());
    if (this.#groups.some((group) => group.failed) || !isWhole(this.#owners)) return false;
    const orphans = orphansOf(this.#ordinary);
    if (orphans.length === 0) return true;
    const isTaken = this.#groups.some((group) => group.outcomes.some(({ outcome }) => outcome === 'delivered'));
    const late = this.#owners.length;
    if (!this.#context.mayReassign || !isTaken || !(await this.#prepareOwners(orphans))) return false;
    await all(this.#owners.slice(late), (group) => group.commit());
    return isWhole(this.#owners);
  }

  /** Brings the orphans to the targets that own such, up to their commit. False when one would have no owner. */
  async #prepareOwners(orphans: readonly GroupOutcome[]): Promise<boolean> {
    const byOwner = grouped(orphans, ({ outcome }) => ownerTargets[outcome === 'refused' ? 'refused' : 'deferred']);
    const owners = [...byOwner].map(([name, ofOwner]) =>
      this.#group(
        name,
        ofOwner.map((orphan) => forOwner(name, orphan)),
      ),
    );
    this.#owners.push(...owners);
    for (const { member } of orphans) this.#owned.add(member);
    await all(owners, (group) => group.start());
    if (owners.some((group) => group.failed)) return false;
    await all(owners, (group) => group.body());
    return !owners.some((group) => group.failed);
  }

  /** Waits until all is taken back, but not for longer than there is time. */
  async #abort(groups: readonly DeliveryGroup[]): Promise<void> {
    const aborted = all(groups, (group) => group.abort());
    await this.#context.deadline.for(aborted).catch(() => undefined);
  }

  #complete(): CommitResult {
    for (const group of [...this.#groups, ...this.#owners]) group.complete();
    return this.#result(false);
  }

  #group(name: string, members: readonly DraftRecipient[]): DeliveryGroup {
    return new DeliveryGroup(name, this.#context.targets.get(name), members, this.#context);
  }

  #result(aborted: boolean): CommitResult {
    return { aborted, outcomes: this.#groups.flatMap((group) => group.outcomes), owned: this.#owned };
  }
}

/** The hop carries what the owner must know: the reply, and where the recipient should have gone. */
function forOwner(target: string, { member, reply }: GroupOutcome): DraftRecipient {
  const { recipient, position } = member;
  const hop = { target, destination: '', data: { reply, hop: recipient.hop } };
  return { recipient: { ...recipient, hop }, position };
}

function orphansOf(groups: readonly DeliveryGroup[]): readonly GroupOutcome[] {
  return groups.flatMap((group) => group.outcomes.filter(({ outcome }) => outcome !== 'delivered'));
}

/** Every group has committed all its members. */
function isWhole(groups: readonly DeliveryGroup[]): boolean {
  return groups.every(
    (group) =>
      group.outcomes.length === group.members.length && group.outcomes.every(({ outcome }) => outcome === 'delivered'),
  );
}

async function all(groups: readonly DeliveryGroup[], step: (group: DeliveryGroup) => Promise<void>): Promise<void> {
  const [first, ...others] = groups;
  if (first !== undefined) await (others.length === 0 ? step(first) : Promise.all(groups.map(step)));
}

function grouped<T>(list: readonly T[], nameOf: (member: T) => string): ReadonlyMap<string, readonly T[]> {
  const groups = new Map<string, T[]>();
  for (const member of list) {
    const group = groups.get(nameOf(member));
    if (group === undefined) groups.set(nameOf(member), [member]);
    else group.push(member);
  }
  return groups;
}

interface GroupContext {
  readonly transaction: Transaction;
  readonly message: SpooledMessage;
  readonly log: Log;
  readonly deadline: DeliveryDeadline;
}

/** What became of one recipient of a group; `reply` is what the client may be told of it. */
export interface GroupOutcome {
  readonly member: DraftRecipient;
  readonly target: string;
  readonly outcome: RecipientOutcome['outcome'];
  readonly reply: Reply | undefined;
}

/** The recipients of one target on their way: start → body → commit | abort. No step throws: a failure is kept. */
class DeliveryGroup {
  readonly name: string;
  readonly members: readonly DraftRecipient[];
  readonly #target: DeliveryTarget | undefined;
  readonly #context: GroupContext;
  #delivery: Delivery | undefined;
  /** The last step, however long it takes. */
  #step: Promise<unknown> | undefined;
  #failure: Reply | undefined;
  #outcomes: readonly GroupOutcome[] = [];

  constructor(
    name: string,
    target: DeliveryTarget | undefined,
    members: readonly DraftRecipient[],
    context: GroupContext,
  ) {
    this.name = name;
    this.members = members;
    this.#target = target;
    this.#context = context;
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
    const { transaction } = this.#context;
    return this.#try('start', async () => {
      if (this.#target === undefined) throw new Error(`no plugin delivers to the target ${JSON.stringify(this.name)}`);
      const recipients = this.members.map(({ recipient }) => recipient);
      this.#delivery = await this.#target.start(transaction, recipients);
    });
  }

  body(): Promise<void> {
    return this.#try('body', () => this.#delivery?.body(this.#context.message));
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
    const { deadline } = this.#context;
    try {
      if (deadline.over) throw new Error('there is no time left');
      const running = work();
      this.#step = running;
      if (running !== undefined) await deadline.for(running);
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
    const { transaction, log } = this.#context;
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

/** How long somebody waits for a delivery: until he has no more deadline. Lighter than an AbortSignal, for each message has one. */
export class DeliveryDeadline {
  readonly #waiting = new Set<() => void>();
  #over = false;

  /** True once nobody waits any more. */
  get over(): boolean {
    return this.#over;
  }

  /** From now on everything that is waited for has taken too long. */
  end(): void {
    this.#over = true;
    for (const stop of this.#waiting) stop();
    this.#waiting.clear();
  }

  /** As the work ends; rejects as soon as deadline does, and the work goes on alone. */
  for<T>(work: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const stop = (): void => reject(new Error('it took too long'));
      if (this.#over) stop();
      this.#waiting.add(stop);
      const done = (): void => void this.#waiting.delete(stop);
      work.then(resolve, reject).then(done, done);
    });
  }
}
