import { isIP } from 'node:net';
import type { Clock } from '../clock.js';
import type {
  ExplainedRecipient,
  ExplainedReply,
  ExplainedStage,
  ExplainedStep,
  Explaining,
  Explanation,
  ExplainQuestion,
} from '../contracts/explaining.js';
import { uniqueId } from '../disk/id.js';
import { normalAddress } from '../net/ip-address.js';
import { type Address, parseAddress } from '../mime/address.js';
import { problem } from '../problem.js';
import type { Decision } from './transaction-pipeline.js';
import type { PipelineSnapshot } from './pipeline.js';
import { isHelloName } from '../smtp/protocol/command.js';
import type { StageInput } from './hook.js';
import type { Hop, Stage, Verdict } from './verdict.js';
import { replies, type Reply } from '../smtp/protocol/replies.js';
import type { Recipient, SmtpSession, Transaction } from './transaction.js';

export interface ExplainInput {
  readonly pipeline: { snapshot(): PipelineSnapshot };
  readonly clock: Clock;
  /** Of a listener of that mode: what it is called. */
  readonly listenerName: (mode: ExplainQuestion['mode']) => string;
}

/** Runs the hooks of one moment, in order, for a fictitious message. */
export class PipelineExplaining implements Explaining {
  readonly #input: ExplainInput;

  constructor(input: ExplainInput) {
    this.#input = input;
  }

  async explain(question: ExplainQuestion): Promise<Explanation> {
    const asked = readQuestion(question);
    const snapshot = this.#input.pipeline.snapshot();
    snapshot.acquire();
    try {
      return await this.#explain(snapshot, question, asked);
    } finally {
      snapshot.release();
    }
  }

  async #explain(
    snapshot: PipelineSnapshot,
    question: ExplainQuestion,
    asked: ReturnType<typeof readQuestion>,
  ): Promise<Explanation> {
    const session = this.#session(question);
    const transaction = transactionOf(session, asked);
    const stages = await this.#before(snapshot, transaction, question);
    const recipients: ExplainedRecipient[] = [];
    if (stages.every(({ outcome }) => outcome === 'pass')) {
      for (const address of asked.recipients) recipients.push(await explainRecipient(snapshot, transaction, address));
    }
    const unasked = (['message', 'deliver'] as const).flatMap((stage) =>
      snapshot.hooks(stage).map(({ plugin, phase }) => ({ stage, plugin, phase })),
    );
    return { stages, recipients, unasked };
  }

  /** Up to the first stage that refuses. */
  async #before(
    snapshot: PipelineSnapshot,
    transaction: Transaction & { readonly session: SmtpSession },
    { ehlo, mode, authenticated }: ExplainQuestion,
  ): Promise<readonly ExplainedStage[]> {
    const { session } = transaction;
    const verb = mode === 'lmtp' ? ('LHLO' as const) : ('EHLO' as const);
    const stages: ExplainedStage[] = [];
    const runs = [
      () => explainStage(snapshot, 'connect', { session: { ...session, hello: undefined, user: undefined } }),
      () =>
        explainStage(snapshot, 'ehlo', {
          session: { ...session, hello: undefined, user: undefined },
          verb,
          name: ehlo,
        }),
      () => explainStage(snapshot, 'mailFrom', { transaction }),
    ];
    for (const run of runs) {
      const { decision, ...stage } = await run();
      void decision;
      stages.push(stage);
      if (stage.outcome !== 'pass') return stages;
      if (stage.stage === 'ehlo' && mode === 'submission' && authenticated === null) {
        stages.push({ ...stage, stage: 'auth', steps: [], outcome: 'refuse', reply: replyOf(replies.authFirst) });
        return stages;
      }
    }
    return stages;
  }

  #session({ ip, ehlo, mode, authenticated, tls }: ExplainQuestion): SmtpSession {
    return {
      id: uniqueId(),
      listener: { name: this.#input.listenerName(mode), mode },
      remote: { address: normalAddress(ip), port: 0 },
      exempt: false,
      hello: { verb: mode === 'lmtp' ? 'LHLO' : 'EHLO', name: ehlo },
      tls: tls ? { protocol: 'TLSv1.3', cipher: 'TLS_AES_256_GCM_SHA384' } : undefined,
      user: authenticated === null ? undefined : { username: authenticated },
      dryRun: true,
      since: new Date(this.#input.clock.now()).toISOString(),
      notes: new Map(),
    };
  }
}

interface ReadQuestion {
  readonly reversePath: Address | null;
  readonly recipients: readonly Address[];
}

/** @throws Problem `invalid` */
function readQuestion({ ip, ehlo, mail, rcpt }: ExplainQuestion): ReadQuestion {
  if (isIP(ip) === 0) throw problem('invalid', 'ip must be an IP address.');
  if (!isHelloName(ehlo)) throw problem('invalid', 'ehlo must be a domain or an address literal.');
  const reversePath = mail === '' || mail === '<>' ? null : parseAddress(mail);
  return { reversePath, recipients: rcpt.map((written) => parseAddress(written)) };
}

function transactionOf(session: SmtpSession, { reversePath, recipients }: ReadQuestion) {
  const international = [reversePath, ...recipients].some((address) => address?.international === true);
  return {
    id: uniqueId(),
    session,
    reversePath,
    declaredSize: undefined,
    body: '8BITMIME' as const,
    smtputf8: international,
    recipients: new Array<Recipient>(),
    notes: new Map<string, unknown>(),
  };
}

async function explainStage<S extends Stage>(
  snapshot: PipelineSnapshot,
  stage: S,
  input: StageInput[S],
): Promise<ExplainedStage & { readonly decision: Decision }> {
  const answers = new Map<unknown, Verdict>();
  const decision = await snapshot.trace(stage, input, (hook, verdict) => answers.set(hook, verdict));
  const steps = snapshot.hooks(stage).map((hook): ExplainedStep => {
    const verdict = answers.get(hook);
    const { plugin, phase } = hook;
    const shadow = snapshot.isShadowed(plugin);
    return {
      plugin,
      phase,
      verdict: verdict?.kind ?? 'notAsked',
      detail: verdict === undefined ? null : detailOf(verdict),
      shadow,
    };
  });
  const reply = decision.outcome === 'refuse' ? replyOf(inPlace(stage, decision.reply)) : null;
  return { stage, address: null, steps, outcome: decision.outcome, reply, decision };
}

async function explainRecipient(
  snapshot: PipelineSnapshot,
  transaction: Transaction & { readonly recipients: Recipient[] },
  address: Address,
): Promise<ExplainedRecipient> {
  const { decision, ...stage } = await explainStage(snapshot, 'rcptTo', { transaction, address });
  const hop = decision.outcome === 'pass' ? decision.hop : undefined;
  if (hop !== undefined) transaction.recipients.push({ address, hop, discarded: false });
  return {
    ...stage,
    address: address.address,
    hop: hop === undefined ? null : { target: hop.target, destination: hop.destination },
    way: hop === undefined ? [] : await wayOf(snapshot, hop),
  };
}

async function wayOf(snapshot: PipelineSnapshot, hop: Hop): Promise<readonly string[]> {
  try {
    return (await snapshot.target(hop.target)?.explain?.(hop)) ?? [];
  } catch (error) {
    return [`What ${hop.target} would do cannot be told: ${error instanceof Error ? error.message : 'it failed'}.`];
  }
}

function detailOf(verdict: Verdict): string | null {
  switch (verdict.kind) {
    case 'reject':
    case 'defer':
      return `${verdict.code} ${verdict.status} ${verdict.text}`;
    case 'discard':
    case 'hold':
      return verdict.reason;
    case 'route':
      return verdict.hop.destination === '' ? verdict.hop.target : `${verdict.hop.target}: ${verdict.hop.destination}`;
    case 'change':
      return verdict.changes.map(({ change }) => change).join(', ');
    case 'next':
    case 'accept':
      break;
  }
  return null;
}

/** RFC 5321 §4.3.2: a greeting is 220, 421 or 554. */
const inPlace = (stage: Stage, reply: Reply): Reply =>
  stage === 'connect' ? { ...reply, code: reply.code < 500 ? 421 : 554 } : reply;

const replyOf = ({ code, status, lines }: Reply): ExplainedReply => ({ code, status, text: lines.join(' ') });
