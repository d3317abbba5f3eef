import { setImmediate, setTimeout as pause } from 'node:timers/promises';
import { problem } from '../../../core/problem.js';
import { Transcript, type TranscriptEntry, writtenReply } from '../../../core/smtp/client/channel.js';
import type { CallOptions, RemoteServer } from '../../../core/smtp/client/remote-server.js';
import { type ClientFailure, isClientFailure } from '../../../core/smtp/client/failure.js';
import type { MessageResult, OutgoingMessage } from '../../../core/smtp/client/message.js';
import type { ClientSession } from '../../../core/smtp/client/session.js';
import { compilePattern, type Pattern } from '../../../core/text/pattern.js';
import type { CasePlan } from './case-plan.js';
import { at } from './definition.js';
import type { CaseTransaction } from './transactions.js';

type Outcome = 'delivered' | 'partial' | 'failed';

interface EnvelopeResult {
  readonly mail: string;
  readonly recipients: readonly { readonly address: string; readonly accepted: boolean; readonly response: string }[];
  readonly messageId: string | null;
  readonly outcome: Outcome;
  readonly transactions: readonly TranscriptEntry[];
}

export interface SessionResult {
  readonly uid: string;
  readonly outcome: Outcome;
  /** The connected server, else the last one of the plan; null when it has none. */
  readonly remote: { readonly host: string; readonly port: number; readonly tls: string | null } | null;
  readonly transactions: readonly TranscriptEntry[];
  readonly envelopes: readonly EnvelopeResult[];
  readonly assertions: readonly AssertionResult[];
}

export type OpenSession = (server: RemoteServer, options: CallOptions) => Promise<ClientSession>;

interface CaseRunInput {
  readonly uid: string;
  readonly plan: CasePlan;
  readonly helloName: string;
  readonly localAddress: string | undefined;
  /** Timeout of each step in milliseconds. */
  readonly stepMs: number;
  /** Further connection attempts, and milliseconds between them. */
  readonly retry: number;
  readonly delayMs: number;
  readonly assertions: readonly CompiledAssertion[];
  /** Each is composed when it is sent. */
  readonly transactions: AsyncIterable<CaseTransaction> | Iterable<CaseTransaction>;
  readonly open: OpenSession;
  /** Aborts the session: the caller is gone, or the time limit of this server was reached. */
  readonly signal: AbortSignal;
}

/** Runs one session and returns its transcript. A refusal by the server is a result, never an error. */
export async function runCase(input: CaseRunInput): Promise<SessionResult> {
  const { uid, plan, transactions, assertions, signal } = input;
  const transcript = new Transcript();
  const connection = new CaseConnection(input, transcript);
  const envelopes: EnvelopeResult[] = [];
  try {
    for await (const transaction of transactions) envelopes.push(await converse(connection, transaction, transcript));
  } finally {
    await connection.quit();
  }
  // A slow server has deadlines of its own: here this server's time limit ended the session, so the outcome is
  // unknown.
  if (signal.aborted) throw tookTooLong();
  return {
    uid,
    outcome: outcomeOf(envelopes.map(({ outcome }) => outcome)),
    remote: connection.remote ?? lastServer(plan),
    transactions: transcript.entries,
    envelopes,
    assertions: checkAssertions(assertions, transcript.entries),
  };
}

const tookTooLong = () => problem('session-timeout', 'The session took too long and was ended.');

function lastServer({ servers }: CasePlan): SessionResult['remote'] {
  const server = servers.at(-1);
  return server === undefined ? null : { host: server.host, port: server.port, tls: null };
}

/** The connection of a session; after a refusal, the next message gets a new one. */
class CaseConnection {
  readonly #input: CaseRunInput;
  readonly #transcript: Transcript;
  #session: ClientSession | ClientFailure | undefined;
  /** The last server that took a connection. */
  remote: SessionResult['remote'] = null;

  constructor(input: CaseRunInput, transcript: Transcript) {
    this.#input = input;
    this.#transcript = transcript;
  }

  /** The failure is that of the connection. */
  async send(message: OutgoingMessage): Promise<MessageResult | ClientFailure> {
    const session = await this.#usable();
    return isClientFailure(session) ? session : session.send(message, { signal: this.#input.signal });
  }

  async quit(): Promise<void> {
    if (this.#session !== undefined && !isClientFailure(this.#session)) await this.#session.quit();
  }

  /** A server that was silent gets no second connection: it would cost another deadline. */
  async #usable(): Promise<ClientSession | ClientFailure> {
    const known = this.#session;
    if (known !== undefined) {
      if (isClientFailure(known) || known.reusable || known.failure?.kind === 'timeout') return known;
      await known.quit();
    }
    const session = await connect(this.#input, this.#transcript);
    this.#session = session;
    if (!isClientFailure(session)) {
      const { host, port } = session.remote;
      this.remote = { host, port, tls: session.tls?.protocol ?? null };
    }
    return session;
  }
}

/** The first server that accepts a connection, or the failure of the last one. */
async function connect(input: CaseRunInput, transcript: Transcript): Promise<ClientSession | ClientFailure> {
  const { plan, retry, delayMs, signal } = input;
  let failure: ClientFailure | undefined;
  for (let attempt = 0; attempt <= retry; attempt += 1) {
    if (attempt > 0) await pause(delayMs, undefined, { signal }).catch(() => undefined);
    for (const server of plan.servers) {
      if (signal.aborted) break;
      const opened = await dial(server, input, transcript);
      if (!isClientFailure(opened)) return opened;
      failure = opened;
      if (opened.permanent) return opened;
    }
  }
  if (failure === undefined) throw tookTooLong();
  return failure;
}

async function dial(
  { host, address, port, tls }: CasePlan['servers'][number],
  { plan, helloName, localAddress, stepMs, open, signal }: CaseRunInput,
  transcript: Transcript,
): Promise<ClientSession | ClientFailure> {
  const { protocol, auth } = plan;
  const server: RemoteServer = {
    host,
    address,
    port,
    protocol,
    tls,
    helloName,
    ...(auth === undefined ? {} : { auth }),
    ...(localAddress === undefined ? {} : { localAddress }),
  };
  try {
    // A case is the same dialogue with each server, also with one that offers BDAT and does not know it.
    return await open(server, { deadlines: deadlinesOf(stepMs), signal, transcript, chunking: false });
  } catch (error) {
    if (isClientFailure(error)) return error;
    throw error;
  }
}

function deadlinesOf(stepMs: number): NonNullable<CallOptions['deadlines']> {
  const steps = [
    'connectMs',
    'greetingMs',
    'helloMs',
    'tlsMs',
    'authMs',
    'mailMs',
    'rcptMs',
    'dataMs',
    'blockMs',
    'finalMs',
  ];
  return Object.fromEntries(steps.map((step) => [step, stepMs]));
}

async function converse(
  connection: CaseConnection,
  { mail, message, messageId }: CaseTransaction,
  transcript: Transcript,
): Promise<EnvelopeResult> {
  const from = transcript.entries.length;
  const sent = await connection.send(message);
  const recipients = isClientFailure(sent)
    ? message.recipients.map(({ address }) => ({ address, accepted: false, response: sent.text }))
    : sent.recipients.map((result) => ({
        address: result.recipient.address,
        accepted: result.outcome === 'delivered',
        response:
          result.outcome === 'delivered'
            ? writtenReply(result.reply)
            : `${result.failure.code} ${result.failure.status} ${result.failure.text}`,
      }));
  return {
    mail: mail ?? '',
    recipients,
    messageId,
    outcome: outcomeOf(recipients.map(({ accepted }) => (accepted ? 'delivered' : 'failed'))),
    transactions: transcript.entries.slice(from),
  };
}

function outcomeOf(parts: readonly Outcome[]): Outcome {
  const [first = 'failed', ...others] = new Set(parts);
  return others.length === 0 ? first : 'partial';
}

interface AssertionResult {
  readonly verb: string;
  readonly expected: string;
  /** The last reply to the verb; null when the verb was not sent. */
  readonly actual: string | null;
  readonly passed: boolean;
}

/** An expected reply pattern for a verb, with its position in the case. */
export interface Assertion {
  readonly verb: string;
  readonly expected: string;
  readonly pointer: string;
}

interface CompiledAssertion extends Assertion {
  readonly pattern: Pattern;
}

/**
 * Called before anything is sent. Compiling a pattern may take tens of milliseconds, so it yields after each.
 * @throws Problem `invalid` with the position of an invalid pattern
 */
export async function compileAssertions(wanted: readonly Assertion[]): Promise<readonly CompiledAssertion[]> {
  const compiled: CompiledAssertion[] = [];
  for (const assertion of wanted) {
    compiled.push({ ...assertion, pattern: at(assertion.pointer, () => compilePattern(assertion.expected)) });
    await setImmediate();
  }
  return compiled;
}

/** An assertion holds when any reply to its verb matches. */
function checkAssertions(
  wanted: readonly CompiledAssertion[],
  transcript: readonly TranscriptEntry[],
): readonly AssertionResult[] {
  return wanted.map(({ verb, expected, pattern }) => {
    const replies = transcript.filter((entry) => verbOf(entry) === verb).flatMap(({ response }) => response ?? []);
    const passed = replies.some((reply) => pattern.occursIn(reply));
    return { verb, expected, actual: replies.at(-1) ?? null, passed };
  });
}

/** The verb as assertions name it: `connect` has the greeting as its reply. */
function verbOf({ command, step }: TranscriptEntry): string {
  if (step === 'connect' || step === 'greeting') return 'CONNECT';
  return step === 'final' || step === 'body' ? '.' : command;
}
