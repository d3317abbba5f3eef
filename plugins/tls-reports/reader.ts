import { z } from 'zod';
import type { Clock } from '../../core/clock.js';
import { FairQueue } from '../../core/fair-queue.js';
import { withTimeout } from '../../core/concurrency.js';
import type { Dns } from '../../core/contracts/dns.js';
import type { Document } from '../../core/disk/document.js';
import type { Log } from '../../core/log/log.js';
import type { ReceivedMessage } from '../../core/pipeline/transaction.js';
import { clientPath } from '../../core/turns.js';
import { isProblem } from '../../core/problem.js';
import { WorkerJobs } from '../../core/worker-jobs.js';
import type { ReportedDomain } from './report.js';
import type { ReportJob, ReportResult, SigningKeys } from './report-job.js';
import { maxHeaderBytes, type SignatureClaims, signatureClaims } from './signature-claims.js';

const line = z.string().max(400);
const count = z.number().min(0);
const StoredReport = z.strictObject({
  id: line,
  /** Domain whose signature the mail has. */
  submitter: line,
  organization: line,
  domain: line,
  from: line,
  to: line,
  receivedAt: line,
  succeeded: count,
  failed: count,
  failures: z.array(z.strictObject({ result: line, host: line, reason: line, count })),
});
export type StoredReport = Readonly<z.output<typeof StoredReport>>;

/** Content of `tls-reports/reports.json`, newest first. */
export const StoredReports = z.strictObject({ reports: z.array(StoredReport) });
export type StoredReports = z.output<typeof StoredReports>;

/**
 * What became of a mail with a report. `foreign`: it is about no local domain; `skipped`: it is too large, or there were too
 * many at once.
 */
export const readResults = ['read', 'repeated', 'unsigned', 'foreign', 'unreadable', 'skipped'] as const;
type ReadResult = (typeof readResults)[number];

interface ReportReaderInput {
  readonly document: Document<StoredReports>;
  readonly dns: Dns;
  /** Local domains. */
  readonly domains: () => readonly string[];
  readonly tried: (result: ReadResult) => void;
  readonly clock: Clock;
  readonly log: Log;
}

/** A report of a large provider has some 10 KB, and a mail needs no more than a header around it. */
const maxMailBytes = 1024 * 1024;
/** The mail is accepted after this time in any case. */
const maxMs = 10_000;
/** Mails whose keys are looked up at a time. */
const lookups = {
  concurrency: 8,
  maxWaitingPerClient: 8,
  maxWaiting: 64,
  retryAfterSeconds: 2,
  detail: 'Too many reports are being read at once.',
};
const maxReports = 300;
/** Of all together, in characters of JSON: they are checked and written at once. */
const maxLength = 1024 * 1024;
/** Of one submitter, so that none displaces all others. */
const maxOfSubmitter = 50;

/** Reads the reports of other servers about TLS of their connections to this one (RFC 8460), in a thread, one at a time. */
export class ReportReader {
  readonly #input: ReportReaderInput;
  readonly #lookups = new FairQueue(lookups);
  readonly #jobs = new WorkerJobs<ReportJob, ReportResult>(new URL('./report-worker.js', import.meta.url), {
    workers: 1,
  });

  constructor(input: ReportReaderInput) {
    this.#input = input;
  }

  /** Never rejects: whatever is wrong with a report, its mail is mail. @param client IP address */
  async read(transaction: string, message: ReceivedMessage, client: string): Promise<void> {
    const { log, tried } = this.#input;
    const waiting = { isOver: false };
    try {
      const result = await withTimeout(maxMs, this.#read(message, client, waiting), 'it took too long');
      tried(result);
      const isIgnored = result === 'unsigned' || result === 'foreign' || result === 'skipped';
      if (isIgnored) log.info({ transaction, result }, 'a TLS report is ignored');
    } catch (error) {
      const isBusy = isProblem(error) && error.problem === 'unavailable';
      tried(isBusy ? 'skipped' : 'unreadable');
      log.warn({ transaction, err: error }, 'a TLS report cannot be read');
    } finally {
      waiting.isOver = true;
    }
  }

  close(): Promise<void> {
    return this.#jobs.close();
  }

  async #read(message: ReceivedMessage, client: string, waiting: { readonly isOver: boolean }): Promise<ReadResult> {
    if (!message.headers.some(([name]) => name.toLowerCase() === 'dkim-signature')) return 'unsigned';
    if (message.size > maxMailBytes) return 'skipped';
    const claims = signatureClaims(await startOf(message, maxHeaderBytes + 1), message.size);
    if (claims === undefined) return 'skipped';
    if (claims.keys.length === 0) return 'unsigned';
    const keys = await this.#lookups.run(['keys', ...clientPath(client)], () => this.#keysOf(claims));
    if (keys.size === 0) return 'unsigned';
    const outcome = await this.#jobs.forStranger(client, async (run) => {
      if (waiting.isOver) throw new Error('its client waited too long');
      const bytes = await startOf(message, message.size);
      const domains = [...this.#input.domains()];
      const job = { bytes, author: claims.author, keys, domains, maxReported: maxOfSubmitter };
      return run(job, [bytes.buffer]);
    });
    if ('failure' in outcome) throw new Error(outcome.reason);
    const { result } = outcome;
    return result.outcome === 'signed' ? this.#keep(result.submitter, result.reported) : result.outcome;
  }

  async #keysOf({ keys }: SignatureClaims): Promise<SigningKeys> {
    const answers = await Promise.all(keys.map((name) => this.#input.dns.lookup(name, 'TXT')));
    return new Map(keys.flatMap((name, n) => (answers[n]?.status === 'found' ? [[name, answers[n].records]] : [])));
  }

  async #keep(submitter: string, reported: readonly ReportedDomain[]): Promise<ReadResult> {
    const { document, clock } = this.#input;
    const receivedAt = new Date(clock.now()).toISOString();
    const key = ({ id, domain, from }: Pick<StoredReport, 'id' | 'domain' | 'from'>, by: string): string =>
      JSON.stringify([by, id, domain, from]);
    let result: ReadResult = 'repeated';
    await document.update(({ reports }) => {
      const known = new Set(reports.map((one) => key(one, one.submitter)));
      const fresh = reported.filter((one) => !known.has(key(one, submitter)));
      if (fresh.length > 0) result = 'read';
      const ofSubmitter = new Map<string, number>();
      const all = [...fresh.map((one) => ({ ...one, submitter, receivedAt, failures: [...one.failures] })), ...reports];
      let length = 0;
      const kept = all.filter((one) => {
        const number = (ofSubmitter.get(one.submitter) ?? 0) + 1;
        ofSubmitter.set(one.submitter, number);
        if (number <= maxOfSubmitter) length += JSON.stringify(one).length;
        return number <= maxOfSubmitter && length <= maxLength;
      });
      return { reports: kept.slice(0, maxReports) };
    });
    return result;
  }
}

/** With a buffer of its own, which can be moved to a thread. */
async function startOf(message: ReceivedMessage, most: number): Promise<Buffer<ArrayBuffer>> {
  const bytes = Buffer.allocUnsafeSlow(Math.min(most, message.size));
  let length = 0;
  for await (const chunk of message.open() as AsyncIterable<Buffer>) {
    length += chunk.copy(bytes, length);
    if (length === bytes.length) break;
  }
  return bytes.subarray(0, length);
}
