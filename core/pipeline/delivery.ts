import type { DeliveryTarget } from '../contracts/delivery-target.js';
import type { SpooledMessage } from '../spool/spool.js';
import type { Log } from '../log/log.js';
import type { Decision, DeliveryResult } from './chain.js';
import type { GroupOutcome } from './delivery-group.js';
import { EnvelopeDraft, type DraftRecipient } from './envelope-draft.js';
import { Handover, type HandoverResult } from './handover.js';
import type { StageInput, WatchedEvent, WatchedEvents } from './hook.js';
import { MessageView } from './message-view.js';
import { Patience } from './patience.js';
import { replies, reply, type Reply, replyToError } from '../smtp/protocol/replies.js';
import type { StageGround } from './stage-run.js';
import type { Recipient, SmtpSession, Transaction } from './transaction.js';
import type { Change, Hop } from './verdict.js';

/** What the delivery of a message needs of the chain. */
export interface DeliveryGround {
  readonly targets: ReadonlyMap<string, DeliveryTarget>;
  readonly log: Log;
  /** False when no hook looks at messages of that session. */
  readonly hasHooks: (session: SmtpSession) => boolean;
  readonly decide: <S extends 'message' | 'deliver' | 'rcptTo'>(
    stage: S,
    input: StageInput[S],
    change?: StageGround<S>['change'],
  ) => Decision | Promise<Decision>;
  readonly emit: <E extends WatchedEvent>(event: E, data: WatchedEvents[E]) => void;
}

/**
 * From a message that is wholly received to the answer of its client. Never throws; lets go of the message in every case.
 */
export async function deliverMessage(
  transaction: Transaction,
  message: SpooledMessage,
  ground: DeliveryGround,
  patience: Patience = new Patience(),
): Promise<DeliveryResult> {
  return new MessageDelivery(transaction, message, ground, patience).run();
}

/** What hooks have made of the message: an answer for all, or recipients to deliver to. */
type Content = { readonly answer: Reply } | { readonly draft: EnvelopeDraft };

class MessageDelivery {
  readonly #transaction: Transaction;
  readonly #ground: DeliveryGround;
  readonly #patience: Patience;
  readonly #taken: Reply;
  #message: SpooledMessage;
  #settled: Promise<void> | undefined;

  constructor(transaction: Transaction, message: SpooledMessage, ground: DeliveryGround, patience: Patience) {
    this.#patience = patience;
    this.#transaction = transaction;
    this.#message = message;
    this.#ground = ground;
    this.#taken = reply(250, '2.0.0', `Ok: queued as ${transaction.id}`);
  }

  async run(): Promise<DeliveryResult> {
    try {
      const draft = EnvelopeDraft.of(this.#transaction);
      const content = this.#ground.hasHooks(this.#transaction.session) ? await this.#askHooks(draft) : { draft };
      return 'answer' in content ? this.#toAll(content.answer) : await this.#handOver(content.draft);
    } catch (error) {
      this.#ground.log.error({ transaction: this.#transaction.id, err: error }, 'a message could not be delivered');
      return this.#toAll(replyToError(error));
    } finally {
      await this.#release();
    }
  }

  /** Stage `message`, its changes, then stage `deliver`. */
  async #askHooks(received: EnvelopeDraft): Promise<Content> {
    let draft = received;
    let view = new MessageView(this.#message);
    const change = (changes: readonly Change[]): StageInput['message'] => {
      for (const one of changes) {
        if (one.change === 'add-header') view = view.withField(one.name, one.value);
        else if (one.change === 'remove-header') view = view.withoutField(one.name);
        else draft = draft.changed(one);
      }
      return { transaction: draft.transaction, message: view };
    };
    const about = await this.#ground.decide('message', { transaction: draft.transaction, message: view }, change);
    const content = this.#followed(about, draft);
    if ('answer' in content) return content;
    if (view.isEdited) {
      this.#message = await this.#message.rewrite(view.edit);
      view = new MessageView(this.#message);
    }
    const routed = await this.#route(content.draft);
    if ('answer' in routed) return routed;
    const input = { transaction: routed.draft.transaction, message: view };
    return this.#followed(await this.#ground.decide('deliver', input), routed.draft);
  }

  #followed(decision: Decision, draft: EnvelopeDraft): Content {
    if (decision.outcome === 'refuse') return { answer: decision.reply };
    if (decision.outcome === 'discard') return { answer: this.#taken };
    return { draft: decision.hop === undefined ? draft : draft.held(decision.hop) };
  }

  /** Recipients that a hook has added without a hop are asked for like those of RCPT; a no is a local fault. */
  async #route(draft: EnvelopeDraft): Promise<Content> {
    const { transaction } = draft;
    const { log } = this.#ground;
    const routes = new Map<Recipient, Hop | 'discard'>();
    for (const { recipient, position } of draft.recipients) {
      if (position !== undefined || recipient.hop !== undefined) continue;
      const decision = await this.#ground.decide('rcptTo', { transaction, address: recipient.address });
      if (decision.outcome === 'discard') routes.set(recipient, 'discard');
      else if (decision.outcome === 'pass' && decision.hop !== undefined) routes.set(recipient, decision.hop);
      else {
        log.error({ transaction: transaction.id }, 'a recipient that a hook has added is taken by nobody');
        return { answer: replies.fault };
      }
    }
    return { draft: routes.size === 0 ? draft : draft.routed(routes) };
  }

  async #handOver(draft: EnvelopeDraft): Promise<DeliveryResult> {
    const members = draft.recipients.filter(({ recipient }) => !recipient.discarded);
    const { transaction } = draft;
    const { targets, log } = this.#ground;
    const handover = new Handover(members, {
      transaction,
      mayReassign: transaction.stranger !== true,
      message: this.#message,
      targets,
      log,
      patience: this.#patience,
    });
    // An added recipient has no answer of its own: then all stand or fall together.
    const isEach = transaction.session.listener.mode === 'lmtp' && !draft.hasAdded;
    try {
      const result = await (isEach ? handover.each() : handover.together());
      this.#tell(result, transaction);
      return this.#answer(result, members);
    } finally {
      // Else every step has been waited for.
      if (this.#patience.over) this.#settled = handover.settled();
    }
  }

  #answer(result: HandoverResult, members: readonly DraftRecipient[]): DeliveryResult {
    const answers = this.#transaction.recipients.map(() => this.#taken);
    const failure = worstOf(result.outcomes);
    if (result.aborted) {
      const answer = failure ?? replies.fault;
      for (const { position } of members) if (position !== undefined) answers[position] = answer;
      return { summary: answer, replies: answers };
    }
    for (const { member, outcome, reply } of result.outcomes) {
      const isTaken = outcome === 'delivered' || result.owned.has(member);
      if (member.position !== undefined && !isTaken) answers[member.position] = reply ?? replies.fault;
      if (member.position !== undefined && outcome === 'delivered') answers[member.position] = reply ?? this.#taken;
    }
    const isAnyTaken = answers.some(({ code }) => code < 300);
    const summary = isAnyTaken ? this.#taken : (failure ?? replies.fault);
    return { summary: commonYes(answers) ?? summary, replies: answers };
  }

  #tell({ aborted, outcomes, owned }: HandoverResult, transaction: Transaction): void {
    const { emit } = this.#ground;
    const delivered = outcomes.filter(({ outcome }) => outcome === 'delivered');
    if (aborted && delivered.some(({ target }) => this.#ground.targets.get(target)?.live === true)) {
      this.#ground.log.warn({ transaction: transaction.id }, 'possible duplicate: sent on, then refused as a whole');
    }
    if (aborted || delivered.length === 0) return;
    for (const { member, target, outcome, reply } of outcomes) {
      const { recipient } = member;
      const reason = reply === undefined ? '' : `${reply.code} ${reply.status ?? ''} ${reply.lines.join(' ')}`;
      if (outcome === 'delivered') emit('delivered', { transaction, recipient, target });
      else if (!owned.has(member)) this.#tellRefused(recipient, reply ?? replies.fault);
      else emit(outcome === 'deferred' ? 'deferred' : 'bounced', { transaction, recipient, reason });
    }
  }

  /** One recipient of several, over LMTP. */
  #tellRefused(recipient: Recipient, { code, status, lines }: Reply): void {
    const { session, reversePath } = this.#transaction;
    this.#ground.emit('rejected', {
      session,
      stage: 'deliver',
      code,
      status: status ?? `${code < 500 ? 4 : 5}.0.0`,
      text: lines.join(' '),
      reversePath,
      recipient: recipient.address,
    });
  }

  #toAll(answer: Reply): DeliveryResult {
    return { summary: answer, replies: this.#transaction.recipients.map(() => answer) };
  }

  /** At once, but not under a target that still works on the message because its time is over. */
  async #release(): Promise<void> {
    const released = this.#letGo();
    if (!this.#patience.over) await released;
  }

  async #letGo(): Promise<void> {
    try {
      await this.#settled;
      await this.#message.release();
    } catch (error) {
      this.#ground.log.error({ transaction: this.#transaction.id, err: error }, 'the spool could not let go');
    }
  }
}

/** Temporary before permanent: who may come again loses nothing. */
function worstOf(outcomes: readonly GroupOutcome[]): Reply | undefined {
  const failures = outcomes.filter(({ outcome }) => outcome !== 'delivered');
  return (failures.find(({ outcome }) => outcome === 'deferred') ?? failures[0])?.reply;
}

/** What all recipients are told alike when it is a yes: a live target's own words, when no other had a say. */
function commonYes([first, ...others]: readonly Reply[]): Reply | undefined {
  return first !== undefined && first.code < 300 && others.every((other) => sameReply(first, other))
    ? first
    : undefined;
}

function sameReply(one: Reply, other: Reply): boolean {
  return one.code === other.code && one.status === other.status && one.lines.join('\n') === other.lines.join('\n');
}
