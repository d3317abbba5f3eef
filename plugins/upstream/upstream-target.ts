import type { Clock } from '../../core/clock.js';
import type { Delivery, DeliveryTarget, RecipientOutcome } from '../../core/pipeline/delivery-target.js';
import type { HealthReport } from '../../core/contracts/health.js';
import type { Log } from '../../core/log/log.js';
import type { Recipient, SmtpSession, Transaction } from '../../core/pipeline/transaction.js';
import { defer, type Hop, reject, route, type Verdict } from '../../core/pipeline/verdict.js';
import { type ClientFailure, isClientFailure } from '../../core/smtp/client/failure.js';
import { type Reply, replyToError } from '../../core/smtp/protocol/replies.js';
import type { SpooledMessage } from '../../core/spool/spool.js';
import { type LiveTransaction, sendAnew } from './live-transaction.js';
import type { UpstreamSettings } from './settings.js';
import { tlsWords, type UpstreamDeps } from './upstream-host.js';
import { type HostState, outcomesOf, refusalOf, Upstream } from './upstream.js';

/** Result of a message at one upstream. */
export interface Handed {
  readonly destination: string;
  readonly outcomes: readonly RecipientOutcome[];
  /** Of the message. */
  readonly bytes: number;
  readonly ms: number;
}

interface UpstreamTargetInput {
  /** By the destination of a hop; undefined for an unknown name. */
  readonly upstream: (destination: string) => Upstream | undefined;
  /** The open upstream transaction of this transaction. */
  readonly live: (transaction: Transaction, destination: string) => LiveTransaction | undefined;
  /** The recipient's address at the upstream; unchanged if absent. */
  readonly known?: (recipient: Recipient) => Recipient;
  readonly handed: (handed: Handed) => void;
  readonly log: Pick<Log, 'error'>;
  readonly explain: (hop: Hop) => readonly string[];
}

/** Delivers messages to upstreams, synchronously with their client or, from the queue, independently. */
export function upstreamTarget(input: UpstreamTargetInput): DeliveryTarget {
  return {
    live: true,
    start: (transaction, recipients) => Promise.resolve(new UpstreamDelivery(input, transaction, recipients)),
    explain: (hop) => Promise.resolve(input.explain(hop)),
  };
}

class UpstreamDelivery implements Delivery {
  readonly #input: UpstreamTargetInput;
  readonly #transaction: Transaction;
  readonly #recipients: readonly Recipient[];
  #message: SpooledMessage | undefined;

  constructor(input: UpstreamTargetInput, transaction: Transaction, recipients: readonly Recipient[]) {
    this.#input = input;
    this.#transaction = transaction;
    this.#recipients = recipients;
  }

  body(message: SpooledMessage): Promise<void> {
    this.#message = message;
    return Promise.resolve();
  }

  async commit(): Promise<readonly RecipientOutcome[]> {
    const message = this.#message;
    if (message === undefined) throw new Error('there is no message to send');
    const byRecipient = new Map<Recipient, RecipientOutcome>();
    for (const [destination, recipients] of byDestination(this.#recipients)) {
      const outcomes = await this.#tryToHand(destination, recipients, message);
      recipients.forEach((recipient, index) => {
        const outcome = outcomes[index];
        if (outcome !== undefined) byRecipient.set(recipient, { ...outcome, recipient });
      });
    }
    return this.#recipients.map((recipient) => byRecipient.get(recipient) ?? gone(recipient));
  }

  /** A message that an upstream has accepted cannot be revoked. */
  abort(): Promise<void> {
    for (const destination of byDestination(this.#recipients).keys()) {
      this.#input.live(this.#transaction, destination)?.end();
    }
    return Promise.resolve();
  }

  /** A local fault at one upstream affects its recipients only: another upstream may have the message already. */
  async #tryToHand(
    destination: string,
    recipients: readonly Recipient[],
    message: SpooledMessage,
  ): Promise<readonly RecipientOutcome[]> {
    try {
      return await this.#hand(destination, recipients, message);
    } catch (error) {
      const { id } = this.#transaction;
      this.#input.log.error({ transaction: id, destination, err: error }, 'a message could not be handed on');
      return outcomesOf(recipients, replyToError(error));
    }
  }

  async #hand(
    destination: string,
    recipients: readonly Recipient[],
    message: SpooledMessage,
  ): Promise<readonly RecipientOutcome[]> {
    const { upstream: find, live: findLive, handed } = this.#input;
    const live = findLive(this.#transaction, destination);
    const upstream = live?.upstream ?? find(destination);
    if (upstream === undefined) return recipients.map(gone);
    const began = upstream.now();
    const known = this.#input.known === undefined ? recipients : recipients.map(this.#input.known);
    const sent = upstream.settings.protocol === 'lmtp' ? onePerAddress(known) : known;
    const outcomes =
      live === undefined
        ? await sendAnew(upstream, this.#transaction, sent, message)
        : await live.deliver(this.#transaction, sent, message);
    handed({ destination, outcomes, bytes: message.size - message.traceOffset, ms: upstream.now() - began });
    if (sent.length === known.length) return outcomes;
    const byAddress = new Map(sent.map(({ address }, index) => [address.address, outcomes[index]]));
    return known.flatMap(({ address }) => byAddress.get(address.address) ?? []);
  }
}

/** An LMTP server stores a copy for each RCPT, so a user with several names is sent once. */
function onePerAddress(recipients: readonly Recipient[]): readonly Recipient[] {
  const first = new Map<string, Recipient>();
  for (const one of recipients) if (!first.has(one.address.address)) first.set(one.address.address, one);
  return [...first.values()];
}

function byDestination(recipients: readonly Recipient[]): ReadonlyMap<string, readonly Recipient[]> {
  const groups = new Map<string, Recipient[]>();
  for (const recipient of recipients) {
    const destination = recipient.hop?.destination ?? '';
    const group = groups.get(destination);
    if (group === undefined) groups.set(destination, [recipient]);
    else group.push(recipient);
  }
  return groups;
}

const gone = (recipient: Recipient): RecipientOutcome => ({
  recipient,
  outcome: 'deferred',
  code: 451,
  status: '4.4.4',
  text: 'Nothing is configured for this recipient any more',
});

/** Upstreams by name. Unchanged ones keep their connections and the state of their hosts. */
export class UpstreamRegistry {
  readonly #deps: UpstreamDeps;
  #byName: ReadonlyMap<string, Upstream> = new Map();

  constructor(deps: UpstreamDeps) {
    this.#deps = deps;
  }

  /** Replaces the upstreams; connections in use finish. */
  use(settings: ReadonlyMap<string, UpstreamSettings>): void {
    const before = this.#byName;
    this.#byName = new Map([...settings].map(([name, one]) => [name, this.#kept(before.get(name), one)]));
    const used = new Set(this.#byName.values());
    for (const upstream of before.values()) if (!used.has(upstream)) void upstream.close();
  }

  get(name: string): Upstream | undefined {
    return this.#byName.get(name);
  }

  /** Hosts with an open breaker, with the name of their upstream. */
  broken(): readonly (HostState & { readonly upstream: string })[] {
    return [...this.#byName].flatMap(([upstream, one]) =>
      one
        .states()
        .filter(({ state }) => state !== 'closed')
        .map((state) => ({ upstream, ...state })),
    );
  }

  /** The client is gone. */
  forget(session: SmtpSession): void {
    for (const upstream of this.#byName.values()) upstream.forget(session);
  }

  async close(): Promise<void> {
    await Promise.all([...this.#byName.values()].map((upstream) => upstream.close()));
  }

  #kept(before: Upstream | undefined, settings: UpstreamSettings): Upstream {
    const isSame = before !== undefined && JSON.stringify(before.settings) === JSON.stringify(settings);
    return isSame ? before : new Upstream(settings, this.#deps);
  }
}

/**
 * Verdict of an `rcptTo` hook for a server's reply: the reply's text, and the hop when it accepts.
 *
 * @param answered called with result and duration
 */
export async function rcptVerdict(
  asked: Promise<Reply | ClientFailure>,
  hop: Hop,
  clock: Clock,
  answered: (answer: 'accepted' | 'refused' | 'deferred', ms: number) => void,
): Promise<Verdict> {
  const began = clock.monotonic();
  const said = await asked;
  const ms = clock.monotonic() - began;
  if (!isClientFailure(said) && said.code < 300) {
    answered('accepted', ms);
    return route(hop, { reply: said });
  }
  const { code, status, text } = refusalOf(said);
  answered(code < 500 ? 'deferred' : 'refused', ms);
  return code < 500 ? defer(code, status, text) : reject(code, status, text);
}

/** Degraded while a server is skipped: its mail waits at the senders, or goes to the next host. */
export function upstreamHealth(upstreams: UpstreamRegistry, word: 'rule' | 'route'): HealthReport {
  const broken = upstreams.broken();
  if (broken.length === 0) return { status: 'up' };
  const named = broken.slice(0, 5).map(({ upstream, host, port, state, why, retryAfter }) => {
    const then = state === 'open' ? `tried again in ${retryAfter} s` : 'tried again with the next mail';
    return `${host}:${port} of ${word} ${upstream} (${why ?? 'no answer'}; ${then})`;
  });
  const more = broken.length > 5 ? ` and ${broken.length - 5} more` : '';
  return { status: 'degraded', why: `Servers that do not answer: ${named.join(', ')}${more}.` };
}

/** What would happen to a recipient of that rule or route. */
export function explainUpstream(name: string, upstreams: UpstreamRegistry, word: 'rule' | 'route'): readonly string[] {
  const upstream = upstreams.get(name);
  if (upstream === undefined) return [`There is no ${word} ${name} any more.`];
  const { protocol, tls } = upstream.settings;
  return upstream.states().map(({ host, port, state }, index) => {
    const place = index === 0 ? 'It is handed to' : 'Else to';
    const now = state === 'open' ? ', which is passed over now' : '';
    return `${place} ${host} port ${port} by ${protocol.toUpperCase()}, ${tlsWords[tls.mode]}${now}, while the client waits.`;
  });
}
