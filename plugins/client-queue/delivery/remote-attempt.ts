import type { Clock } from '../../../core/clock.js';
import type { Lease } from '../../../core/contracts/relay-queue-store.js';
import type { ClientDeadlines, RemoteServer as Server } from '../../../core/smtp/client/remote-server.js';
import {
  clientFailure,
  type ClientFailure,
  diedIdle,
  isAtMessage,
  isClientFailure,
} from '../../../core/smtp/client/failure.js';
import type {
  MessageResult,
  OutgoingContent,
  OutgoingMessage,
  RecipientResult,
} from '../../../core/smtp/client/message.js';
import { usableTlsa } from '../../../core/net/tlsa.js';
import type { SessionPool } from '../../../core/smtp/client/pool.js';
import type { ClientSession } from '../../../core/smtp/client/session.js';
import { isTlsReport } from '../tls-reports/report.js';
import type { TlsAgreement } from '../tls-reports/tls-results.js';
import type { AttemptResult, RecipientVerdict, RunningAttempt, ServersTried } from './attempt-result.js';
import type { HostCaller, DeadHosts } from './dead-hosts.js';
import { readDestination } from './destination.js';
import type { NextHops, Servers } from './next-hops.js';
import { isUnreadable, outgoingMessage } from './outgoing-message.js';
import type { ReplyClassification } from './reply-classification.js';

export interface RemoteAttemptContext {
  readonly pool: Pick<SessionPool, 'lease'>;
  readonly hops: Pick<NextHops, 'find'>;
  readonly dead: DeadHosts;
  readonly classification: () => ReplyClassification;
  readonly clock: Clock;
  /** Aborted when no time is left to finish. */
  readonly signal: AbortSignal;
  /** Connections for sending; closed when no time is left. */
  readonly sessions: Set<ClientSession>;
  readonly deadlines?: Partial<ClientDeadlines> | undefined;
  /** Called for each connection to a server of a domain with its TLS; undefined when reports are off. */
  readonly tlsResult?:
    ((domain: string, server: Pick<Server, 'host' | 'address' | 'tls'>, result: TlsAgreement) => void) | undefined;
  /** The message as it is sent. */
  readonly content: (lease: Lease) => Promise<OutgoingContent>;
  /** The same for a 7-bit server; undefined where it is the same, or not possible. */
  readonly sevenBitContent: (lease: Lease) => Promise<OutgoingContent | undefined>;
}

/** Maximum number of servers per attempt. */
const maxSessions = 2;
/** Timeout of one message with one server: the most a stalling server may cost. */
const defaultDeadlines: Partial<ClientDeadlines> = { connectMs: 30_000, attemptMs: 30 * 60_000 };
/** No message is begun this long after its attempt began, so that it ends before its lease does. */
const latestMs = 50 * 60_000;
/** Idle connections that may prove dead one after the other. */
const maxStale = 20;

/** Delivers the recipients of a lease to the servers of their destination. */
export async function attemptRemotely(
  running: RunningAttempt,
  connections: number,
  context: RemoteAttemptContext,
): Promise<AttemptResult> {
  const attempt = new RemoteAttempt(running.lease, connections, context);
  running.cut = () => attempt.cut();
  return attempt.run();
}

type LeasedRecipient = Lease['recipients'][number];

class RemoteAttempt {
  readonly #lease: Lease;
  readonly #connections: number;
  readonly #context: RemoteAttemptContext;
  readonly #at: number;
  readonly #began: number;
  readonly #verdicts = new Map<number, RecipientVerdict>();
  #open: readonly LeasedRecipient[];
  #host: string | null = null;
  #tls: string | null = null;
  #tellsDsn = false;
  #lost = false;
  #servers: ServersTried = 'unreachable';
  #untried = false;
  #isCut = false;
  /** Ends the opening of a connection. */
  readonly #opening = new AbortController();
  #session: ClientSession | undefined;
  #mustVerify = false;
  /** Results of the connections; each may have been a permanent refusal. */
  readonly #failures: { readonly failure: ClientFailure; readonly server: Server }[] = [];

  constructor(lease: Lease, connections: number, context: RemoteAttemptContext) {
    this.#lease = lease;
    this.#connections = connections;
    this.#context = context;
    this.#open = lease.recipients;
    this.#at = context.clock.now();
    this.#began = context.clock.monotonic();
  }

  /** See `RunningAttempt`. */
  cut(): boolean {
    if (this.#session?.mayBeTaken === true) return false;
    this.#isCut = true;
    this.#opening.abort();
    this.#session?.close();
    return true;
  }

  async run(): Promise<AttemptResult> {
    if (this.#context.signal.aborted) this.#opening.abort();
    const found = await this.#context.hops.find(this.#lease.destination);
    for (const host of found.skipped ?? []) this.#noteSkipped(host);
    if (found.outcome === 'failed') {
      const { code, status, text, permanent } = found;
      const about = { code, status, text, host: null, retryAfter: null, category: 'network' };
      this.#setVerdict(this.#open, { ...about, action: permanent ? 'bounce' : 'defer' });
      return this.#tried();
    }
    this.#mustVerify = found.mustVerify === true;
    const content = await this.#context.content(this.#lease);
    let sessions = 0;
    for (const server of serversFor(this.#lease, found)) {
      if (this.#open.length === 0 || sessions === maxSessions || this.#untried || this.#isCut) break;
      const known = this.#context.dead.get(server, this.#caller());
      if (known !== undefined) this.#failures.push({ failure: known, server });
      else if (await this.#send(server, found.site, content)) sessions += 1;
    }
    if (!this.#untried) this.#deferRest(found.servers.length + (found.skipped?.length ?? 0));
    return this.#tried();
  }

  /** True when the server was reached, whatever its replies. */
  async #send(server: Server, site: string, content: OutgoingContent): Promise<boolean> {
    const { pool, sessions, deadlines = defaultDeadlines } = this.#context;
    const { signal } = this.#opening;
    const mayEnd = this.#lease.holds?.bind(this.#lease);
    this.#host = labelOf(server);
    for (let stale = 0; ; stale += 1) {
      try {
        const leased = await pool.lease(server, { most: this.#connections, group: site, deadlines, signal });
        const { session } = leased;
        if (!leased.reused) this.#noteTls(server, session.tls ?? session.tlsFailure);
        if (this.#isLate()) {
          leased.release();
          this.#untried = true;
          return false;
        }
        sessions.add(session);
        this.#session = session;
        const message = await this.#messageFor(session, content).catch((error: unknown) => {
          sessions.delete(session);
          leased.release();
          throw error;
        });
        const result = this.#asCut(await session.send(message, mayEnd && { mayEnd }));
        sessions.delete(session);
        this.#session = undefined;
        leased.release();
        if (leased.reused && stale < maxStale && diedIdle(result.failure)) continue;
        this.#read(result, session, server);
        return true;
      } catch (error) {
        if (!isClientFailure(error)) throw error;
        if (isOfTls(error)) this.#noteTls(server, error);
        this.#unreached(error, server);
        // A refused connection costs little, and whether all servers refuse matters.
        return error.step !== 'connect' && !(isOfDoor(error.step) && error.permanent);
      }
    }
  }

  /** What was ended here because it took long is no fault of this server. */
  #asCut(result: MessageResult): MessageResult {
    if (!this.#isCut || result.failure === undefined) return result;
    const failure = this.#cutFailure(result.failure);
    const recipients = result.recipients.map((one) =>
      one.outcome === 'failed' ? { ...one, failure: this.#cutFailure(one.failure) } : one,
    );
    return { ...result, failure, recipients };
  }

  #cutFailure(failure: ClientFailure): ClientFailure {
    const isOurs = this.#isCut && failure.kind === 'local' && !failure.afterDot && !this.#context.signal.aborted;
    return isOurs ? crowdedOut(failure.step) : failure;
  }

  async #messageFor({ capabilities }: ClientSession, content: OutgoingContent): Promise<OutgoingMessage> {
    const encoded = capabilities.eightBitMime ? undefined : await this.#context.sevenBitContent(this.#lease);
    return outgoingMessage(this.#lease, this.#open, encoded ?? content);
  }

  /** A report about TLS is not reported about in turn (RFC 8460 §3). */
  #noteTls(server: Pick<Server, 'host' | 'address' | 'tls'>, result: TlsAgreement): void {
    const destination = readDestination(this.#lease.destination);
    if (destination.kind !== 'domain' || isTlsReport(this.#lease)) return;
    this.#context.tlsResult?.(destination.domain, server, result);
  }

  /** Whether that server has TLSA records cannot be known, so it is not called. */
  #noteSkipped(host: string): void {
    const cause = Object.assign(new Error('Its TLSA records cannot be looked up'), { code: 'DNSSEC_INVALID' });
    const failure = clientFailure({
      kind: 'tls',
      step: 'connect',
      code: 451,
      status: '4.4.3',
      text: cause.message,
      cause,
    });
    this.#noteTls(
      { host, address: '', tls: { mode: 'require', dane: { base: host, names: [], records: [] } } },
      failure,
    );
  }

  #isLate(): boolean {
    return this.#context.clock.monotonic() - this.#began > latestMs;
  }

  #read(result: MessageResult, session: ClientSession, server: Server): void {
    this.#tls = session.tls?.protocol ?? null;
    this.#tellsDsn = session.capabilities.dsn;
    this.#noteServer(result, server);
    const left: LeasedRecipient[] = [];
    let why = result.failure;
    if (why?.kind === 'local' && isUnreadable(why.cause)) throw why.cause;
    const asked = this.#open;
    for (const [place, { outcome, ...about }] of result.recipients.entries()) {
      const recipient = asked[place];
      if (recipient === undefined) continue;
      const failure = 'failure' in about ? about.failure : undefined;
      if (outcome === 'delivered') this.#delivered(recipient, result, place, server);
      else if (failure !== undefined && this.#isCutShort(failure)) this.#untried = true;
      else if (failure !== undefined && isOfConnection(failure)) {
        left.push(recipient);
        why ??= failure;
      } else if (failure !== undefined) this.#failed(recipient, failure, server);
    }
    if (left.length > 0 && why !== undefined) this.#failures.push({ failure: why, server });
    this.#open = left;
  }

  /** What this says about the server, for later callers. */
  #noteServer(result: MessageResult, server: Server): void {
    const { dead, signal } = this.#context;
    const told = messageEnd(result);
    if (told.end === 'answered') dead.remove(server);
    if (told.end === 'none') dead.spoke(server);
    const isStall = told.end === 'stalled' && !signal.aborted;
    if (isStall && dead.stalled(server, told.failure, this.#caller())) return;
    if (isStall) this.#met('stalled');
    else this.#metBy(result.failure);
  }

  #metBy(failure: ClientFailure | undefined): void {
    this.#met(failure?.kind === 'timeout' ? 'stalled' : 'answered');
  }

  /** One answering server is enough. */
  #met(how: ServersTried): void {
    if (this.#servers !== 'answered') this.#servers = how;
  }

  #caller(): HostCaller {
    const { uid, manual, entry } = this.#lease;
    return { uid, asked: manual, last: entry.expiresAt <= this.#context.clock.now() };
  }

  #delivered(recipient: LeasedRecipient, result: MessageResult, place: number, server: Server): void {
    const one = result.recipients[place];
    if (one?.outcome !== 'delivered') return;
    const { code, status, lines } = one.reply;
    this.#setVerdict([recipient], {
      action: 'deliver',
      code,
      status: status ?? '2.0.0',
      text: `${lines.join(' ')}${daneNote(server)}`,
      host: server.host ?? server.address,
      retryAfter: null,
      category: 'other',
    });
  }

  /** We closed the connection before the server could have the message. */
  #isCutShort({ kind, afterDot }: ClientFailure): boolean {
    if (kind === 'withdrawn') return true;
    return this.#context.signal.aborted && kind !== 'reply' && !afterDot;
  }

  #failed(recipient: LeasedRecipient, failure: ClientFailure, server: Server): void {
    if (failure.afterDot && failure.kind !== 'reply') this.#lost = true;
    this.#setVerdict([recipient], this.#verdict(failure, server));
  }

  #unreached(given: ClientFailure, server: Server): void {
    const failure = this.#cutFailure(given);
    if (this.#isOfHere(failure)) {
      this.#untried = true;
      return;
    }
    if (failure.step !== 'connect' || this.#isCut) this.#metBy(failure);
    else if (failure.kind !== 'local') this.#context.dead.unreached(server, failure, this.#caller());
    this.#failures.push({ failure, server });
  }

  /** Too many wait, or the server stops: no server was asked. A refusal of the system may last, so it is a failure. */
  #isOfHere({ kind, step, cause }: ClientFailure): boolean {
    return kind === 'local' && (this.#context.signal.aborted || (step === 'connect' && cause === undefined));
  }

  /** Recipients without a reply get the most telling failure; permanent only when each server refused permanently. */
  #deferRest(servers: number): void {
    const telling = this.#failures.toSorted((one, other) => weightOf(one.failure) - weightOf(other.failure)).at(-1);
    if (telling === undefined || this.#open.length === 0) return;
    this.#host = labelOf(telling.server);
    const unanimous = this.#failures.length === servers && this.#failures.every(({ failure }) => failure.permanent);
    const verdict = this.#verdict(telling.failure, telling.server);
    this.#setVerdict(this.#open, { ...verdict, action: unanimous ? 'bounce' : 'defer' });
  }

  #verdict({ kind, code, status, text, step, permanent }: ClientFailure, server: Server): RecipientVerdict {
    const explained = this.#context.classification().explain(code, status, text, step);
    const said = kind === 'reply' ? explained.action : permanent ? 'bounce' : 'defer';
    // A positive reply in the wrong place counts as none.
    const action = said === 'deliver' ? 'defer' : said;
    const { retryAfter, category, rule } = explained;
    const host = kind === 'reply' ? (server.host ?? server.address) : null;
    const isOfTls = kind === 'tls' || (kind === 'reply' && step === 'starttls');
    const why = isOfTls ? `${text}${this.#demandOf(server)}` : text;
    return {
      action,
      code,
      status,
      text: host === null ? `${server.host ?? server.address}: ${why}` : why,
      host,
      retryAfter,
      category,
      rule,
    };
  }

  #demandOf({ tls: { dane } }: Server): string {
    const isByPolicy = this.#mustVerify && (dane === undefined || usableTlsa(dane).length === 0);
    if (isByPolicy) return ' (the MTA-STS policy of the domain demands it)';
    return dane === undefined ? '' : ' (DANE: its TLSA records demand it)';
  }

  #setVerdict(recipients: readonly LeasedRecipient[], verdict: RecipientVerdict): void {
    for (const { index } of recipients) this.#verdicts.set(index, verdict);
  }

  #tried(): AttemptResult {
    return {
      at: this.#at,
      ms: Math.round(this.#context.clock.monotonic() - this.#began),
      verdicts: this.#verdicts,
      host: this.#host ?? this.#lastKnown(),
      tls: this.#tls,
      tellsDsn: this.#tellsDsn,
      lost: this.#lost,
      servers: this.#servers,
    };
  }

  #lastKnown(): string | null {
    const server = this.#failures.at(-1)?.server;
    return server === undefined ? null : labelOf(server);
  }
}

/** A report about TLS is delivered despite what the domain demands (RFC 8460 §3), but not despite the operator. */
function serversFor(lease: Lease, { servers, ownTls }: Servers): readonly Server[] {
  return ownTls === undefined || !isTlsReport(lease) ? servers : servers.map((server) => ({ ...server, tls: ownTls }));
}

/** For the history: by what the server was known to be the right one. */
function daneNote({ tls: { dane } }: Server): string {
  if (dane === undefined) return '';
  const isMatched = usableTlsa(dane).length > 0;
  return isMatched ? ' (DANE: the certificate matches a TLSA record)' : ' (DANE: TLS, but no TLSA record can be used)';
}

const isOfTls = ({ kind, step }: ClientFailure): boolean => kind === 'tls' || (step === 'starttls' && kind !== 'local');

const labelOf = ({ host, address, port }: Server): string => `${host ?? address}[${address}]:${port}`;

/** As for any other deadline: no server was refused, and another one may accept. */
function crowdedOut(step: ClientFailure['step']): ClientFailure {
  const text = 'The server did not answer for long, and other mail needed the connection';
  return clientFailure({ kind: 'timeout', step, code: 451, status: '4.4.2', text });
}

/** A server's reply is more telling than an unreachable server. */
function weightOf({ kind, step, permanent }: ClientFailure): number {
  if (kind === 'reply') return permanent ? 3 : 2;
  return step === 'connect' ? 0 : 1;
}

const isOfDoor = (step: ClientFailure['step']): boolean => step === 'greeting' || step === 'hello';
const ofConnection: ReadonlySet<string> = new Set(['connect', 'timeout', 'closed', 'protocol', 'tls']);

/** Another server may accept the message: this one neither judged nor has it. */
function isOfConnection({ kind, code, afterDot }: ClientFailure): boolean {
  return !afterDot && (ofConnection.has(kind) || (kind === 'reply' && code === 421));
}

/**
 * How the text of a message ended: `answered` by any reply, be it for one recipient; `stalled` when the server was
 * silent for too long, or left; `none` when it was not sent, or something else failed.
 */
type MessageEnd = { readonly end: 'answered' | 'none' } | { readonly end: 'stalled'; readonly failure: ClientFailure };

function messageEnd({ recipients }: Pick<MessageResult, 'recipients'>): MessageEnd {
  if (recipients.some(isAnswered)) return { end: 'answered' };
  // A recipient refused at RCPT has its own failure.
  const stalled = recipients.find((one) => one.outcome === 'failed' && isStall(one.failure));
  return stalled?.outcome === 'failed' ? { end: 'stalled', failure: stalled.failure } : { end: 'none' };
}

function isAnswered(result: RecipientResult): boolean {
  if (result.outcome === 'delivered') return true;
  const { kind, step } = result.failure;
  return kind === 'reply' && (step === 'body' || step === 'final');
}

function isStall(failure: ClientFailure): boolean {
  return isAtMessage(failure) && (failure.kind === 'timeout' || failure.kind === 'closed');
}
