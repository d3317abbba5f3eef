import type { Clock } from '../clock.js';
import { ifPermitted } from '../concurrency.js';
import type { FinishedAttempt } from './events.js';
import type { RecipientOutcome } from './delivery-target.js';
import type { LocalDelivery, Parcel } from '../contracts/local-delivery.js';
import type { Submission, SubmissionService, Submitted } from '../contracts/submission.js';
import { asStorageProblem } from '../disk/fault.js';
import { uniqueId } from '../disk/id.js';
import type { Log } from '../log/log.js';
import type { Address } from '../mime/address.js';
import { mailDate, messageIdOf, returnPathLine } from '../mime/header.js';
import { problem, type Problem } from '../problem.js';
import { type Reply, replyToViolation } from '../smtp/protocol/replies.js';
import { type LongLinePolicy, LongLineWatch, withShortLines } from './long-lines.js';
import type { Spool, SpooledMessage } from '../spool/spool.js';
import type { TransactionPipeline, Decision } from './transaction-pipeline.js';
import type { Recipient, SmtpSession, Transaction } from './transaction.js';
import type { OutgoingAttempt } from './hook.js';
import type { Hop } from './verdict.js';

export interface SubmissionInput {
  readonly pipeline: { snapshot(): TransactionPipeline };
  readonly spool: Spool;
  readonly hostname: string;
  readonly clock: Clock;
  readonly log: Log;
  /** How overlong lines of users' mail are treated. */
  readonly longLines: () => LongLinePolicy;
}

interface Refusal {
  readonly address: Address;
  readonly reply: Reply;
}

/** Submits mail from inside of the server, through the same stages as SMTP from MAIL on. */
export class PipelineSubmission implements SubmissionService {
  readonly #input: SubmissionInput;

  constructor(input: SubmissionInput) {
    this.#input = input;
  }

  async submit(submission: Submission): Promise<Submitted> {
    const snapshot = this.#input.pipeline.snapshot();
    snapshot.acquire();
    try {
      return await this.#submit(snapshot, submission);
    } finally {
      snapshot.release();
    }
  }

  async #submit(snapshot: TransactionPipeline, submission: Submission): Promise<Submitted> {
    const started = this.#input.clock.monotonic();
    const begun = this.#begin(submission);
    const sender = await snapshot.decide('mailFrom', { transaction: begun });
    if (sender.outcome === 'refuse') throw refused('The sender is refused', sender.reply);
    if (sender.outcome === 'discard') throw problem('internal', { cause: new Error('a sender cannot be discarded') });
    try {
      return await this.#deliver(snapshot, begun, submission, started);
    } finally {
      snapshot.emit('ended', { transaction: begun });
    }
  }

  async #deliver(
    snapshot: TransactionPipeline,
    begun: Transaction,
    submission: Submission,
    started: number,
  ): Promise<Submitted> {
    const transaction = await this.#address(snapshot, begun, submission);
    const message = await this.#spool(submission, transaction);
    const { size } = message;
    const messageId = messageIdOf(message.head);
    // The snapshot releases the message in every case.
    const { summary, recipients: taken } = await snapshot.deliver(transaction, message);
    if (summary.code >= 300) throw refused('The message is refused', summary);
    const ms = this.#input.clock.monotonic() - started;
    snapshot.emit('accepted', { transaction, recipients: taken, size, ms, messageId });
    const { id, recipients } = transaction;
    this.#input.log.info(
      { transaction: id, messageId, recipients: recipients.length, size, ms: Math.round(ms) },
      'submitted',
    );
    return { id, recipients: recipients.map(({ address, hop }) => ({ address, target: hop?.target ?? 'none' })) };
  }

  #begin({
    id,
    fresh,
    username,
    remoteAddress = '127.0.0.1',
    via,
    reversePath,
    recipients,
    notes,
  }: Submission): Transaction {
    const session = internalSession(this.#input.clock, {
      listener: { name: via?.toLowerCase() ?? 'internal', mode: 'submission' },
      remote: { address: remoteAddress, port: 0 },
      user: username === undefined ? undefined : { username },
    });
    return {
      id: id ?? uniqueId(),
      ...(id !== undefined && { repeatable: true }),
      ...(fresh !== undefined && { fresh }),
      session,
      reversePath,
      declaredSize: undefined,
      body: '8BITMIME',
      smtputf8: [reversePath, ...recipients].some((address) => address?.international === true),
      recipients: [],
      notes: new Map(notes),
    };
  }

  /** Runs `rcptTo` for each recipient and reports all refused ones together. */
  async #address(
    snapshot: TransactionPipeline,
    begun: Transaction,
    { recipients: addresses, hop }: Submission,
  ): Promise<Transaction> {
    const recipients: Recipient[] = [];
    const transaction: Transaction = { ...begun, recipients };
    const refusals: Refusal[] = [];
    for (const address of addresses) {
      if (hop !== undefined) {
        recipients.push({ address, hop: hop(address), discarded: false });
        continue;
      }
      const decision = await snapshot.decide('rcptTo', { transaction, address });
      const taken = recipientOf(address, decision);
      if ('reply' in taken) refusals.push(taken);
      else recipients.push(taken);
    }
    if (refusals.length > 0) throw refusedRecipients(refusals);
    return transaction;
  }

  async #spool({ content, via, reversePath, username }: Submission, { id }: Transaction): Promise<SpooledMessage> {
    const { spool, hostname, clock } = this.#input;
    const protocol = via === undefined ? '' : ` with ${via}`;
    const date = mailDate(new Date(clock.now()));
    const trace = Buffer.from(`Received: by ${hostname}${protocol} id ${id};\r\n\t${date}\r\n`);
    const writer = await spool.create(returnPathLine(reversePath), trace);
    const lines = new LongLineWatch();
    let message: SpooledMessage;
    try {
      for await (const chunk of content()) {
        lines.add(chunk);
        await writer.write(chunk);
      }
      message = await writer.finish();
    } catch (error) {
      await writer.discard();
      throw asStorageProblem(error);
    }
    return username !== undefined && lines.found ? this.#withoutLongLines(message) : message;
  }

  async #withoutLongLines(message: SpooledMessage): Promise<SpooledMessage> {
    const longLines = this.#input.longLines();
    if (longLines === 'pass') return message;
    if (longLines === 'refuse') {
      await message.release();
      throw refused('The message is refused', replyToViolation('long-line'));
    }
    const received = await withShortLines(message).catch((error: unknown) => {
      throw asStorageProblem(error);
    });
    if ('refusal' in received) throw refused('The message is refused', received.refusal);
    return received.message;
  }
}

function recipientOf(address: Address, decision: Decision): Recipient | Refusal {
  if (decision.outcome === 'discard') return { address, hop: undefined, discarded: true };
  if (decision.outcome === 'refuse') return { address, reply: decision.reply };
  if (decision.hop !== undefined) return { address, hop: decision.hop, discarded: false };
  return { address, reply: { code: 550, status: '5.7.1', lines: ['Nobody delivers to this address'] } };
}

function refusedRecipients(refusals: readonly Refusal[]): Problem {
  const errors = refusals.map(({ address, reply }) => ({ pointer: address.address, message: textOf(reply) }));
  const shown = errors
    .slice(0, 10)
    .map(({ pointer, message }) => `${pointer} (${message})`)
    .join(', ');
  const more = errors.length > 10 ? ` and ${errors.length - 10} more` : '';
  const isTemporary = refusals.every(({ reply }) => reply.code < 500);
  const detail = `Nothing was sent, because of these recipients: ${shown}${more}.`;
  return problem(isTemporary ? 'unavailable' : 'invalid', { detail, errors });
}

function refused(sentence: string, reply: Reply): Problem {
  const name = reply.code < 500 ? 'unavailable' : 'invalid';
  return problem(name, `${sentence}: ${textOf(reply)}. Nothing was sent.`);
}

const textOf = ({ lines }: Reply): string => lines.join(' ').replace(/\.$/, '');

/** Milliseconds that the question before a commit may take. */
const mayCommitMs = 10_000;

interface LocalDeliveryInput {
  readonly pipeline: { snapshot(): TransactionPipeline };
  readonly spool: Spool;
  readonly clock: Clock;
}

/** An internal session, as hooks and targets see it. */
export function internalSession(clock: Clock, about: Partial<SmtpSession> = {}): SmtpSession {
  return {
    id: uniqueId(),
    listener: { name: 'internal', mode: 'submission' },
    remote: { address: '127.0.0.1', port: 0 },
    exempt: true,
    hello: undefined,
    tls: undefined,
    user: undefined,
    internal: true,
    since: new Date(clock.now()).toISOString(),
    notes: new Map(),
    ...about,
  };
}

/** Delivers messages that were accepted earlier to the current delivery targets. */
export class PipelineDelivery implements LocalDelivery {
  readonly #input: LocalDeliveryInput;

  constructor(input: LocalDeliveryInput) {
    this.#input = input;
  }

  async deliver(parcel: Parcel): Promise<readonly RecipientOutcome[]> {
    return this.#holding((snapshot) => this.#deliver(snapshot, parcel));
  }

  /** Messages that leave the pipeline meanwhile are released only at the end. */
  async #holding<T>(work: (snapshot: TransactionPipeline) => T | Promise<T>): Promise<T> {
    const snapshot = this.#input.pipeline.snapshot();
    snapshot.acquire();
    try {
      return await work(snapshot);
    } finally {
      snapshot.release();
    }
  }

  async #deliver(snapshot: TransactionPipeline, parcel: Parcel): Promise<readonly RecipientOutcome[]> {
    const transaction = this.#transaction(parcel);
    const [first] = transaction.recipients;
    const name = first?.hop?.target ?? '';
    const target = snapshot.target(name);
    if (target === undefined) {
      throw problem('unavailable', { cause: new Error(`no plugin delivers to the target ${JSON.stringify(name)}`) });
    }
    const message = await this.#spool(parcel);
    try {
      const delivery = await target.start(transaction, transaction.recipients);
      try {
        await delivery.body(message);
        const outcomes = await ifPermitted(parcel.mayCommit, mayCommitMs, () => delivery.commit());
        if (outcomes === undefined) throw problem('conflict', 'The message may not be delivered from here any more.');
        delivery.complete?.();
        for (const { recipient, outcome } of outcomes) {
          if (outcome === 'delivered') snapshot.emit('delivered', { transaction, recipient, target: name });
        }
        return outcomes;
      } catch (error) {
        await delivery.abort();
        throw error;
      }
    } finally {
      await message.release();
    }
  }

  mayAttempt(attempt: OutgoingAttempt): Decision | Promise<Decision> {
    return this.#input.pipeline.snapshot().decide('attempt', { attempt });
  }

  attempted(finished: FinishedAttempt): void {
    this.#input.pipeline.snapshot().emit('attempted', finished);
  }

  async route(transaction: Transaction, address: Address): Promise<Hop | undefined> {
    const decision = await this.#holding((snapshot) => snapshot.route({ transaction, address }));
    return decision.outcome === 'pass' ? decision.hop : undefined;
  }

  #transaction({ id, reversePath, recipients, smtputf8, fresh = false, mayCommit }: Parcel): Transaction {
    return {
      id,
      session: internalSession(this.#input.clock),
      reversePath,
      declaredSize: undefined,
      body: '8BITMIME',
      smtputf8,
      repeatable: true,
      fresh,
      ...(mayCommit !== undefined && { mayCommit }),
      recipients: recipients.map(({ address, hop }): Recipient => ({ address, hop, discarded: false })),
      notes: new Map(),
    };
  }

  async #spool({ reversePath, content }: Parcel): Promise<SpooledMessage> {
    const writer = await this.#input.spool.create(returnPathLine(reversePath), Buffer.alloc(0));
    try {
      for await (const chunk of content()) await writer.write(chunk);
      return await writer.finish();
    } catch (error) {
      await writer.discard();
      throw error;
    }
  }
}
