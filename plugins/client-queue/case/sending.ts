import { uniqueId } from '../../../core/disk/id.js';
import type { HopFinder } from '../../../core/dns/next-hop.js';
import { abortAfter } from '../../../core/concurrency.js';
import { parseAddress } from '../../../core/mime/address.js';
import { scanHeader } from '../../../core/mime/header.js';
import { problem } from '../../../core/problem.js';
import type { ClientQueueSettings } from '../options.js';
import { TargetList } from '../delivery/destination.js';
import { planCase } from './case-plan.js';
import { type Assertion, compileAssertions, type OpenSession, runCase, type SessionResult } from './case-run.js';
import { at, type CaseDefinition, readReversePath, variablesOf, withVariables } from './definition.js';
import { type CaseTransaction, type CaseContext, transactionsOf } from './transactions.js';
import type { KeptUpload } from './upload-store.js';

/** A validated request to send a case or one raw message. */
export interface OutgoingRequest {
  readonly where: Pick<CaseDefinition, 'route' | 'mx' | 'port' | 'protocol' | 'tls' | 'verify' | 'auth' | 'ehlo'>;
  readonly how: Pick<CaseDefinition, 'timeout' | 'retry' | 'delay'>;
  readonly assertions: readonly Assertion[];
  /** Domains of all recipients. */
  readonly domains: readonly string[];
  /** Each call starts from the first transaction. */
  transactions(): AsyncIterable<CaseTransaction> | Iterable<CaseTransaction>;
}

/** @throws Problem `invalid` with the position of each invalid address or variable */
export function requestOfCase(definition: CaseDefinition, context: CaseContext): OutgoingRequest {
  const domains = definition.envelopes.flatMap((envelope, index) => domainsOf(envelope, index, definition, context));
  return {
    where: definition,
    how: definition,
    assertions: assertionsOf(definition),
    domains,
    transactions: () => transactionsOf(definition, context),
  };
}

/** Substitutes every envelope's variables once before anything is sent. */
function domainsOf(
  envelope: CaseDefinition['envelopes'][number],
  index: number,
  definition: CaseDefinition,
  { now }: CaseContext,
): readonly string[] {
  const place = `/envelopes/${index}`;
  const expanded = at(place, () => withVariables(envelope, variablesOf(definition, now())));
  at(`${place}/mail`, () => readReversePath(expanded.mail));
  return expanded.rcpt.map((written, position) => at(`${place}/rcpt/${position}`, () => parseAddress(written).domain));
}

function assertionsOf({ assertions, envelopes }: CaseDefinition): readonly Assertion[] {
  const located = (prefix: string, { protocol }: CaseDefinition['assertions']): readonly Assertion[] =>
    protocol.map(([verb, expected], index) => ({
      verb,
      expected,
      pointer: `${prefix}/assertions/protocol/${index}/1`,
    }));
  return [
    ...located('', assertions),
    ...envelopes.flatMap((envelope, index) => located(`/envelopes/${index}`, envelope.assertions)),
  ];
}

/** Query parameters of a raw message. */
export interface RawMessageQuery {
  readonly mail: string;
  readonly rcpt: readonly string[];
  readonly route?: string | undefined;
  readonly mx?: readonly string[] | undefined;
  readonly port?: number | undefined;
  readonly protocol?: 'smtp' | 'lmtp' | undefined;
}

const usual = { timeout: 30, retry: 0, delay: 0 };

/** @throws Problem `invalid` */
export function requestOfMessage({ mail, rcpt, ...where }: RawMessageQuery, upload: KeptUpload): OutgoingRequest {
  const reversePath = at('mail', () => readReversePath(mail));
  const recipients = rcpt.map((written) => at('rcpt', () => parseAddress(written)));
  const transaction: CaseTransaction = {
    mail: reversePath,
    message: {
      sender: { address: reversePath },
      recipients: recipients.map(({ address }) => ({ address })),
      content: { source: () => upload.open(), size: upload.size },
    },
    messageId: scanHeader(upload.head).first('message-id') ?? null,
  };
  return {
    where: Object.fromEntries(Object.entries(where).filter(([, value]) => value !== undefined)),
    how: usual,
    assertions: [],
    domains: recipients.map(({ domain }) => domain),
    transactions: () => [transaction],
  };
}

interface SendingInput {
  readonly settings: () => ClientQueueSettings;
  readonly finder: HopFinder;
  readonly hostname: () => string;
  readonly open: OpenSession;
}

/** Concurrent sessions with waiting callers. */
const maxAtOnce = 20;
/** Time limit of a session, however slow the server is. */
const maxMs = 5 * 60_000;

/** Sends immediately while the caller waits. */
export class Sending {
  readonly #input: SendingInput;
  #running = 0;

  constructor(input: SendingInput) {
    this.#input = input;
  }

  /**
   * @param signal aborted when the caller is gone
   * @throws Problem `forbidden` for servers that are not allowed, `invalid`, `unavailable` when there is no route or
   * too many sessions, `session-timeout` when the time limit was reached
   */
  async send({ where, how, ...request }: OutgoingRequest, signal: AbortSignal): Promise<SessionResult> {
    if (this.#running >= maxAtOnce)
      throw problem('unavailable', 'Too many sessions are being run. Try again in a moment, or queue the mail.');
    this.#running += 1;
    const { settings: settingsNow, finder, hostname, open } = this.#input;
    const settings = settingsNow();
    const until = abortAfter(maxMs, signal);
    try {
      const assertions = await compileAssertions(request.assertions);
      const targets = new TargetList(settings.targets, finder);
      const plan = await planCase(where, request.domains, { settings, targets, finder }, until);
      return await runCase({
        uid: uniqueId(),
        plan,
        helloName: where.ehlo ?? hostname(),
        localAddress: settings.localAddress,
        stepMs: how.timeout * 1000,
        retry: how.retry,
        delayMs: how.delay * 1000,
        assertions,
        transactions: request.transactions(),
        open,
        signal: until,
      });
    } finally {
      this.#running -= 1;
    }
  }
}
