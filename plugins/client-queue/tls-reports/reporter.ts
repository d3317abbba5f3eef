import { createHash } from 'node:crypto';
import type { Clock } from '../../../core/clock.js';
import { abortAfter } from '../../../core/concurrency.js';
import type { HealthReport } from '../../../core/contracts/health.js';
import type { SubmissionService } from '../../../core/contracts/submission.js';
import { isDnsFailure, type Resolver } from '../../../core/dns/resolver.js';
import type { Log } from '../../../core/log/log.js';
import { type Address, parseAddress } from '../../../core/mime/address.js';
import { type HttpsContext, requestHost } from '../https-request.js';
import type { ClientQueueSettings } from '../options.js';
import { type ReportAddress, reportAddresses, reportMail, reportUid, type TlsReport, tlsReport } from './report.js';
import type { DayOfDomain, TlsResults } from './tls-results.js';

interface ReporterInput {
  readonly results: TlsResults;
  readonly submission: SubmissionService;
  readonly resolver: () => Pick<Resolver, 'resolve4' | 'resolve6' | 'resolveTxt'>;
  readonly settings: () => Pick<ClientQueueSettings, 'tlsReports' | 'allowPrivateAddresses' | 'resolver'>;
  readonly hostname: string;
  /** The first local domain. */
  readonly domain: () => string;
  /** Whether mail from that domain is signed. */
  readonly signs: (domain: string) => boolean;
  /** Called after each attempt to send a report. */
  readonly tried?: (result: 'sent' | 'failed') => void;
  readonly clock: Clock;
  readonly log: Log;
  /** Trusted certificates of hosts that take reports, in tests. */
  readonly ca?: string;
}

const dayMs = 86_400_000;
/** Reports of all servers would come at once: each domain has its own pause after midnight (RFC 8460 §4.1). */
const maxDelayMs = 4 * 3_600_000;
const retryMs = 3_600_000;
/** After the end of the day (RFC 8460 §5.5: a day of retries). */
const maxAgeMs = 2 * dayMs;
const lookupMs = 10_000;
const postMs = 30_000;

/** Sends the reports of finished days to those who ask for them (RFC 8460). */
export class TlsReporter {
  readonly #input: ReporterInput;
  readonly #stopping = new AbortController();
  /** When a report that could not be sent is tried again, by day and domain; `clock.monotonic()`. */
  readonly #retryAt = new Map<string, number>();
  #running: Promise<void> | undefined;

  constructor(input: ReporterInput) {
    this.#input = input;
  }

  /** Sends what is due. Never rejects; what could not be sent is tried again. */
  run(): Promise<void> {
    this.#running ??= this.#runAll().finally(() => (this.#running = undefined));
    return this.#running;
  }

  /** Ends a running call, which sends nothing more. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
    await this.#input.results.save();
  }

  health(): HealthReport {
    if (!this.#input.settings().tlsReports.send || this.#input.signs(this.#contact().domain)) return { status: 'up' };
    const { domain } = this.#contact();
    const why = `TLS reports go out by https only: mail from ${domain} has no DKIM key, and unsigned reports are ignored.`;
    return { status: 'degraded', why };
  }

  async #runAll(): Promise<void> {
    const { results, clock, settings } = this.#input;
    for (const [day, domain, counted] of results.finished()) {
      if (this.#stopping.signal.aborted) return;
      const key = `${day} ${domain}`;
      const age = clock.now() - Date.parse(`${day}T00:00:00Z`) - dayMs;
      const isOver = age > maxAgeMs || !settings().tlsReports.send;
      const isEarly = age < delayOf(domain) || clock.monotonic() < (this.#retryAt.get(key) ?? 0);
      if (!isOver && isEarly) continue;
      if (isOver || (await this.#report(day, domain, counted))) {
        results.remove(day, domain);
        this.#retryAt.delete(key);
      } else this.#retryAt.set(key, clock.monotonic() + retryMs);
    }
    await results.save();
  }

  /** True when nothing is left to be sent. */
  async #report(day: string, domain: string, results: DayOfDomain): Promise<boolean> {
    const { hostname } = this.#input;
    const addresses = await this.#addresses(domain);
    if (addresses === undefined) return false;
    const report = tlsReport({ day, domain, results, contact: this.#contact(), hostname });
    let isDone = true;
    for (const address of addresses) {
      const name = address.kind === 'mailto' ? address.address.address : address.url.href;
      if (results.sent.includes(name)) continue;
      if (await this.#sendTo(day, report, address, name)) await this.#input.results.sent(day, domain, name);
      else isDone = false;
    }
    return isDone;
  }

  /** Undefined while the DNS does not answer. */
  async #addresses(domain: string): Promise<readonly ReportAddress[] | undefined> {
    const signal = abortAfter(lookupMs, this.#stopping.signal);
    try {
      const { records } = await this.#input.resolver().resolveTxt(`_smtp._tls.${domain}`, { signal });
      const addresses = reportAddresses(records);
      const isSigned = this.#input.signs(this.#contact().domain);
      // A report without a signature must be ignored (RFC 8460 §3).
      return addresses.filter(({ kind }) => kind === 'https' || isSigned);
    } catch (error) {
      const isNone = isDnsFailure(error) && (error.kind === 'nxdomain' || error.kind === 'nodata');
      return isNone ? [] : undefined;
    }
  }

  async #sendTo(day: string, report: TlsReport, address: ReportAddress, to: string): Promise<boolean> {
    const { log, tried } = this.#input;
    try {
      if (address.kind === 'mailto') await this.#mail(day, report, address.address);
      else await this.#post(report, address.url);
      tried?.('sent');
      log.info({ domain: report.domain, day, to }, 'a TLS report was sent');
      return true;
    } catch (error) {
      tried?.('failed');
      log.warn({ domain: report.domain, day, to, err: error }, 'a TLS report could not be sent');
      return false;
    }
  }

  async #mail(day: string, report: TlsReport, to: Address): Promise<void> {
    const { submission, clock, hostname } = this.#input;
    const from = this.#contact();
    const content = reportMail(report, from, to, new Date(clock.now()));
    await submission.submit({
      username: undefined,
      reversePath: from,
      recipients: [to],
      content: async function* () {
        yield await Promise.resolve(content);
      },
      id: reportUid(day, report.domain, to.address, hostname),
    });
  }

  /** RFC 8460 §5.4. */
  async #post(report: TlsReport, url: URL): Promise<void> {
    const { resolver, settings, ca } = this.#input;
    const signal = abortAfter(postMs, this.#stopping.signal);
    const context: HttpsContext = {
      resolver: resolver(),
      allowPrivate: settings().allowPrivateAddresses,
      signal,
      port: Number(url.port || 443),
      ...(ca !== undefined && { ca }),
    };
    const call = {
      method: 'POST',
      path: `${url.pathname}${url.search}`,
      headers: { Host: url.host, 'Content-Type': 'application/tlsrpt+gzip' },
      body: report.content,
    };
    await requestHost(url.hostname, call, context, ({ statusCode = 0 }) => {
      if (statusCode < 200 || statusCode > 299) throw new Error(`${url.hostname} answers ${statusCode}`);
      return Promise.resolve();
    });
  }

  #contact(): Address {
    const { settings, domain } = this.#input;
    return parseAddress(settings().tlsReports.from ?? `postmaster@${domain()}`);
  }
}

/** Always the same for a domain, so that a restart does not change it. */
const delayOf = (domain: string): number => createHash('sha256').update(domain).digest().readUInt32BE(0) % maxDelayMs;
