import type { Clock } from '../../../core/clock.js';
import type { Delivery, DeliveryTarget, RecipientOutcome } from '../../../core/pipeline/delivery-target.js';
import type { LocalDelivery } from '../../../core/contracts/local-delivery.js';
import type { NewEntry, NewRecipient, RecordedReply } from '../../../core/contracts/queue-entry.js';
import type { PreparedEntry, RelayQueue } from '../../../core/contracts/relay-queue-store.js';
import { isAscii } from '../../../core/mime/character.js';
import { decodeWords } from '../../../core/mime/encoded-words.js';
import { scanHeader } from '../../../core/mime/header.js';
import type { Recipient, Transaction } from '../../../core/pipeline/transaction.js';
import type { Hop } from '../../../core/pipeline/verdict.js';
import { isProblem, problem } from '../../../core/problem.js';
import type { Reply } from '../../../core/smtp/protocol/replies.js';
import type { SpooledMessage } from '../../../core/spool/spool.js';
import { readDestination, targetKey } from './destination.js';
import { relayTarget } from './relay-hook.js';

/** Destination of recipients that were refused before they reached the queue: only the sender must be notified. */
export const refusedDestination = targetKey('bounce');

interface RelayTargetContext {
  readonly queue: Pick<RelayQueue, 'prepare'>;
  readonly local: Pick<LocalDelivery, 'route'>;
  readonly clock: Clock;
  readonly settings: () => {
    readonly expireAfter: number;
    readonly warnAfter: number;
    readonly keepDeadLetters: number;
  };
  /** Milliseconds until the queue tries what another target has deferred. */
  readonly firstPause: () => number;
  /** Whether that route speaks LMTP. */
  readonly speaksLmtp: (route: string) => boolean;
}

type Kind = 'relay' | 'queue' | 'retry' | 'bounce' | 'hold';

/** The targets that create queue entries: `relay` itself, those that take over failed recipients, and `hold`. */
export function queueTargets(context: RelayTargetContext): Readonly<Record<Kind, DeliveryTarget>> {
  const target = (kind: Kind): DeliveryTarget => ({
    start: async (transaction, recipients) => {
      const routed = await Promise.all(recipients.map((recipient) => route(context, kind, transaction, recipient)));
      return new QueueDelivery(context, kind, transaction, routed);
    },
  });
  return {
    relay: target('relay'),
    queue: { ...target('queue'), explain: explainQueued },
    retry: target('retry'),
    bounce: target('bounce'),
    hold: target('hold'),
  };
}

/** What is done with a recipient that a hook has queued for another target. */
function explainQueued({ data }: Hop): Promise<readonly string[]> {
  const { target = '' } = readOwned(data).hop ?? {};
  return Promise.resolve([`It goes into the queue, to be delivered to the target ${target} of this server.`]);
}

/** One message on its way into the queue. */
class QueueDelivery implements Delivery {
  readonly #context: RelayTargetContext;
  readonly #kind: Kind;
  readonly #transaction: Transaction;
  readonly #routed: readonly Routed[];
  #prepared: PreparedEntry | undefined;

  constructor(context: RelayTargetContext, kind: Kind, transaction: Transaction, routed: readonly Routed[]) {
    this.#context = context;
    this.#kind = kind;
    this.#transaction = transaction;
    this.#routed = routed;
  }

  async body(message: SpooledMessage): Promise<void> {
    const entry = acceptedEntry(this.#transaction, message, this.#routed, this.#input());
    try {
      this.#prepared = await this.#context.queue.prepare(entry, message);
    } catch (error) {
      if (this.#isRepeated(error)) return;
      if (isProblem(error) && error.problem === 'unavailable') {
        throw problem('storage-full', { detail: error.message, cause: error });
      }
      throw error;
    }
  }

  async commit(): Promise<readonly RecipientOutcome[]> {
    try {
      await this.#prepared?.commit();
    } catch (error) {
      if (!this.#isRepeated(error)) throw error;
      this.#prepared = undefined;
    }
    return this.#routed.map(({ recipient }) => ({ recipient, outcome: 'delivered' }));
  }

  /** An earlier try has put it in, here or at another server of the same queue. */
  #isRepeated(error: unknown): boolean {
    return isProblem(error) && error.problem === 'conflict' && this.#transaction.repeatable === true;
  }

  complete(): void {
    this.#prepared?.release();
  }

  async abort(): Promise<void> {
    await this.#prepared?.abort();
  }

  #input(): AcceptedInput {
    const { settings, firstPause, clock } = this.#context;
    const { expireAfter, warnAfter, keepDeadLetters } = settings();
    const usual: AcceptedInput = {
      now: clock.now(),
      expireAfter: expireAfter * 1000,
      warnAfter: warnAfter * 1000,
      protocol: this.#isLmtp() ? 'lmtp' : 'smtp',
    };
    if (this.#kind === 'relay') return usual;
    if (this.#kind === 'queue') return { ...usual, suffix: 'queue' };
    if (this.#kind === 'retry') return { ...usual, suffix: 'retry', delay: firstPause() };
    if (this.#kind === 'bounce') return { ...usual, suffix: 'bounce', warnAfter: 0 };
    const hold = holdReason(this.#routed[0]?.recipient.hop?.data);
    return { ...usual, suffix: 'hold', hold, keepDeadLetter: keepDeadLetters * 1000 };
  }

  #isLmtp(): boolean {
    return this.#routed.every(({ destination }) => {
      const read = readDestination(destination);
      if (read.kind === 'servers') return read.servers.protocol === 'lmtp';
      return read.kind === 'route' && this.#context.speaksLmtp(read.route);
    });
  }
}

async function route(
  context: RelayTargetContext,
  kind: Kind,
  transaction: Transaction,
  recipient: Recipient,
): Promise<Routed> {
  const { hop, reply } = readOwned(recipient.hop?.data);
  if (kind === 'relay') {
    return { recipient, destination: recipient.hop?.destination ?? '', ...(hop && { hop: plainHop(hop) }) };
  }
  const said = reply === undefined ? {} : { lastReply: recorded(reply, context.clock.now()) };
  if (kind === 'bounce') return { recipient, destination: refusedDestination, ...said };
  const original = hop ?? (await context.local.route(transaction, recipient.address));
  if (original === undefined) throw problem('forbidden', 'Relaying denied');
  if (original.target === relayTarget) return { recipient, destination: original.destination, ...said };
  return { recipient, destination: targetKey(original.target), hop: plainHop(original), ...said };
}

/** What the pipeline tells a target that takes over recipients. */
function readOwned(data: unknown): { readonly hop?: Hop; readonly reply?: Reply } {
  return typeof data === 'object' && data !== null ? data : {};
}

/** Why a hook holds a message. */
export function holdReason(data: unknown): string {
  const { reason } = typeof data === 'object' && data !== null ? (data as { reason?: unknown }) : {};
  return typeof reason === 'string' && reason !== '' ? reason.slice(0, 500) : 'Held by a rule';
}

/** The data of a hop belongs to its target: what cannot be stored is dropped. */
function plainHop({ target, destination, data }: Hop): NonNullable<Routed['hop']> {
  const text = data === undefined ? undefined : written(data);
  return text === undefined ? { target, destination } : { target, destination, data: JSON.parse(text) as unknown };
}

const maxData = 10_000;

function written(data: unknown): string | undefined {
  try {
    const text = JSON.stringify(data);
    return text.length > maxData ? undefined : text;
  } catch {
    return undefined;
  }
}

function recorded({ code, status, lines }: Reply, at: number): RecordedReply {
  return { code, status: status ?? `${code < 500 ? 4 : 5}.0.0`, text: lines.join(' '), host: null, at };
}

/** Notes of a transaction beyond SMTP; set by internal submissions. */
export const queueNotes = {
  /** Uid of the entry that a notice is about. */
  noticeOf: 'client-queue.notice-of',
} as const;

interface AcceptedInput {
  /** Appended to the id of the transaction, where one transaction makes several entries. */
  readonly suffix?: string;
  readonly protocol?: 'smtp' | 'lmtp';
  readonly now: number;
  /** Milliseconds. */
  readonly expireAfter: number;
  /** Milliseconds; 0 for never. */
  readonly warnAfter: number;
  /** Milliseconds until the first attempt of the queue. */
  readonly delay?: number;
  readonly hold?: string;
  /** How long a held notice is kept; 0 for ever. Milliseconds. */
  readonly keepDeadLetter?: number;
}

/** Where a recipient goes, and what is already known of it. */
interface Routed {
  readonly recipient: Recipient;
  readonly destination: string;
  readonly hop?: NonNullable<NewRecipient['hop']>;
  readonly lastReply?: RecordedReply;
}

const maxSubject = 200;

/** The entry that a transaction becomes. */
function acceptedEntry(
  transaction: Transaction,
  message: SpooledMessage,
  routed: readonly Routed[],
  input: AcceptedInput,
): NewEntry {
  const { id, session, reversePath, smtputf8, dsn, notes } = transaction;
  const { suffix, protocol = 'smtp', now, expireAfter, warnAfter, delay = 0, hold, keepDeadLetter = 0 } = input;
  const header = scanHeader(message.head);
  const subject = decodeWords(header.first('subject') ?? '').slice(0, maxSubject);
  const messageId = header.first('message-id')?.slice(0, 998);
  const noticeOf = notes.get(queueNotes.noticeOf);
  const isInternational = (text: string): boolean => !isAscii(text);
  return {
    uid: suffix === undefined ? id : `${id}-${suffix}`,
    sender: reversePath?.address ?? null,
    recipients: unique(routed).map(newRecipient),
    protocol,
    route: routeOf(routed),
    ...(dsn?.ret !== undefined && { ret: dsn.ret }),
    ...(dsn?.envelopeId !== undefined && { envelopeId: dsn.envelopeId }),
    eightBit: transaction.body === '8BITMIME',
    smtputf8:
      smtputf8 &&
      (isInternational(reversePath?.address ?? '') ||
        routed.some(({ recipient }) => recipient.address.international) ||
        message.head.some((byte) => byte > 127)),
    size: message.size - message.traceOffset,
    subject,
    internetMessageId: messageId === undefined || messageId === '' ? null : messageId,
    queuedAt: now,
    expiresAt: now + expireAfter,
    warnAt: warnAfter === 0 || reversePath === null || transaction.stranger === true ? null : now + warnAfter,
    nextAttempt: now + delay,
    ...(hold !== undefined && { hold }),
    ...(hold !== undefined && noticeOf !== undefined && keepDeadLetter > 0 && { discardAt: now + keepDeadLetter }),
    source: {
      listener: session.listener.name,
      user: session.user?.username ?? null,
      remoteAddress: session.remote.address,
    },
    ...(transaction.stranger === true && { stranger: true }),
    ...(typeof noticeOf === 'string' && { noticeOf }),
  };
}

function newRecipient({ recipient, destination, hop, lastReply }: Routed): NewRecipient {
  const { notify, originalRecipient } = recipient.dsn ?? {};
  return {
    address: recipient.address.address,
    destination,
    ...(hop !== undefined && { hop }),
    ...(notify !== undefined && { notify }),
    ...(originalRecipient !== undefined && { originalRecipient }),
    ...(lastReply !== undefined && { lastReply }),
  };
}

/** A recipient named twice gets one copy. */
function unique(routed: readonly Routed[]): readonly Routed[] {
  const byAddress = new Map<string, Routed>();
  for (const one of routed) {
    const key = `${one.recipient.address.address}\n${one.destination}\n${one.hop?.destination ?? ''}`;
    if (!byAddress.has(key)) byAddress.set(key, one);
  }
  return [...byAddress.values()];
}

/** The common route of all recipients, if any. */
function routeOf(routed: readonly Routed[]): string | null {
  const routes = new Set(
    routed.map(({ destination }) => {
      const read = readDestination(destination);
      return read.kind === 'route' ? read.route : null;
    }),
  );
  const [only = null] = routes;
  return routes.size === 1 ? only : null;
}
