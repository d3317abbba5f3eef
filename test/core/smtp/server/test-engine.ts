import { mkdir, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { type Clock, systemClock } from '../../../../core/clock.js';
import { openSpool } from '../../../../core/spool/file-spool.js';
import type { Spool } from '../../../../core/spool/spool.js';
import { HealthRegistry } from '../../../../core/host/health.js';
import type { Log } from '../../../../core/log/log.js';
import { ServerCertificate } from '../../../../core/net/server-certificate.js';
import { Metrics } from '../../../../core/metrics/metrics.js';
import type { TransactionPipeline, Decision, DeliveryResult } from '../../../../core/pipeline/transaction-pipeline.js';
import {
  createSmtpEngine,
  type SmtpEngine,
  SmtpOptions,
  type SmtpSettings,
} from '../../../../core/smtp/server/listeners.js';
import type { WatchedEvent, WatchedEvents } from '../../../../core/pipeline/events.js';
import type { StageInput } from '../../../../core/pipeline/hook.js';
import type { Stage } from '../../../../core/pipeline/verdict.js';
import type { PipelineSource } from '../../../../core/smtp/server/listener-context.js';
import type { DeliveryDeadline } from '../../../../core/pipeline/commit.js';
import { reply } from '../../../../core/smtp/protocol/replies.js';
import type { Transaction } from '../../../../core/pipeline/transaction.js';
import type { z } from 'zod';
import { atEnd, type Ending } from '../../../support/ending.js';
import { SmtpClient } from '../../../support/smtp-client.js';
import { temporaryFolder } from '../../../support/temporary-folder.js';
import { until } from '../../../support/until.js';

/** One line of the log. */
export interface LogLine {
  readonly level: string;
  readonly message: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

/** A message that was delivered. */
export interface Delivered {
  readonly sender: string;
  readonly recipients: readonly string[];
  /** The whole file as latin1. */
  readonly file: string;
  /** The message as latin1, without the trace header. */
  readonly text: string;
  readonly transaction: Transaction;
}

type Decide = <S extends Stage>(stage: S, input: StageInput[S]) => Decision | Promise<Decision> | undefined;

export interface TestEngineOptions {
  readonly settings?: z.input<typeof SmtpOptions>;
  /** Asked before the usual decisions; undefined is no opinion. */
  readonly decide?: Decide;
  readonly deliver?: (transaction: Transaction, timeout?: DeliveryDeadline) => Promise<DeliveryResult | undefined>;
  readonly spool?: Spool;
  /** In place of the fake pipeline. */
  readonly pipeline?: PipelineSource;
  readonly clock?: Clock;
  readonly sweepMs?: number;
}

const usualSweepMs = 10;
const taken: Decision = { outcome: 'pass', hop: { target: 'test', destination: 'test' } };

/**
 * An engine on free ports whose pipeline takes mail for localhost and for whoever has signed in; the one user is
 * `anna` with the password `secret`.
 */
export class TestEngine {
  readonly engine: SmtpEngine;
  readonly delivered: Delivered[] = [];
  readonly events: { readonly event: WatchedEvent; readonly data: unknown }[] = [];
  readonly lines: LogLine[];
  readonly metrics: Metrics;
  readonly health: HealthRegistry;
  readonly spoolFolder: string;
  readonly #options: TestEngineOptions;

  constructor(engine: (test: TestEngine) => SmtpEngine, lines: LogLine[], folder: string, options: TestEngineOptions) {
    this.lines = lines;
    this.spoolFolder = folder;
    this.#options = options;
    this.metrics = new Metrics();
    this.health = new HealthRegistry({ clock: options.clock ?? systemClock });
    this.engine = engine(this);
  }

  static async create(test: Ending, options: TestEngineOptions = {}): Promise<TestEngine> {
    const lines: LogLine[] = [];
    const log = recordingLog(lines);
    const folder = join(await temporaryFolder(test), 'spool');
    await mkdir(folder, { recursive: true });
    const spool = options.spool ?? (await openSpool(folder, { log }));
    const certificate = await ServerCertificate.open(folder, { hostname: 'mx.test', now: systemClock.now() });
    const make = (engine: TestEngine): SmtpEngine =>
      createSmtpEngine({
        settings: settingsOf(options.settings),
        hostname: 'mx.test',
        domains: ['localhost'],
        certificate,
        spool,
        pipeline: options.pipeline ?? { snapshot: () => engine.#chain() },
        log,
        clock: options.clock ?? systemClock,
        metrics: engine.metrics.scope('smtp'),
        health: engine.health,
        sweepMs: options.sweepMs ?? usualSweepMs,
      });
    return new TestEngine(make, lines, folder, options);
  }

  /** With its listeners open; closed when the test ends. */
  static async start(test: Ending, options: TestEngineOptions = {}): Promise<TestEngine> {
    const engine = await TestEngine.create(test, options);
    await engine.engine.listen();
    atEnd(test, () => engine.engine.close(0));
    return engine;
  }

  port(listener = 0): number {
    const address = this.engine.addresses()[listener];
    if (address === undefined) throw new Error(`there is no listener ${listener}`);
    return address.port;
  }

  connect(listener = 0): Promise<SmtpClient> {
    return SmtpClient.connect({ port: this.port(listener) });
  }

  greeted(listener = 0, hello?: string): Promise<SmtpClient> {
    return SmtpClient.greeted({ port: this.port(listener) }, hello);
  }

  /** Log lines of that message. */
  logged(message: string): readonly LogLine[] {
    return this.lines.filter((line) => line.message === message);
  }

  /** Resolves when so many lines of that message are in the log. */
  async untilLogged(message: string, count = 1): Promise<readonly LogLine[]> {
    return until(`${count} lines "${message}"`, () => {
      const found = this.logged(message);
      return found.length >= count ? found : undefined;
    });
  }

  /** Resolves when the spool folder holds nothing. */
  async untilSpoolIsEmpty(): Promise<void> {
    await until('an empty spool', async () => ((await readdir(this.spoolFolder)).length === 0 ? true : undefined));
  }

  /** The sum of a counter or gauge of the engine over all its labels. */
  async count(metric: string): Promise<number> {
    const { body } = await this.metrics.exposition.render('prometheus');
    const samples = body.matchAll(new RegExp(`^postern_${metric}(?:\\{.*\\})? (\\S+)$`, 'gm'));
    return [...samples].reduce((sum, [, value]) => sum + Number(value), 0);
  }

  /** Resolves when the server has read all that this one client has written. */
  async untilReceived(client: SmtpClient): Promise<void> {
    await until('all bytes', async () => {
      const received = await this.count('smtp_received_bytes_total');
      return received === client.socket.bytesWritten ? true : undefined;
    });
  }

  /** Resolves when every session has ended. */
  async untilNoSession(): Promise<void> {
    await until('the end of all sessions', async () =>
      (await this.count('smtp_sessions_open')) === 0 ? true : undefined,
    );
  }

  /** Resolves when the deadlines have been looked at once more. */
  async untilSwept(): Promise<void> {
    await new Promise((resolve) => setTimeout(resolve, 3 * (this.#options.sweepMs ?? usualSweepMs)));
  }

  /** For `until`: a metric that has moved and then been the same at ten looks. */
  steadyCount(metric: string): () => Promise<number | undefined> {
    let last = 0;
    let same = 0;
    return async () => {
      const now = await this.count(metric);
      same = now === last ? same + 1 : 0;
      last = now;
      return same >= 10 && now > 1000 ? now : undefined;
    };
  }

  #chain(): TransactionPipeline {
    return {
      acquire: () => undefined,
      release: () => undefined,
      decide: (stage, input) => this.#options.decide?.(stage, input) ?? usualDecision(stage, input),
      route: ({ transaction, address }) => usualDecision('rcptTo', { transaction, address }),
      target: () => undefined,
      deliver: async (transaction, message, timeout) => {
        const made = await this.#options.deliver?.(transaction, timeout);
        if (made !== undefined) {
          await message.release();
          return made;
        }
        const file = (await buffer(message.open())).toString('latin1');
        this.delivered.push({
          sender: transaction.reversePath?.address ?? '<>',
          recipients: transaction.recipients.map(({ address }) => address.address),
          file,
          text: file.slice(message.messageOffset),
          transaction,
        });
        await message.release();
        const summary = reply(250, '2.0.0', `Queued as ${transaction.id}`);
        const { recipients } = transaction;
        return { summary, replies: recipients.map(({ address }) => reply(250, '2.1.5', address.address)), recipients };
      },
      emit: <E extends WatchedEvent>(event: E, data: WatchedEvents[E]) => {
        this.events.push({ event, data });
      },
    };
  }
}

export function settingsOf(settings: z.input<typeof SmtpOptions> = {}): SmtpSettings {
  return SmtpOptions.parse({ listeners: [{ port: 0 }], ...settings });
}

function usualDecision<S extends Stage>(stage: S, input: StageInput[S]): Decision {
  if (stage === 'auth') {
    const { username, password } = input as StageInput['auth'];
    return username === 'anna' && password === 'secret'
      ? { outcome: 'pass', user: { username: 'anna@localhost' } }
      : { outcome: 'pass' };
  }
  if (stage !== 'rcptTo') return { outcome: 'pass' };
  const { address, transaction } = input as StageInput['rcptTo'];
  if (address.domain !== 'localhost') return transaction.session.user === undefined ? { outcome: 'pass' } : taken;
  if (address.local.startsWith('unknown')) return { outcome: 'refuse', reply: reply(550, '5.1.1', 'No such mailbox') };
  return taken;
}

export function recordingLog(lines: LogLine[]): Log {
  const at =
    (level: string) =>
    (fields: unknown, message?: unknown): void => {
      lines.push({
        level,
        message: typeof message === 'string' ? message : String(fields),
        fields: typeof fields === 'object' ? { ...fields } : {},
      });
    };
  const log = {
    trace: at('trace'),
    debug: at('debug'),
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
    fatal: at('fatal'),
    child: () => log,
  } as unknown as Log;
  return log;
}

/** A clock that stands until it is turned. */
export class TestClock implements Clock {
  #ms = 1_000_000;

  now(): number {
    return Date.UTC(2026, 10, 21) + this.#ms;
  }

  monotonic(): number {
    return this.#ms;
  }

  advance(seconds: number): void {
    this.#ms += seconds * 1000;
  }
}
