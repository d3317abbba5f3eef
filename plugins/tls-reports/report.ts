import { promisify } from 'node:util';
import { gunzip } from 'node:zlib';
import { z } from 'zod';

const maxText = 300;
/** Kept of one report and domain; the others are counted. */
const maxFailures = 20;
/** Of the JSON, unpacked. A report of a large provider has some 10 KB. */
const maxBytes = 2 * 1024 * 1024;

const count = z.coerce.number().int().min(0).max(1e12);
/** Cut, and without characters that move a cursor or change the direction of text. */
const text = z.string().transform((value) =>
  value
    .slice(0, maxText)
    .replace(/[\p{C}\p{Zl}\p{Zp}]/gu, ' ')
    .trim(),
);

/** RFC 8460 §4.4; unknown keys are ignored. */
const Written = z.object({
  'organization-name': text.default(''),
  'date-range': z.object({
    'start-datetime': z.string().max(50).transform(time),
    'end-datetime': z.string().max(50).transform(time),
  }),
  'report-id': text,
  policies: z
    .array(
      z.object({
        policy: z.object({ 'policy-domain': text }),
        summary: z.object({ 'total-successful-session-count': count, 'total-failure-session-count': count }),
        'failure-details': z
          .array(
            z.object({
              'result-type': text,
              'receiving-mx-hostname': text.nullish(),
              'failed-session-count': count,
              'failure-reason-code': text.nullish(),
            }),
          )
          .max(10_000)
          .nullish(),
      }),
    )
    .max(1000),
});

/** What a report says of one of its policy domains, all policies together. */
export interface ReportedDomain {
  readonly id: string;
  readonly organization: string;
  /** In lower case. */
  readonly domain: string;
  /** ISO 8601. */
  readonly from: string;
  readonly to: string;
  readonly succeeded: number;
  readonly failed: number;
  /** The most frequent kinds. */
  readonly failures: readonly ReportedFailure[];
}

export interface ReportedFailure {
  /** RFC 8460 §4.3. */
  readonly result: string;
  /** Name of the server; empty when the report does not say. */
  readonly host: string;
  readonly reason: string;
  readonly count: number;
}

/**
 * Reads a report within bounds.
 *
 * @throws an error with the reason
 */
export async function readReport(bytes: Uint8Array, isPacked: boolean): Promise<readonly ReportedDomain[]> {
  const json = isPacked ? await promisify(gunzip)(bytes, { maxOutputLength: maxBytes }) : bytes;
  if (json.length > maxBytes) throw new Error(`it has more than ${maxBytes} bytes`);
  const written = Written.parse(JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(json)));
  const domains = new Map<string, ReportedDomain>();
  for (const { policy, summary, 'failure-details': details } of written.policies) {
    const domain = policy['policy-domain'].toLowerCase().replace(/\.$/, '');
    const before = domains.get(domain);
    domains.set(domain, {
      id: written['report-id'],
      organization: written['organization-name'],
      domain,
      from: written['date-range']['start-datetime'],
      to: written['date-range']['end-datetime'],
      succeeded: (before?.succeeded ?? 0) + summary['total-successful-session-count'],
      failed: (before?.failed ?? 0) + summary['total-failure-session-count'],
      failures: [
        ...(before?.failures ?? []),
        ...(details ?? []).map((one) => ({
          result: one['result-type'],
          host: one['receiving-mx-hostname'] ?? '',
          reason: one['failure-reason-code'] ?? '',
          count: one['failed-session-count'],
        })),
      ],
    });
  }
  return [...domains.values()].map((one) => ({ ...one, failures: byCount(one.failures) }));
}

const byCount = (failures: readonly ReportedFailure[]): readonly ReportedFailure[] =>
  failures.toSorted((one, other) => other.count - one.count).slice(0, maxFailures);

function time(written: string, context: z.RefinementCtx): string {
  const ms = Date.parse(written);
  if (!Number.isNaN(ms)) return new Date(ms).toISOString();
  context.addIssue({ code: 'custom', message: 'is no time' });
  return z.NEVER;
}
