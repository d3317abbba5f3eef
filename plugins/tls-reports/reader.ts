import { z } from 'zod';
import type { Clock } from '../../core/clock.js';
import { withTimeout } from '../../core/concurrency.js';
import type { Dns } from '../../core/contracts/dns.js';
import type { MessageViewer } from '../../core/contracts/message-viewer.js';
import type { Document } from '../../core/disk/document.js';
import type { Log } from '../../core/log/log.js';
import { parseAddressList } from '../../core/mime/address-list.js';
import type { ReceivedMessage } from '../../core/pipeline/transaction.js';
import { readReport, type ReportedDomain } from './report.js';

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

/** What became of a mail with a report. `foreign`: it is about no local domain. */
export const readResults = ['read', 'repeated', 'unsigned', 'foreign', 'unreadable'] as const;
type ReadResult = (typeof readResults)[number];

interface ReportReaderInput {
  readonly document: Document<StoredReports>;
  readonly viewer: MessageViewer;
  readonly dns: Dns;
  /** Local domains. */
  readonly domains: () => readonly string[];
  readonly tried: (result: ReadResult) => void;
  readonly clock: Clock;
  readonly log: Log;
}

/** Of a mail, and of the report in it before it is unpacked. */
const maxMailBytes = 5 * 1024 * 1024;
const maxPackedBytes = 1024 * 1024;
const maxSignatures = 5;
/** The mail is accepted after this time in any case. */
const maxMs = 10_000;
/** Mails that are read at a time, with those that wait; of more nothing is read. */
const maxReading = 5;
const maxReports = 300;
/** Of one submitter, so that none displaces all others. */
const maxOfSubmitter = 50;

const types = { 'application/tlsrpt+gzip': true, 'application/tlsrpt+json': false } as const;
const isReportType = (type: string): type is keyof typeof types => Object.hasOwn(types, type);

/** Reads the reports of other servers about TLS of their connections to this one (RFC 8460). */
export class ReportReader {
  readonly #input: ReportReaderInput;
  #reading = 0;

  constructor(input: ReportReaderInput) {
    this.#input = input;
  }

  /** Never rejects: whatever is wrong with a report, its mail is mail. */
  async read(transaction: string, message: ReceivedMessage): Promise<void> {
    const { log, tried } = this.#input;
    if (message.size > maxMailBytes || this.#reading >= maxReading) return;
    this.#reading += 1;
    try {
      const result = await withTimeout(maxMs, this.#read(message), 'it took too long');
      tried(result);
      if (result === 'unsigned' || result === 'foreign') log.info({ transaction, result }, 'a TLS report is ignored');
    } catch (error) {
      tried('unreadable');
      log.warn({ transaction, err: error }, 'a TLS report cannot be read');
    } finally {
      this.#reading -= 1;
    }
  }

  async #read(message: ReceivedMessage): Promise<ReadResult> {
    const { viewer, domains } = this.#input;
    const { parts } = await viewer.view(message);
    const found = parts.find(({ contentType, size }) => isReportType(contentType) && size <= maxPackedBytes);
    if (found === undefined || !isReportType(found.contentType)) throw new Error('it has no part with a report');
    // A report without a signature must be ignored (RFC 8460 §3).
    const submitter = await this.#signer(message);
    if (submitter === undefined) return 'unsigned';
    const { bytes } = await viewer.part(message, found.part);
    const reported = await readReport(bytes, types[found.contentType]);
    const local = reported.filter(({ domain }) => domains().includes(domain));
    return local.length === 0 ? 'foreign' : this.#keep(submitter, local);
  }

  /** The domain with a valid signature that is the author's, or above it. */
  async #signer(message: ReceivedMessage): Promise<string | undefined> {
    const fields = (wanted: string): readonly string[] =>
      message.headers.filter(([name]) => name.toLowerCase() === wanted).map(([, value]) => value);
    const authors = fields('from').flatMap((value) => parseAddressList(value).map(({ address }) => domainOf(address)));
    if (fields('dkim-signature').length > maxSignatures) return undefined;
    // Loaded on first use: reports are rare.
    const { dkimVerify } = await import('mailauth/lib/dkim/verify.js');
    const resolver = this.#input.dns.resolve as (name: string, type: string) => Promise<string[] | string[][]>;
    const { results } = await dkimVerify(message.open(), { resolver });
    const valid = results.filter(({ status }) => status.result === 'pass').map(({ signingDomain }) => signingDomain);
    return valid
      .map((domain) => domain.toLowerCase())
      .find((domain) => authors.some((author) => author === domain || author.endsWith(`.${domain}`)));
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
      const kept = all.filter((one) => {
        const number = (ofSubmitter.get(one.submitter) ?? 0) + 1;
        ofSubmitter.set(one.submitter, number);
        return number <= maxOfSubmitter;
      });
      return { reports: kept.slice(0, maxReports) };
    });
    return result;
  }
}

const domainOf = (address: string): string => address.slice(address.lastIndexOf('@') + 1).toLowerCase();
