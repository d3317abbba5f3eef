import { Readable } from 'node:stream';
import type { Decision } from '../../../core/pipeline/transaction-pipeline.js';
import { Pipeline } from '../../../core/pipeline/pipeline.js';
import type { HookOptions, StageInput } from '../../../core/pipeline/hook.js';
import type { Hop, Stage, Verdict } from '../../../core/pipeline/verdict.js';
import type { HeaderEdit, SpooledMessage } from '../../../core/spool/spool.js';
import type { Log } from '../../../core/log/log.js';
import { parseAddress } from '../../../core/mime/address.js';
import type { ListenerMode, Recipient, SmtpSession, Transaction } from '../../../core/pipeline/transaction.js';
import { HandClock } from '../../support/hand-clock.js';

export interface Line {
  readonly level: string;
  readonly fields: Readonly<Record<string, unknown>>;
  readonly text: string;
}

/** A pipeline whose log can be read. */
export function pipelineOf(timeLimitMs = 1000) {
  const lines: Line[] = [];
  const at = (level: string) => (fields: unknown, text?: unknown) => {
    lines.push({ level, fields: { ...(fields as object) }, text: String(text) });
  };
  const log: Log = {
    trace: at('trace'),
    debug: at('debug'),
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
    fatal: at('fatal'),
    child: () => log,
  };
  const clock = new HandClock();
  return { pipeline: new Pipeline({ log, clock, timeLimitMs }), lines, clock };
}

export function sessionOf(mode: ListenerMode = 'mx'): SmtpSession {
  return {
    id: 'session1',
    listener: { name: mode, mode },
    remote: { address: '192.0.2.1', port: 1234 },
    exempt: false,
    hello: { verb: 'EHLO', name: 'client.example' },
    tls: undefined,
    user: undefined,
    since: '2026-11-21T00:00:00.000Z',
    notes: new Map(),
  };
}

/** `a@one` is routed to the target `one`; without a host to nowhere; `a@discard` is discarded. */
export function recipientOf(text: string, hop?: Hop): Recipient {
  const address = parseAddress(text);
  const discarded = address.domain === 'discard';
  return { address, hop: discarded ? undefined : (hop ?? { target: address.domain, destination: text }), discarded };
}

export function transactionOf(recipients: readonly (string | Recipient)[], mode: ListenerMode = 'mx'): Transaction {
  return {
    id: 'id1',
    session: sessionOf(mode),
    reversePath: parseAddress('from@example.com'),
    declaredSize: undefined,
    body: '7BIT',
    smtputf8: false,
    recipients: recipients.map((one) => (typeof one === 'string' ? recipientOf(one) : one)),
    notes: new Map(),
  };
}

/** A message in memory that says whether it was let go of. */
export class MemoryMessage implements SpooledMessage {
  readonly head: Buffer;
  readonly traceOffset = 0;
  readonly messageOffset = 0;
  readonly #text: string;
  readonly edits: HeaderEdit[];
  releases = 0;
  failRewrite: Error | undefined;
  /** What `rewrite` made of it. */
  rewritten: MemoryMessage | undefined;

  constructor(text = 'Subject: one\r\nX-Old: 1\r\n\r\nbody\r\n', edits: HeaderEdit[] = []) {
    this.#text = text;
    this.edits = edits;
    this.head = Buffer.from(text.slice(0, text.indexOf('\r\n\r\n') + 4));
  }

  get size(): number {
    return this.#text.length;
  }

  open(offset = 0): Readable {
    return Readable.from([Buffer.from(this.#text.slice(offset))]);
  }

  prepare(): Promise<void> {
    return Promise.resolve();
  }

  link(): Promise<void> {
    return Promise.resolve();
  }

  rollback(): Promise<boolean> {
    return Promise.resolve(true);
  }

  replacement(): never {
    throw new Error('no test asks for it');
  }

  rewrite(edit: HeaderEdit): Promise<SpooledMessage> {
    if (this.failRewrite !== undefined) return Promise.reject(this.failRewrite);
    this.edits.push(edit);
    const added = edit.add.map(([name, value]) => `${name}: ${value}\r\n`).join('');
    this.rewritten = new MemoryMessage(added + this.#text, this.edits);
    this.releases += 1;
    return Promise.resolve(this.rewritten);
  }

  release(): Promise<void> {
    this.releases += 1;
    return Promise.resolve();
  }
}

export const session = sessionOf();
const transaction = transactionOf([]);
const received = { size: 1, headers: [], headersTruncated: false, open: () => new MemoryMessage().open() };
export const inputs: StageInput = {
  connect: { session },
  ehlo: { session, verb: 'EHLO', name: 'client.example' },
  auth: { session, mechanism: 'PLAIN', username: 'anna', password: 'secret' },
  mailFrom: { transaction },
  rcptTo: { transaction, address: parseAddress('to@example.com') },
  message: { transaction, message: received },
  deliver: { transaction, message: received },
  attempt: {
    attempt: {
      id: 'id1',
      reversePath: null,
      recipients: [parseAddress('to@example.com')],
      target: 'relay',
      destination: 'example.com',
      attempts: 0,
      queuedAt: 0,
      size: 1,
      open: () => Promise.resolve(received.open()),
    },
  },
};
export const here = { target: 'mailbox', destination: 'to@example.com' };
export const elsewhere = { target: 'relay', destination: 'example.com' };
export const target = { start: () => Promise.reject(new Error('not to be started')) };

export type Answer = () => unknown;

/** Site plugins are JavaScript: a hook may answer anything. */
export function hook(
  pipeline: Pipeline,
  stage: Stage,
  answer: Answer,
  options: HookOptions = {},
  plugin = 'site',
): () => void {
  return pipeline.on(plugin, stage, options, answer as () => Verdict);
}

export function decideAt(pipeline: Pipeline, stage: Stage): Decision | Promise<Decision> {
  return pipeline.snapshot().decide(stage, inputs[stage]);
}

/** In one word and, for refusals, the code. */
export function brief(decision: Decision): string {
  if (decision.outcome === 'discard') return 'discard';
  if (decision.outcome === 'refuse') return `${decision.reply.code} ${decision.reply.status}`;
  return ['pass', decision.user?.username, decision.hop?.target].filter((word) => word !== undefined).join(' ');
}

export function withTargets(...names: readonly string[]) {
  const made = pipelineOf();
  for (const name of names) made.pipeline.deliverTo(name, name, target);
  return made;
}
