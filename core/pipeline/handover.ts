import type { DeliveryTarget } from '../contracts/delivery-target.js';
import { DeliveryGroup, type GroupGround, type GroupOutcome } from './delivery-group.js';
import type { DraftRecipient } from './envelope-draft.js';

/** Targets that may own what a recipient's own target does not take, so that the client can still get its 250. */
const ownerTargets = { deferred: 'retry', refused: 'bounce' } as const;

export interface HandoverGround extends GroupGround {
  /** False for a stranger: what mailboxes here do not take is the client's to try again, for a notice may go to a forged sender. */
  readonly mayReassign: boolean;
  readonly targets: ReadonlyMap<string, DeliveryTarget>;
}

/** How the deliveries of a message ended. */
export interface HandoverResult {
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
export class Handover {
  readonly #ground: HandoverGround;
  readonly #groups: readonly DeliveryGroup[];
  readonly #owners: DeliveryGroup[] = [];
  readonly #owned = new Set<DraftRecipient>();

  constructor(members: readonly DraftRecipient[], ground: HandoverGround) {
    this.#ground = ground;
    const byTarget = grouped(members, ({ recipient }) => recipient.hop?.target ?? '');
    this.#groups = [...byTarget].map(([name, recipients]) => this.#group(name, recipients));
  }

  /** For clients that get an answer for each recipient (LMTP): a target that fails is the matter of its recipients alone. */
  async each(): Promise<HandoverResult> {
    await all(this.#groups, (group) => group.start());
    await all(this.#ordinary, (group) => group.body());
    await all(this.#live, (group) => group.body().then(() => group.commit()));
    await all(this.#ordinary, (group) => group.commit());
    await this.#abort(this.#groups.filter((group) => group.failed));
    return this.#complete();
  }

  /** For clients that get one answer for all: every recipient has an owner in the end, or nothing is left. */
  async together(): Promise<HandoverResult> {
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
    if (!this.#ground.mayReassign || !isTaken || !(await this.#prepareOwners(orphans))) return false;
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
    await this.#ground.patience.for(aborted).catch(() => undefined);
  }

  #complete(): HandoverResult {
    for (const group of [...this.#groups, ...this.#owners]) group.complete();
    return this.#result(false);
  }

  #group(name: string, members: readonly DraftRecipient[]): DeliveryGroup {
    return new DeliveryGroup(name, this.#ground.targets.get(name), members, this.#ground);
  }

  #result(aborted: boolean): HandoverResult {
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
