import type { Readable } from 'node:stream';
import type { DeliveryTarget } from './delivery-target.js';
import type { Log } from '../log/log.js';
import type { Address } from '../mime/address.js';
import { type HeaderBlock, returnPathLine, scanHeader } from '../mime/header.js';
import { replies, reply, type Reply, replyToError } from '../smtp/protocol/replies.js';
import type { BodyEdit, HeaderEdit, SpooledMessage } from '../spool/spool.js';
import { type GroupOutcome, DeliveryCommit, type CommitResult, DeliveryDeadline } from './commit.js';
import type { Decision, DeliveryResult } from './transaction-pipeline.js';
import type { RunContext } from './hook-runner.js';
import type { WatchedEvent, WatchedEvents } from './events.js';
import type { StageInput } from './hook.js';
import type { DraftRecipient, ReceivedMessage, Recipient, SmtpSession, Transaction } from './transaction.js';
import type { Change, Hop } from './verdict.js';

/** What the delivery of a message needs from the pipeline. */
export interface DeliveryContext {
  readonly targets: ReadonlyMap<string, DeliveryTarget>;
  readonly log: Log;
  /** Maximum bytes of a body that a hook writes. */
  readonly maxBodyBytes: () => number;
  /** False when no hook looks at the messages of that session. */
  readonly hasHooks: (session: SmtpSession) => boolean;
  readonly decide: <S extends 'message' | 'deliver' | 'rcptTo'>(
    stage: S,
    input: StageInput[S],
    change?: RunContext<S>['change'],
  ) => Decision | Promise<Decision>;
  readonly emit: <E extends WatchedEvent>(event: E, data: WatchedEvents[E]) => void;
}

/** Runs from the complete message to the reply for its client. Never throws; always releases the message. */
export async function deliverMessage(
  transaction: Transaction,
  message: SpooledMessage,
  context: DeliveryContext,
  deadline: DeliveryDeadline = new DeliveryDeadline(),
): Promise<DeliveryResult> {
  return new MessageDelivery(transaction, message, context, deadline).run();
}

/** Result of the hooks: one reply for all, or recipients to deliver to. */
type Content = { readonly answer: Reply } | { readonly draft: EnvelopeDraft };

class MessageDelivery {
  readonly #transaction: Transaction;
  readonly #context: DeliveryContext;
  readonly #deadline: DeliveryDeadline;
  readonly #taken: Reply;
  #message: SpooledMessage;
  #settled: Promise<void> | undefined;

  constructor(transaction: Transaction, message: SpooledMessage, context: DeliveryContext, deadline: DeliveryDeadline) {
    this.#deadline = deadline;
    this.#transaction = transaction;
    this.#message = message;
    this.#context = context;
    this.#taken = reply(250, '2.0.0', `Ok: queued as ${transaction.id}`);
  }

  async run(): Promise<DeliveryResult> {
    try {
      const draft = EnvelopeDraft.of(this.#transaction);
      const content = this.#context.hasHooks(this.#transaction.session) ? await this.#runHooks(draft) : { draft };
      return 'answer' in content ? this.#toAll(content.answer) : await this.#handOver(content.draft);
    } catch (error) {
      this.#context.log.error({ transaction: this.#transaction.id, err: error }, 'a message could not be delivered');
      return this.#toAll(replyToError(error));
    } finally {
      await this.#release();
    }
  }

  /** Stage `message`, its changes, then stage `deliver`. */
  async #runHooks(received: EnvelopeDraft): Promise<Content> {
    let draft = received;
    const { stranger, session } = received.transaction;
    const fresh = (): HookMessage =>
      new HookMessage(this.#message, noEdit, stranger === true ? session.remote.address : undefined);
    let view = fresh();
    const isFromOther = () => draft.transaction.reversePath !== this.#transaction.reversePath;
    const rewrite = async (body?: BodyEdit): Promise<void> => {
      const returnPath = isFromOther() ? { returnPath: returnPathLine(draft.transaction.reversePath) } : {};
      this.#message = await this.#message.rewrite({ ...view.edit, ...returnPath, ...(body !== undefined && { body }) });
      view = fresh();
    };
    const apply = (one: Change, limitMs: number): Promise<void> | undefined => {
      if (one.change === 'body') {
        draft = draft.withBody();
        return rewrite({ write: one.write, limitMs, maxBytes: this.#context.maxBodyBytes() });
      }
      if (one.change === 'add-header') view = view.withField(one.name, one.value);
      else if (one.change === 'remove-header') view = view.withoutField(one.name);
      else if (one.change === 'sender') draft = draft.from(one.address);
      else draft = draft.changed(one);
      return undefined;
    };
    const now = (): StageInput['message'] => ({ transaction: draft.transaction, message: view });
    const change = (changes: readonly Change[], limitMs: number) => {
      const work = changes.reduce<Promise<void> | undefined>(
        (before, one) => (before === undefined ? apply(one, limitMs) : before.then(() => apply(one, limitMs))),
        undefined,
      );
      return work === undefined ? now() : work.then(now);
    };
    const about = await this.#context.decide('message', { transaction: draft.transaction, message: view }, change);
    const content = this.#followed(about, draft);
    if ('answer' in content) return content;
    if (view.isEdited || isFromOther()) await rewrite();
    const routed = await this.#route(content.draft);
    if ('answer' in routed) return routed;
    const input = { transaction: routed.draft.transaction, message: view };
    return this.#followed(await this.#context.decide('deliver', input), routed.draft);
  }

  #followed(decision: Decision, draft: EnvelopeDraft): Content {
    if (decision.outcome === 'refuse') return { answer: decision.reply };
    if (decision.outcome === 'discard') return { answer: this.#taken };
    return { draft: decision.hop === undefined ? draft : draft.held(decision.hop) };
  }

  /** Recipients that a hook added without a hop go through `rcptTo`; a refusal is a local fault. */
  async #route(draft: EnvelopeDraft): Promise<Content> {
    const { transaction } = draft;
    const { log } = this.#context;
    const routes = new Map<Recipient, Hop | 'discard'>();
    for (const { recipient, position } of draft.recipients) {
      if (position !== undefined || recipient.hop !== undefined) continue;
      const decision = await this.#context.decide('rcptTo', { transaction, address: recipient.address });
      if (decision.outcome === 'discard') routes.set(recipient, 'discard');
      else if (decision.outcome === 'pass' && decision.hop !== undefined) routes.set(recipient, decision.hop);
      else {
        log.error({ transaction: transaction.id }, 'no hook routes a recipient that a hook has added');
        return { answer: replies.fault };
      }
    }
    return { draft: routes.size === 0 ? draft : draft.routed(routes) };
  }

  async #handOver(draft: EnvelopeDraft): Promise<DeliveryResult> {
    const members = draft.recipients.filter(({ recipient }) => !recipient.discarded);
    const { transaction } = draft;
    const { targets, log } = this.#context;
    const commit = new DeliveryCommit(members, {
      transaction,
      mayReassign: transaction.stranger !== true,
      message: this.#message,
      targets,
      log,
      deadline: this.#deadline,
    });
    // An added recipient has no reply of its own, so that all recipients share one result.
    const isEach = transaction.session.listener.mode === 'lmtp' && !draft.hasAdded;
    try {
      const result = await (isEach ? commit.perRecipient() : commit.atomically());
      this.#emitOutcomes(result, transaction);
      return this.#resultOf(result, draft);
    } finally {
      // Otherwise every step has been awaited.
      if (this.#deadline.over) this.#settled = commit.settled();
    }
  }

  #resultOf(result: CommitResult, draft: EnvelopeDraft): DeliveryResult {
    const answers = this.#transaction.recipients.map(() => this.#taken);
    const failure = worstOf(result.outcomes);
    if (result.aborted) {
      const answer = failure ?? replies.fault;
      for (const { recipient, position } of draft.recipients)
        if (position !== undefined && !recipient.discarded) answers[position] = answer;
      return { summary: answer, replies: answers, recipients: [] };
    }
    const recipients = draft.recipients.flatMap(({ recipient }) => (recipient.discarded ? recipient : []));
    for (const { member, outcome, reply } of result.outcomes) {
      const taken = outcome === 'delivered' ? member.recipient : result.owned.get(member);
      if (taken !== undefined) recipients.push(taken);
      if (member.position !== undefined && taken === undefined) answers[member.position] = reply ?? replies.fault;
      if (member.position !== undefined && outcome === 'delivered') answers[member.position] = reply ?? this.#taken;
    }
    const isAnyTaken = answers.some(({ code }) => code < 300);
    const summary = isAnyTaken ? this.#taken : (failure ?? replies.fault);
    return { summary: commonYes(answers) ?? summary, replies: answers, recipients };
  }

  #emitOutcomes({ aborted, outcomes, owned }: CommitResult, transaction: Transaction): void {
    const { emit } = this.#context;
    const delivered = outcomes.filter(({ outcome }) => outcome === 'delivered');
    if (aborted && delivered.some(({ target }) => this.#context.targets.get(target)?.live === true)) {
      this.#context.log.warn({ transaction: transaction.id }, 'possible duplicate: sent on, then refused as a whole');
    }
    if (aborted || delivered.length === 0) return;
    for (const { member, target, outcome, reply } of outcomes) {
      const { recipient } = member;
      const reason = reply === undefined ? '' : `${reply.code} ${reply.status ?? ''} ${reply.lines.join(' ')}`;
      if (outcome === 'delivered') emit('delivered', { transaction, recipient, target });
      else if (!owned.has(member)) this.#emitRejected(recipient, reply ?? replies.fault);
      else emit(outcome === 'deferred' ? 'deferred' : 'bounced', { transaction, recipient, reason });
    }
  }

  /** One recipient of several, over LMTP. */
  #emitRejected(recipient: Recipient, { code, status, lines }: Reply): void {
    const { session, reversePath } = this.#transaction;
    this.#context.emit('rejected', {
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
    const { recipients } = this.#transaction;
    const discarded = answer.code < 300 ? recipients.map((recipient) => ({ ...recipient, discarded: true })) : [];
    return { summary: answer, replies: recipients.map(() => answer), recipients: discarded };
  }

  /** Released at once, unless a target still works on the message after its deadline. */
  async #release(): Promise<void> {
    const released = this.#releaseAll();
    if (!this.#deadline.over) await released;
  }

  async #releaseAll(): Promise<void> {
    try {
      await this.#settled;
      await this.#message.release();
    } catch (error) {
      this.#context.log.error({ transaction: this.#transaction.id, err: error }, 'the message could not be released');
    }
  }
}

/** Prefer 4xx over 5xx: the client retries. */
function worstOf(outcomes: readonly GroupOutcome[]): Reply | undefined {
  const failures = outcomes.filter(({ outcome }) => outcome !== 'delivered');
  return (failures.find(({ outcome }) => outcome === 'deferred') ?? failures[0])?.reply;
}

/** The common 2yz of all recipients: a live target's own text, when no other decided. */
function commonYes([first, ...others]: readonly Reply[]): Reply | undefined {
  return first !== undefined && first.code < 300 && others.every((other) => sameReply(first, other))
    ? first
    : undefined;
}

function sameReply(one: Reply, other: Reply): boolean {
  return one.code === other.code && one.status === other.status && one.lines.join('\n') === other.lines.join('\n');
}

type RecipientChange = Extract<Change, { change: 'add-recipient' | 'remove-recipient' }>;

/** The recipients of a transaction while hooks change them. */
class EnvelopeDraft {
  readonly recipients: readonly DraftRecipient[];
  /** The view for hooks and targets. */
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

  /** With another reverse-path. */
  from(reversePath: Address | null): EnvelopeDraft {
    const smtputf8 = this.transaction.smtputf8 || reversePath?.international === true;
    return new EnvelopeDraft({ ...this.transaction, reversePath, smtputf8 }, this.recipients);
  }

  /** The body is no longer as the client declared it. */
  withBody(): EnvelopeDraft {
    return new EnvelopeDraft({ ...this.transaction, body: '8BITMIME' }, this.recipients);
  }

  /** Routes every recipient that is not discarded to the target `hold`; its data names their original hops. */
  held({ target, destination, data }: Hop): EnvelopeDraft {
    const about = typeof data === 'object' ? data : {};
    return this.#map((recipient) =>
      recipient.discarded
        ? recipient
        : { ...recipient, hop: { target, destination, data: { ...about, hop: recipient.hop } } },
    );
  }

  /** Routes or discards the recipients that have no hop yet. */
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
  const { id, session, reversePath, declaredSize, body, smtputf8, dsn, repeatable, fresh, stranger, notes } =
    transaction;
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
    ...(stranger !== undefined && { stranger }),
    recipients,
    notes,
  };
}

type Field = readonly [name: string, value: string];

const noEdit: HeaderEdit = { add: [], remove: [] };

/** A spooled message as hooks see it, with the header changes of the hooks before them. */
export class HookMessage implements ReceivedMessage {
  readonly edit: HeaderEdit;
  readonly strangerAddress: string | undefined;
  readonly #message: SpooledMessage;
  #headers: readonly Field[] | undefined;
  #block: HeaderBlock | undefined;

  constructor(message: SpooledMessage, edit: HeaderEdit = noEdit, strangerAddress?: string) {
    this.#message = message;
    this.edit = edit;
    this.strangerAddress = strangerAddress;
  }

  get size(): number {
    return this.#message.size - this.#message.messageOffset;
  }

  /** Parsed from the header block on first use. */
  get headers(): readonly Field[] {
    this.#headers ??= [...this.edit.add, ...receivedFields(this.#received, this.edit.remove)];
    return this.#headers;
  }

  get headersTruncated(): boolean {
    return !this.#received.isWhole(this.size);
  }

  get #received(): HeaderBlock {
    this.#block ??= scanHeader(this.#message.head);
    return this.#block;
  }

  get isEdited(): boolean {
    return this.edit.add.length > 0 || this.edit.remove.length > 0;
  }

  open(): Readable {
    return this.#message.open(this.#message.messageOffset);
  }

  withField(name: string, value: string): HookMessage {
    return this.#with({ ...this.edit, add: [...this.edit.add, [name, value]] });
  }

  /** Removes received and added fields of that name, case-insensitively. */
  withoutField(name: string): HookMessage {
    const key = name.toLowerCase();
    return this.#with({
      add: this.edit.add.filter(([added]) => added.toLowerCase() !== key),
      remove: [...this.edit.remove, name],
    });
  }

  #with(edit: HeaderEdit): HookMessage {
    return new HookMessage(this.#message, edit, this.strangerAddress);
  }
}

function receivedFields(block: HeaderBlock, removed: readonly string[]): readonly Field[] {
  const gone = new Set(removed.map((name) => name.toLowerCase()));
  return block.fields.filter(({ key }) => !gone.has(key)).map((field) => [field.name, block.value(field)]);
}
