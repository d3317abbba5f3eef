import type { SubmissionService } from '../../../core/contracts/submission.js';
import { pluralize } from '../../../core/text/format.js';
import { parseAddress } from '../../../core/mime/address.js';
import { LineEndings } from '../../../core/mime/line-endings.js';
import { isProblem, problem } from '../../../core/problem.js';
import type { HopFinder } from '../../../core/dns/next-hop.js';
import type { Hop } from '../../../core/pipeline/verdict.js';
import type { OutgoingContent } from '../../../core/smtp/client/message.js';
import { namedServersKey, routeKey, TargetList } from '../delivery/destination.js';
import { routeOf } from './case-plan.js';
import type { ClientQueueSettings } from '../options.js';
import type { OutgoingRequest } from './sending.js';
import type { CaseTransaction } from './transactions.js';

export interface IntakeInput {
  readonly submission: SubmissionService;
  readonly settings: () => ClientQueueSettings;
  /** Name of the queue's delivery target. */
  readonly queueTarget: string;
  readonly finder: HopFinder;
}

/** Options of an immediate session that queued entries do not have. */
const sessionOnly = ['auth', 'verify', 'ehlo'] as const;
/** Options that only apply to explicitly named servers. */
const besideMx = ['tls', 'port'] as const;
/** Milliseconds that a caller waits for the addresses of the servers it names. */
const timeoutMs = 30_000;

/** The caller who queues mail. */
export interface Caller {
  /** IP address. */
  readonly address: string;
  /** Prefix of the entries' ids, so that a repeated request creates none twice. */
  readonly once: string | undefined;
}

/** Creates queue entries from requests. */
export class Intake {
  readonly #input: IntakeInput;

  constructor(input: IntakeInput) {
    this.#input = input;
  }

  /**
   * Queues one entry for each message to another server and returns their uids. Without a route, recipients with a
   * local mailbox get the message at once.
   * @throws Problem `invalid`, `unavailable` when the queue is full, `storage-full`
   */
  async queue(request: OutgoingRequest, from: Caller): Promise<readonly string[]> {
    const { where, assertions } = request;
    if (assertions.length > 0)
      throw misplaced(['assertions'], 'is for /client/send: nobody looks at replies to queued mail');
    const destination = await this.#destination(where);
    const target = this.#input.queueTarget;
    const hop = destination === undefined ? undefined : (): Hop => ({ target, destination });
    const uids: string[] = [];
    let number = 0;
    for await (const transaction of request.transactions()) {
      number += 1;
      const id = from.once === undefined ? undefined : `${from.once}-${number}`;
      const uid = await this.#submit(transaction, { hop, id, from: from.address }, uids);
      if (uid !== undefined) uids.push(uid);
    }
    return uids;
  }

  /** Destination of all recipients; undefined to use the default of each. */
  async #destination(where: OutgoingRequest['where']): Promise<string | undefined> {
    const { settings, finder } = this.#input;
    const { route, mx, protocol = 'smtp', tls = 'opportunistic' } = where;
    const withoutMx = mx === undefined ? besideMx : [];
    const refused = [...sessionOnly, ...withoutMx].filter((key) => where[key] !== undefined);
    if (refused.length > 0) throw misplaced(refused, 'belongs to a route: configure one and name it');
    if (mx !== undefined) {
      if (route !== undefined) throw misplaced(['mx'], 'and route say two things: give one of them');
      const port = where.port ?? (protocol === 'lmtp' ? 24 : 25);
      const key = namedServersKey({ hosts: mx, port, protocol, tls });
      await new TargetList(settings().targets, finder).find(mx, port, AbortSignal.timeout(timeoutMs));
      return key;
    }
    const known = route === undefined ? 'smtp' : routeOf(settings(), route).protocol;
    if (where.protocol !== undefined && where.protocol !== known)
      throw misplaced(['protocol'], `is ${known} here: name a route that speaks ${where.protocol}`);
    return route === undefined ? undefined : routeKey(route);
  }

  async #submit(
    { mail, message }: CaseTransaction,
    { hop, id: given, from: remoteAddress }: About,
    before: readonly string[],
  ): Promise<string | undefined> {
    try {
      const { id, recipients } = await this.#input.submission.submit({
        username: undefined,
        remoteAddress,
        via: 'HTTP',
        ...(hop !== undefined && { hop }),
        ...(given !== undefined && { id: given }),
        reversePath: mail === null ? null : parseAddress(mail),
        recipients: message.recipients.map(({ address }) => parseAddress(address)),
        content: () => withLineEnds(message.content),
      });
      return recipients.some(({ target }) => target === this.#input.queueTarget) ? id : undefined;
    } catch (error) {
      if (before.length === 0 || !isProblem(error)) throw error;
      const detail = `${error.message} ${pluralize(before.length, 'message of the case is', 'messages of the case are')} queued already: ${before.join(', ')}.`;
      throw problem(error.problem, { ...error.details, detail });
    }
  }
}

interface About {
  readonly hop: (() => Hop) | undefined;
  readonly id: string | undefined;
  readonly from: string;
}

function misplaced(keys: readonly string[], why: string) {
  const errors = keys.map((key) => ({ pointer: `/${key}`, message: why }));
  return problem('invalid', { detail: `${keys.join(', ')}: ${why}.`, errors });
}

async function* withLineEnds({ source }: OutgoingContent): AsyncGenerator<Buffer> {
  const lines = new LineEndings();
  for await (const chunk of Buffer.isBuffer(source) ? [source] : source()) yield lines.push(Buffer.from(chunk));
  yield lines.end();
}
