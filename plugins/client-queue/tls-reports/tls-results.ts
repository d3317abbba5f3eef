import { z } from 'zod';
import type { Clock } from '../../../core/clock.js';
import { writeFileAtomic } from '../../../core/disk/atomic.js';
import { unlessMissing } from '../../../core/disk/fault.js';
import { readRegularText } from '../../../core/disk/file-layer.js';
import { allowsServer } from '../../../core/dns/mta-sts.js';
import type { Log } from '../../../core/log/log.js';
import { type Dane, tlsaText, usableTlsa } from '../../../core/net/tlsa.js';
import type { ClientTls } from '../../../core/smtp/client/dial.js';
import { type ClientFailure, isClientFailure } from '../../../core/smtp/client/failure.js';
import type { RemoteServer } from '../../../core/smtp/client/remote-server.js';
import type { KeptPolicy } from '../mta-sts/policy.js';

/** Why a session failed the policy of its domain (RFC 8460 §4.3). */
export const resultTypes = [
  'starttls-not-supported',
  'certificate-host-mismatch',
  'certificate-expired',
  'certificate-not-trusted',
  'tlsa-invalid',
  'dnssec-invalid',
  'validation-failure',
  'sts-policy-fetch-error',
  'sts-policy-invalid',
  'sts-webpki-invalid',
] as const;
export type ResultType = (typeof resultTypes)[number];

const count = z.int().min(0);
const Failure = z.strictObject({
  result: z.enum(resultTypes),
  /** Name and address of the server; both empty where many were counted together. */
  host: z.string().max(255),
  address: z.string().max(64),
  /** Code of the error; empty when the result says it all. */
  reason: z.string().max(100),
  count,
});
const Policy = z.strictObject({
  type: z.enum(['tlsa', 'sts', 'no-policy-found']),
  /** Lines of the policy. */
  strings: z.array(z.string().max(1000)).max(300),
  mx: z.array(z.string().max(255)).max(300),
  succeeded: count,
  failures: z.array(Failure),
});
const Day = z.strictObject({
  policies: z.array(Policy),
  /** Addresses that have the report already. */
  sent: z.array(z.string()).default([]),
});
const Stored = z.strictObject({ days: z.record(z.iso.date(), z.record(z.string().max(255), Day)) });

/** Sessions with the servers of a domain on one day, by the policy in force. */
export type DayOfDomain = z.output<typeof Day>;
type Counted = z.output<typeof Policy>;

/** TLS of a connection, or why it has none; undefined where the server does not offer it. */
export type TlsAgreement = ClientTls | ClientFailure | undefined;

/** The policy of a domain as a session found it. */
export interface FoundPolicy {
  readonly policy: KeptPolicy | undefined;
  /** Why there is none although the domain announces one. */
  readonly fault: ResultType | undefined;
  /** TLSA records of the server, which come before the policy. */
  readonly dane?: Dane | undefined;
}

/** Domains of a day beyond this number are not counted. */
const maxDomains = 10_000;
/** Servers with different TLSA records have one each. */
const maxPolicies = 5;
/** Of a record; digests are shorter. */
const maxRecord = 200;
/** Kinds of failures of one policy; others are counted by their type alone. */
const maxFailures = 30;

/**
 * Counts TLS sessions by day and policy domain, for reports (RFC 8460 §4). A kill takes away what was counted since the
 * last `save`.
 */
export class TlsResults {
  readonly #file: string;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #days = new Map<string, Map<string, DayOfDomain>>();
  #unsaved = false;
  #saving: Promise<void> = Promise.resolve();

  private constructor(file: string, clock: Clock, log: Log) {
    this.#file = file;
    this.#clock = clock;
    this.#log = log;
  }

  /** Reads the file; an unreadable one is logged, and counting begins anew. */
  static async open(file: string, { clock, log }: { readonly clock: Clock; readonly log: Log }): Promise<TlsResults> {
    const results = new TlsResults(file, clock, log);
    try {
      const text = await unlessMissing(readRegularText(file));
      const { days } = text === undefined ? { days: {} } : Stored.parse(JSON.parse(text));
      for (const [day, domains] of Object.entries(days)) results.#days.set(day, new Map(Object.entries(domains)));
    } catch (error) {
      log.warn({ err: error, file }, 'the counts for TLS reports cannot be read, and begin anew');
    }
    return results;
  }

  /** Counts a connection to a server of a domain. */
  record(
    domain: string,
    server: Pick<RemoteServer, 'host' | 'address'>,
    agreed: TlsAgreement,
    found: FoundPolicy,
  ): void {
    const today = new Date(this.#clock.now()).toISOString().slice(0, 10);
    const domains = this.#days.get(today) ?? new Map<string, DayOfDomain>();
    this.#days.set(today, domains);
    const day = domains.get(domain) ?? { policies: [], sent: [] };
    if (domains.size >= maxDomains && !domains.has(domain)) return;
    domains.set(domain, day);
    const counted = countedOf(day, policyOf(found));
    if (counted === undefined) return;
    this.#unsaved = true;
    const host = server.host ?? server.address;
    const failed = failureOf(agreed, found, host);
    if (failed === undefined) counted.succeeded += 1;
    else addFailure(counted, { ...failed, host, address: server.address });
  }

  /** Finished days with their domains, oldest first. */
  finished(): readonly (readonly [day: string, domain: string, results: DayOfDomain])[] {
    const today = new Date(this.#clock.now()).toISOString().slice(0, 10);
    const days = [...this.#days].filter(([day]) => day < today).toSorted(([one], [other]) => (one < other ? -1 : 1));
    return days.flatMap(([day, domains]) => [...domains].map(([domain, results]) => [day, domain, results] as const));
  }

  /** That address has the report; durable when it resolves. */
  async sent(day: string, domain: string, address: string): Promise<void> {
    this.#days.get(day)?.get(domain)?.sent.push(address);
    this.#unsaved = true;
    await this.save();
  }

  /** Nothing more is to be reported about the domain on that day. */
  remove(day: string, domain: string): void {
    const domains = this.#days.get(day);
    domains?.delete(domain);
    if (domains?.size === 0) this.#days.delete(day);
    this.#unsaved = true;
  }

  /** Writes new counts; a write error is logged, and the next call tries again. */
  save(): Promise<void> {
    this.#saving = this.#saving.then(() => this.#save());
    return this.#saving;
  }

  async #save(): Promise<void> {
    if (!this.#unsaved) return;
    this.#unsaved = false;
    const days = Object.fromEntries([...this.#days].map(([day, domains]) => [day, Object.fromEntries(domains)]));
    try {
      await writeFileAtomic(this.#file, `${JSON.stringify({ days })}\n`);
    } catch (error) {
      this.#unsaved = true;
      this.#log.warn({ err: error, file: this.#file }, 'the counts for TLS reports cannot be written down');
    }
  }
}

type ReportedPolicy = Pick<Counted, 'type' | 'strings' | 'mx'>;

function policyOf({ policy, fault, dane }: FoundPolicy): ReportedPolicy {
  if (dane !== undefined) {
    return { type: 'tlsa', strings: dane.records.map((one) => tlsaText(one).slice(0, maxRecord)).sort(), mx: [] };
  }
  if (hasPolicy(policy)) return { type: 'sts', strings: linesOf(policy), mx: [...policy.mx] };
  return { type: fault === undefined ? 'no-policy-found' : 'sts', strings: [], mx: [] };
}

/** Undefined beyond the bound of policies, which change once a day or so. */
function countedOf({ policies }: DayOfDomain, policy: ReportedPolicy): Counted | undefined {
  const { type, strings } = policy;
  const known = policies.find((one) => one.type === type && one.strings.join('\n') === strings.join('\n'));
  if (known !== undefined || policies.length >= maxPolicies) return known;
  const fresh: Counted = { ...policy, succeeded: 0, failures: [] };
  policies.push(fresh);
  return fresh;
}

const hasPolicy = (policy: KeptPolicy | undefined): policy is KeptPolicy =>
  policy !== undefined && policy.mode !== 'none';

const linesOf = ({ mode, mx, maxAge }: KeptPolicy): string[] => [
  'version: STSv1',
  `mode: ${mode}`,
  ...mx.map((name) => `mx: ${name}`),
  `max_age: ${maxAge}`,
];

function addFailure({ failures }: Counted, about: Omit<Counted['failures'][number], 'count'>): void {
  const key = ({ result, host, address, reason }: typeof about): string => [result, host, address, reason].join(' ');
  const find = (row: typeof about) => failures.find((one) => key(one) === key(row));
  const isFull = failures.length >= maxFailures && find(about) === undefined;
  const row = isFull ? { ...about, host: '', address: '', reason: '' } : about;
  const known = find(row);
  if (known === undefined) failures.push({ ...row, count: 1 });
  else known.count += 1;
}

type Failed = Pick<Counted['failures'][number], 'result' | 'reason'>;

/** Undefined for a success: TLS, and under a policy an allowed server with a valid certificate (RFC 8460 §4.3). */
function failureOf(agreed: TlsAgreement, { policy, fault, dane }: FoundPolicy, host: string): Failed | undefined {
  if (dane !== undefined) return daneFailure(agreed, dane);
  if (!hasPolicy(policy) && fault !== undefined) return { result: fault, reason: '' };
  if (agreed === undefined) return { result: 'starttls-not-supported', reason: '' };
  if (isClientFailure(agreed)) return ofFailure(agreed);
  if (!hasPolicy(policy)) return undefined;
  if (!allowsServer(policy, host)) return { result: 'validation-failure', reason: 'mx-not-in-policy' };
  return agreed.fault === null ? undefined : certificateFault(agreed.fault);
}

function daneFailure(agreed: TlsAgreement, dane: Dane): Failed | undefined {
  if (agreed === undefined) return { result: 'starttls-not-supported', reason: '' };
  if (isClientFailure(agreed)) return ofFailure(agreed);
  return usableTlsa(dane).length > 0 ? undefined : { result: 'tlsa-invalid', reason: 'unusable' };
}

function ofFailure({ kind, status, cause }: ClientFailure): Failed {
  if (kind === 'reply' || status === '4.7.4') return { result: 'starttls-not-supported', reason: '' };
  const code = cause instanceof Error ? (cause as NodeJS.ErrnoException).code : undefined;
  return certificateFault(code ?? kind);
}

const ofCode: Readonly<Record<string, ResultType>> = {
  CERT_HAS_EXPIRED: 'certificate-expired',
  DANE_NO_MATCH: 'certificate-not-trusted',
  DNSSEC_INVALID: 'dnssec-invalid',
  ERR_TLS_CERT_ALTNAME_INVALID: 'certificate-host-mismatch',
};

/** Of an error code of OpenSSL or Node.js. */
export function certificateFault(code: string): Failed {
  const isCertificate = /^(?:CERT_|UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_|INVALID_CA|PATH_LENGTH)/.test(code);
  const result = ofCode[code] ?? (isCertificate ? 'certificate-not-trusted' : 'validation-failure');
  return { result, reason: code.replace(/[^\w-]/g, '').slice(0, 100) };
}
