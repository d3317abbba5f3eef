import { targets } from '../../../core/contracts/targets.js';
import type { Clock } from '../../../core/clock.js';
import type { Entry, Notice, QueuedRecipient } from '../../../core/contracts/queue-entry.js';
import type { RelayQueue } from '../../../core/contracts/relay-queue-store.js';
import type { Duties } from '../../../core/contracts/cluster.js';
import type { SubmissionService } from '../../../core/contracts/submission.js';
import type { Log } from '../../../core/log/log.js';
import { type Address, parseAddress } from '../../../core/mime/address.js';
import { type HeaderBlock, scanHeader } from '../../../core/mime/header.js';
import type { Hop } from '../../../core/pipeline/verdict.js';
import { isProblem } from '../../../core/problem.js';
import { wants } from '../delivery/attempts.js';
import type { OutboundMetrics } from '../delivery/outbound-metrics.js';
import { messageHead } from '../delivery/outgoing-message.js';
import { relayTarget } from '../delivery/relay-hook.js';
import { queueNotes } from '../delivery/relay-target.js';
import { noticeMessage } from './notice-message.js';

interface NoticeSenderInput {
  readonly queue: Pick<RelayQueue, 'notices' | 'noticed' | 'open'>;
  readonly submission: SubmissionService;
  readonly hostname: string;
  /** Address of the mail system, for `From:`. */
  readonly from: string;
  readonly destinationOf: (address: Address) => string;
  readonly metrics: Pick<OutboundMetrics, 'notice'>;
  /** Absent: this server is alone. */
  readonly duties: Duties | undefined;
  readonly clock: Clock;
  readonly log: Log;
}

const maxAtOnce = 200;
/** A run continues while part of a full batch was sent, and this often when nothing was. */
const maxInVain = 5;
/** Wait for further failures of the same message, to report them together. Milliseconds. */
const gatherMs = 60_000;

/** Notices of one entry and kind. */
interface Batch {
  readonly entry: Entry;
  readonly notices: Notice[];
}

/** Notifies senders about their mail (RFC 3464): once, and recorded as sent only after the notice is durably queued. */
export class NoticeSender {
  readonly #input: NoticeSenderInput;
  readonly #since: number;
  /** Notices that were submitted but not recorded as sent: a target may hold one of them. */
  readonly #tried = new Set<string>();
  #running: Promise<void> | undefined;
  #again = false;
  #stopped = false;

  constructor(input: NoticeSenderInput) {
    this.#input = input;
    this.#since = input.clock.now();
  }

  /** Sends what is to be sent now. Never rejects; what could not be sent stays for the next time. */
  run(): Promise<void> {
    if (this.#input.duties?.has('queue.notices') === false) return Promise.resolve();
    this.#again = true;
    this.#running ??= this.#runAll().finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  /** Sends nothing more. Resolves when nothing is being sent. */
  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#running;
  }

  async #runAll(): Promise<void> {
    while (this.#again && !this.#stopped) {
      this.#again = false;
      try {
        await this.#sendAll();
      } catch (error) {
        this.#input.log.error({ err: error }, 'notices to senders cannot be sent');
      }
    }
  }

  /** A notice that cannot be sent now moves to the end and does not delay the others. */
  async #sendAll(): Promise<void> {
    for (let inVain = 0; inVain < maxInVain;) {
      const pending = await this.#input.queue.notices(maxAtOnce);
      let sent = 0;
      for (const batch of batchesOf(pending)) {
        if (this.#stopped) return;
        if (this.#isRipe(batch) && (await this.#send(batch))) sent += 1;
      }
      if (pending.length < maxAtOnce) return;
      inVain = sent > 0 ? 0 : inVain + 1;
    }
  }

  #isRipe({ entry, notices }: Batch): boolean {
    const oldest = Math.min(...notices.map(({ at }) => at));
    // A time in the future was written by a wrong clock.
    const isOver = Math.abs(this.#input.clock.now() - oldest) >= gatherMs;
    return isOver || !entry.recipients.some(({ state }) => state === 'active' || state === 'queued');
  }

  /** Returns true when sent. */
  async #send({ entry, notices }: Batch): Promise<boolean> {
    const { log, metrics } = this.#input;
    const kind = notices[0]?.kind ?? 'failed';
    try {
      const meant = meantOf(entry, notices);
      const why = meant.length === 0 ? 'nobody wants to hear of it' : await this.#suppressed(entry, notices);
      if (why === undefined) await this.#submit(entry, meant);
      else log.info({ uid: entry.uid, kind, reason: why }, 'the sender is not told');
      if (why !== undefined) metrics.notice(kind, 'suppressed');
      const ids = notices.map(({ id }) => id);
      await this.#input.queue.noticed(entry.uid, ids);
      if (meant.length > 0) this.#tried.delete(noticeUid(entry.uid, meant));
      return true;
    } catch (error) {
      log.error({ uid: entry.uid, kind, err: error }, 'a notice could not be sent now');
      return false;
    }
  }

  /** A bounce by an operator with a reason is sent to any sender, also to a program. */
  async #suppressed({ sender, uid }: Entry, notices: readonly Notice[]): Promise<string | undefined> {
    if (sender !== null && notices.some(({ reason }) => reason !== undefined)) return undefined;
    const head = sender === null ? Buffer.alloc(0) : await this.#head(uid);
    return unanswerable(sender, head) ?? undefined;
  }

  async #head(uid: string): Promise<Buffer> {
    try {
      return await messageHead(this.#input.queue, uid);
    } catch (error) {
      if (isProblem(error) && error.problem === 'not-found') return Buffer.alloc(0);
      throw error;
    }
  }

  async #submit(entry: Entry, notices: readonly Notice[]): Promise<void> {
    const { log, metrics } = this.#input;
    const kind = notices[0]?.kind ?? 'failed';
    const id = noticeUid(entry.uid, notices);
    const content = await noticeMessage(entry, notices, id, this.#input);
    const sender = parseAddress(entry.sender ?? '');
    const isAlone = this.#input.duties === undefined;
    const isFresh = isAlone && !this.#tried.has(id) && notices.every(({ at }) => at > this.#since);
    this.#tried.add(id);
    const hand = (hop?: Hop): Promise<unknown> =>
      this.#input.submission.submit({
        username: undefined,
        reversePath: null,
        recipients: [sender],
        content: async function* () {
          yield await Promise.resolve(content);
        },
        id,
        fresh: isFresh,
        notes: new Map([[queueNotes.noticeOf, entry.uid]]),
        ...(hop !== undefined && { hop: () => hop }),
      });
    try {
      await hand();
      metrics.notice(kind, 'sent');
      log.info(
        { uid: entry.uid, notice: id, kind, recipients: notices.flatMap((one) => one.recipients).length },
        'told',
      );
    } catch (error) {
      if (!isProblem(error) || error.problem !== 'invalid') throw error;
      // Permanently undeliverable: held for an operator.
      const hop = { target: relayTarget, destination: this.#input.destinationOf(sender) };
      await hand({ target: targets.hold, destination: '', data: { reason: `Double bounce: ${error.message}`, hop } });
      metrics.notice(kind, 'undeliverable');
      log.warn({ uid: entry.uid, notice: id, kind, err: error }, 'a notice is refused, and held for an operator');
    }
  }
}

/** Deterministic for the same notices, so that a notice sent just before a crash is not sent again. */
function noticeUid(uid: string, notices: readonly Pick<Notice, 'id'>[]): string {
  const ids = notices.map(({ id }) => id);
  const [first = '0'] = ids;
  const last = ids.at(-1) ?? first;
  return last === first ? `${uid}-${first}` : `${uid}-${first}-${last}`;
}

function batchesOf(pending: readonly { readonly entry: Entry; readonly notice: Notice }[]): readonly Batch[] {
  const batches = new Map<string, Batch>();
  for (const { entry, notice } of pending) {
    const key = `${entry.uid} ${notice.kind}`;
    const batch = batches.get(key) ?? { entry, notices: [] };
    batch.notices.push(notice);
    batches.set(key, batch);
  }
  return [...batches.values()];
}

const wishes = { failed: 'failure', delayed: 'delay', relayed: 'success', delivered: 'success' } as const;

/** The notices that the sender asked for. */
function meantOf(entry: Entry, notices: readonly Notice[]): readonly Notice[] {
  const byAddress = new Map(
    entry.recipients.map((recipient): [string, QueuedRecipient] => [recipient.address, recipient]),
  );
  return notices.flatMap((notice) => {
    const recipients = notice.recipients.filter((address) =>
      wants(wishes[notice.kind], byAddress.get(address)?.notify),
    );
    return recipients.length === 0 ? [] : [{ ...notice, recipients }];
  });
}

/** Why the sender of a message gets no notice (RFC 3834 §2, RFC 3464 §2); null when it gets one. */
function unanswerable(sender: string | null, head: Buffer): string | null {
  if (sender === null) return 'it has no sender';
  if (/^(mailer-daemon|double-bounce)@/i.test(sender)) return 'it comes from a mailer daemon';
  const header = scanHeader(head);
  return automatic(header) ?? null;
}

function automatic(header: HeaderBlock): string | undefined {
  const submitted = header.first('auto-submitted');
  if (submitted !== undefined && !/^\s*no\b/i.test(submitted)) return 'a program has sent it (Auto-Submitted)';
  if (/^\s*multipart\/report\b/i.test(header.first('content-type') ?? '')) return 'it is a report itself';
  const suppressed = header.first('x-auto-response-suppress') ?? '';
  return /\b(all|dr|ndr|nrn)\b/i.test(suppressed) ? 'its sender wants no automatic answers' : undefined;
}
