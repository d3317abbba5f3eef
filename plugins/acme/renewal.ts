import { createPrivateKey, randomInt, X509Certificate } from 'node:crypto';
import { z } from 'zod';
import type { Clock } from '../../core/clock.js';
import type { HealthReport } from '../../core/contracts/health.js';
import type { ServerCertificateService } from '../../core/contracts/server-certificate.js';
import type { Document } from '../../core/disk/document.js';
import type { Log } from '../../core/log/log.js';
import { isStartError, problem } from '../../core/problem.js';
import { AcmeClient, AcmeError } from './acme-client.js';
import { type ChallengeAnswers, newKey, obtainCertificate } from './order.js';
import type { AcmeSettings } from './options.js';

/** `acme/state.json`. */
export const AcmeState = z.strictObject({
  /** The account belongs to this authority. */
  directory: z.string(),
  /** PEM of the account key. */
  accountKey: z.string(),
  order: z.strictObject({ url: z.string(), names: z.array(z.string()), key: z.string() }).nullable(),
  /** Attempts that failed since the last certificate. */
  failures: z.int().min(0),
  /** The next attempt, in milliseconds since 1970. */
  notBefore: z.number(),
  /** The authority itself asked to wait until then. */
  isLimited: z.boolean(),
  error: z.string().nullable(),
});
export type AcmeState = z.output<typeof AcmeState>;

export const noState: AcmeState = {
  directory: '',
  accountKey: '',
  order: null,
  failures: 0,
  notBefore: 0,
  isLimited: false,
  error: null,
};

/** Authorities count failed challenges by the hour: the first pauses are long enough for that. */
const firstPauseMs = 15 * 60_000;
const maxPauseMs = 24 * 3_600_000;
/** Renewal starts when a third of the lifetime is left, or up to this many thousandths of it earlier. */
const maxJitter = 30;

type Attempt = 'issued' | 'failed' | 'limited';

interface RenewalInput {
  readonly document: Document<AcmeState>;
  readonly certificate: ServerCertificateService;
  readonly settings: () => AcmeSettings;
  readonly answers: ChallengeAnswers;
  /** Called after each attempt. */
  readonly attempted: (result: Attempt) => void;
  readonly clock: Clock;
  readonly log: Log;
}

/** Renews the certificate of the server in time, and tries again after failures. */
export class Renewal {
  readonly #input: RenewalInput;
  readonly #jitter = randomInt(maxJitter) / 1000;
  readonly #stopping = new AbortController();
  #running: Promise<void> | undefined;

  constructor(input: RenewalInput) {
    this.#input = input;
  }

  /** Starts an attempt when one is due. */
  look(): void {
    const { settings, clock, document } = this.#input;
    if (settings().names.length === 0 || this.#running !== undefined) return;
    if (clock.now() >= Math.max(this.dueAt(), document.data.notBefore)) this.#start();
  }

  /**
   * Starts an attempt now, as an operator wishes.
   *
   * @throws Problem `conflict` while one runs or nothing is configured, `too-many-requests` while the authority asks to wait
   */
  renewNow(): void {
    const { settings, clock, document } = this.#input;
    if (settings().names.length === 0) throw problem('conflict', 'Set plugins.acme.names first.');
    if (this.#running !== undefined) throw problem('conflict', 'An attempt is running.');
    const { isLimited, notBefore } = document.data;
    if (isLimited && clock.now() < notBefore) {
      throw problem('too-many-requests', `The authority asks to wait until ${new Date(notBefore).toISOString()}.`);
    }
    this.#start();
  }

  get isRunning(): boolean {
    return this.#running !== undefined;
  }

  get state(): AcmeState {
    return this.#input.document.data;
  }

  /** The certificate in use; undefined while it is self-signed. */
  get issued(): X509Certificate | undefined {
    const { issued } = this.#input.certificate;
    return issued === undefined ? undefined : new X509Certificate(issued);
  }

  /** When the certificate is to be renewed, in milliseconds since 1970: at once when it lacks a name. */
  dueAt(): number {
    const { issued } = this;
    if (issued === undefined || !this.#input.settings().names.every((name) => issued.checkHost(name))) return 0;
    const [from, to] = [Date.parse(issued.validFrom), Date.parse(issued.validTo)];
    return to - (to - from) * (1 / 3 + this.#jitter);
  }

  health(): HealthReport {
    const { error, notBefore } = this.state;
    if (this.#input.settings().names.length === 0 || error === null) return { status: 'up', page: '/acme' };
    const next = new Date(Math.max(notBefore, this.dueAt())).toISOString();
    return { status: 'degraded', why: `No certificate was obtained: ${error} Next attempt: ${next}.`, page: '/acme' };
  }

  /** Ends a running attempt; its order is continued after the next start. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
  }

  #start(): void {
    this.#running = this.#attempt().finally(() => (this.#running = undefined));
  }

  async #attempt(): Promise<void> {
    const { certificate, settings, log, attempted } = this.#input;
    const { names } = settings();
    try {
      const { key, cert } = await this.#obtain();
      await certificate.install(key, cert);
      await this.#change({ order: null, failures: 0, notBefore: 0, isLimited: false, error: null });
      attempted('issued');
      log.info({ names, validTo: this.issued?.validTo }, 'a certificate was obtained');
    } catch (error) {
      if (this.#stopping.signal.aborted) return;
      await this.#fail(error);
    }
  }

  async #obtain(): Promise<{ readonly key: string; readonly cert: string }> {
    const { settings, answers, clock } = this.#input;
    const { directory, contact } = settings();
    await this.#prepare(directory);
    const { accountKey, order } = this.state;
    const { signal } = this.#stopping;
    const now = (): number => clock.now();
    const client = new AcmeClient({ directory, key: createPrivateKey(accountKey), signal, now });
    await client.signIn(contact);
    return obtainCertificate({
      client,
      settings: settings(),
      started: order,
      keep: (next) => this.#change({ order: next === null ? null : { ...next, names: [...next.names] } }),
      answers,
      signal,
      now,
    });
  }

  /** Makes an account key for a new authority; forgets an order whose certificate is in use already. */
  async #prepare(directory: string): Promise<void> {
    const { directory: known, order } = this.state;
    if (known !== directory) await this.#change({ directory, accountKey: newKey(), order: null });
    else if (order !== null && this.issued?.checkPrivateKey(createPrivateKey(order.key)) === true) {
      await this.#change({ order: null });
    }
  }

  async #fail(cause: unknown): Promise<void> {
    const { clock, log, settings, attempted } = this.#input;
    const known = cause instanceof AcmeError || isStartError(cause);
    const failures = this.state.failures + 1;
    const isLimited = cause instanceof AcmeError && cause.retryAfterMs !== undefined;
    const asked = cause instanceof AcmeError ? (cause.retryAfterMs ?? 0) : 0;
    const pause = Math.min(maxPauseMs, firstPauseMs * 2 ** Math.min(failures - 1, 10)) * (1 + this.#jitter);
    const error = known ? cause.message : 'It failed; the log says why.';
    const notBefore = clock.now() + Math.max(pause, asked);
    attempted(isLimited ? 'limited' : 'failed');
    log.warn({ names: settings().names, failures, notBefore, err: cause }, 'a certificate could not be obtained');
    await this.#change({ failures, notBefore, isLimited, error }).catch((err: unknown) => {
      log.error({ err }, 'the state of the certificate cannot be written down');
    });
  }

  #change(part: Partial<AcmeState>): Promise<void> {
    return this.#input.document.update((state) => ({ ...state, ...part }));
  }
}
