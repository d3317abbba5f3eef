import type { SubmissionService } from '../../../core/contracts/submission.js';
import { parseAddress } from '../../../core/mime/address.js';
import { LineEndings } from '../../../core/mime/line-endings.js';
import { isProblem, problem } from '../../../core/problem.js';
import type { Hop } from '../../../core/smtp/verdict.js';
import type { OutgoingContent } from '../../../core/smtp/client/message.js';
import type { ClientQueueSettings } from '../options.js';
import { routeOf } from './case-plan.js';
import type { OutgoingRequest } from './outgoing-request.js';
import type { CaseTransaction } from './transactions.js';

export interface IntakeInput {
  readonly submission: SubmissionService;
  readonly settings: () => ClientQueueSettings;
  /** Name of the target that makes entries. */
  readonly queueTarget: string;
  readonly hopOfRoute: (route: string) => Hop;
}

/** What belongs to a session with a server now, and to no entry that is tried by the queue. */
const sessionOnly = ['auth', 'tls', 'verify', 'ehlo', 'mx', 'port'] as const;

/** Who wants mail queued. */
export interface Caller {
  /** IP address. */
  readonly address: string;
  /** What the ids of entries begin with, so that a repetition makes none twice. */
  readonly once: string | undefined;
}

/** Makes queue entries of what callers want sent. */
export class Intake {
  readonly #input: IntakeInput;

  constructor(input: IntakeInput) {
    this.#input = input;
  }

  /**
   * One entry for each message that goes to another server; their uids. Without a route, recipients who have a mailbox here get
   * the message at once.
   * @throws Problem `invalid`, `unavailable` when the queue is full, `storage-full`
   */
  async queue(request: OutgoingRequest, from: Caller): Promise<readonly string[]> {
    const { where, assertions } = request;
    const refused = sessionOnly.filter((key) => where[key] !== undefined);
    if (refused.length > 0) throw misplaced(refused, 'belongs to a route: configure one and name it');
    if (assertions.length > 0)
      throw misplaced(['assertions'], 'is for /client/send: nobody looks at replies to queued mail');
    const route = where.route;
    const known = route === undefined ? 'smtp' : routeOf(this.#input.settings(), route).protocol;
    if (where.protocol !== undefined && where.protocol !== known)
      throw misplaced(['protocol'], `is ${known} here: name a route that speaks ${where.protocol}`);
    const hop = route === undefined ? undefined : () => this.#input.hopOfRoute(route);
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
      const detail = `${error.message} ${before.length} messages of the case are queued already: ${before.join(', ')}.`;
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
