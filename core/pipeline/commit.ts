import { targets } from '../contracts/targets.js';
import type { Delivery, DeliveryTarget, RecipientOutcome } from './delivery-target.js';
import type { Log } from '../log/log.js';
import { type Reply, replyToError } from '../smtp/protocol/replies.js';
import type { SpooledMessage } from '../spool/spool.js';
import type { DraftRecipient, Recipient, Transaction } from './transaction.js';

/** Targets that take over recipients whose own target fails, so that the client still gets its 250. */
const ownerTargets = { deferred: targets.retry, refused: targets.bounce } as const;

interface CommitContext extends GroupContext {
  /**
   * False for an unknown sender at an MX: the client retries, since a DSN might go to a forged address. For ordinary
   * targets: what a live one has sent cannot be taken back.
   */
  readonly mayReassign: boolean;
  readonly targets: ReadonlyMap<string, DeliveryTarget>;
}

/** The result of delivering a message. */
export interface CommitResult {
  /** True when everything revocable was rolled back; then no recipient may get a 2yz. */
  readonly aborted: boolean;
  /** Results of the targets; incomplete when aborted. */
  readonly outcomes: readonly GroupOutcome[];
  /** Recipients that another target took over, with its hop; meaningless when aborted. */
  readonly owned: ReadonlyMap<DraftRecipient, Recipient>;
}

/**
 * Delivers a message to the targets of its recipients, grouped by target. All targets have prepared before the first
 * commit; with the commit log a message is durable with its record, in `commit`. Live targets run in between.
 */
export class DeliveryCommit {
  readonly #context: CommitContext;
  readonly #groups: readonly DeliveryGroup[];
  /** Not delivered, and to be taken over. */
  readonly #undelivered: GroupOutcome[] = [];
  #owners: readonly DeliveryGroup[] = [];
  readonly #owned = new Map<DraftRecipient, Recipient>();

  constructor(members: readonly DraftRecipient[], context: CommitContext) {
    this.#context = context;
    const byTarget = grouped(members, ({ recipient }) => recipient.hop?.target ?? '');
    this.#groups = [...byTarget].map(([name, recipients]) => this.#group(name, recipients));
  }

  /** One reply for each recipient (LMTP): a failing target affects only its own recipients. */
  async perRecipient(): Promise<CommitResult> {
    await all(this.#groups, (group) => group.start());
    await all(this.#ordinary, (group) => group.body());
    await all(this.#live, (group) => group.body().then(() => group.commit()));
    await all(this.#ordinary, (group) => group.commit());
    await this.#abort(this.#groups.filter((group) => group.failed));
    return this.#complete();
  }

  /** One reply for all recipients: each has an owner in the end, or everything is rolled back. */
  async atomically(): Promise<CommitResult> {
    if ((await this.#prepare()) && (await this.#commitLive()) && (await this.#commit())) {
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
    if (this.#groups.some((group) => group.failed)) return false;
    if (this.#live.length === 0 || this.#context.mayReassign) return true;
    await all(this.#ordinary, (group) => group.foresee());
    return !this.#ordinary.some((group) => group.outcomes.length > 0);
  }

  /** In sequence, stopping at the first failure: what a live target has sent cannot be rolled back. */
  async #commitLive(): Promise<boolean> {
    for (const group of this.#live) {
      await group.body();
      await group.commit();
      if (group.failed) return false;
      const undelivered = undeliveredOf([group]);
      if (
        undelivered.length > 0 &&
        !(this.#canReassign(undelivered, group) && (await this.#prepareOwners(undelivered)))
      )
        return false;
    }
    return true;
  }

  /**
   * True when another target may take over from a live one. When it accepted none of its recipients, the client gets
   * its reply if that is temporary, since nothing was sent yet, or if no other recipients are left.
   */
  #canReassign(undelivered: readonly GroupOutcome[], group: DeliveryGroup): boolean {
    if (undelivered.length < group.members.length) return true;
    // What another live target has sent would be sent twice.
    if (this.#live.some((other) => other.outcomes.some(({ outcome }) => outcome === 'delivered'))) return true;
    return this.#groups.length > 1 && undelivered.every(({ outcome }) => outcome === 'refused');
  }

  async #commit(): Promise<boolean> {
    await all(this.#ordinary, (group) => group.commit());
    if (this.#groups.some((group) => group.failed)) return false;
    const undelivered = undeliveredOf(this.#ordinary);
    if (undelivered.length + this.#undelivered.length === 0) return true;
    const isTaken = outcomesOf(this.#groups).some(({ outcome, queue }) => outcome === 'delivered' || queue === true);
    // No target has a recipient, so the client gets the error: a bounce might go to a forged sender.
    if (!isTaken) return false;
    if (undelivered.length > 0) {
      const mayReassign = this.#context.mayReassign || undelivered.every(({ queue }) => queue === true);
      if (!mayReassign || !(await this.#prepareOwners(undelivered))) return false;
    }
    await all(this.#owners, (group) => group.commit());
    return isWhole(this.#owners);
  }

  /**
   * Prepares the targets that take over these undelivered recipients, and those before: each has one entry for the
   * message, so what it prepared before is taken back. False when a recipient would have no owner.
   */
  async #prepareOwners(undelivered: readonly GroupOutcome[]): Promise<boolean> {
    await this.#abort(this.#owners);
    this.#undelivered.push(...undelivered);
    const byOwner = grouped(
      this.#undelivered,
      ({ outcome }) => ownerTargets[outcome === 'refused' ? 'refused' : 'deferred'],
    );
    const owners = [...byOwner].map(([name, ofOwner]) => {
      const members = ofOwner.map((one) => {
        const taken = forOwner(name, one);
        this.#owned.set(one.member, taken.recipient);
        return taken;
      });
      return this.#group(name, members);
    });
    this.#owners = owners;
    await all(owners, (group) => group.start());
    if (owners.some((group) => group.failed)) return false;
    await all(owners, (group) => group.body());
    return !owners.some((group) => group.failed);
  }

  /** Waits for the rollback, within the deadline. */
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
    return { aborted, outcomes: outcomesOf(this.#groups), owned: this.#owned };
  }
}

/** The hop tells the new owner the reply, and the original hop of the recipient. */
function forOwner(target: string, { member, reply }: GroupOutcome): DraftRecipient {
  const { recipient, position } = member;
  const hop = { target, destination: '', data: { reply, hop: recipient.hop } };
  return { recipient: { ...recipient, hop }, position };
}

function outcomesOf(groups: readonly DeliveryGroup[]): readonly GroupOutcome[] {
  const [first, ...others] = groups;
  return first !== undefined && others.length === 0 ? first.outcomes : groups.flatMap((group) => group.outcomes);
}

function undeliveredOf(groups: readonly DeliveryGroup[]): readonly GroupOutcome[] {
  return outcomesOf(groups).filter(({ outcome }) => outcome !== 'delivered');
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

/** Result of one recipient of a group; `reply` is what the client may get. */
export interface GroupOutcome {
  readonly member: DraftRecipient;
  readonly target: string;
  readonly outcome: RecipientOutcome['outcome'];
  readonly reply: Reply | undefined;
  /** See `RecipientOutcome`. */
  readonly queue?: true;
}

/** The recipients of one target: start, body, commit, then complete or abort. No step throws; a failure is recorded. */
class DeliveryGroup {
  readonly name: string;
  readonly members: readonly DraftRecipient[];
  readonly #target: DeliveryTarget | undefined;
  readonly #context: GroupContext;
  #delivery: Delivery | undefined;
  /** The last step, without a deadline. */
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

  /** Its outcomes before the commit, if the target knows of a recipient that the client will have to send to again. */
  foresee(): Promise<void> {
    return this.#try('body', () => {
      const expected = this.#delivery?.expected?.();
      const outcomes = expected === undefined ? [] : this.#read(expected);
      if (outcomes.some(({ outcome, queue }) => outcome !== 'delivered' && queue !== true)) this.#outcomes = outcomes;
      return undefined;
    });
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

  /** Rolls back after the step that still runs. Resolves when that is done, whatever its result. */
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

  /** A target that answers for unknown recipients, or with invalid codes, has failed. */
  #read(outcomes: readonly RecipientOutcome[]): readonly GroupOutcome[] {
    if (outcomes.length !== this.members.length) throw new Error('a target must answer for each recipient');
    return this.members.map((member, index) => {
      const given = outcomes[index];
      if (given?.recipient.address.address !== member.recipient.address.address) {
        throw new Error('a target must answer in the order of its recipients');
      }
      const mayQueue = given.outcome === 'deferred' && given.queue === true;
      const result = { member, target: this.name, outcome: given.outcome, reply: replyOf(given) };
      return mayQueue ? { ...result, queue: true as const } : result;
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

/** Bounds the wait for a delivery. Lighter than an AbortSignal, since each message has one. */
export class DeliveryDeadline {
  readonly #waiting = new Set<() => void>();
  #over = false;

  /** True once the deadline has passed. */
  get over(): boolean {
    return this.#over;
  }

  /** Ends the wait for everything. */
  end(): void {
    this.#over = true;
    for (const stop of this.#waiting) stop();
    this.#waiting.clear();
  }

  /** Settles with the work; rejects as soon as the deadline passes, while the work continues alone. */
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
