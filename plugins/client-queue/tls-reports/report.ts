import { createHash } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { type Address, parseAddress } from '../../../core/mime/address.js';
import { mailDate } from '../../../core/mime/header.js';
import type { DayOfDomain } from './tls-results.js';

/** Where a domain wants reports to go. */
export type ReportAddress =
  { readonly kind: 'mailto'; readonly address: Address } | { readonly kind: 'https'; readonly url: URL };

const maxRecord = 4000;
/** Of one domain. */
const maxAddresses = 4;
const dayMs = 86_400_000;

/** Where reports go, by the TXT records of `_smtp._tls.DOMAIN` (RFC 8460 §3): nowhere unless exactly one is valid. */
export function reportAddresses(records: readonly string[]): readonly ReportAddress[] {
  const ours = records.filter((text) => text.length <= maxRecord && /^v=TLSRPTv1\s*;/.test(text));
  const [only = ''] = ours;
  if (ours.length !== 1) return [];
  const rua = /;\s*rua\s*=\s*([^;]*)/.exec(only)?.[1] ?? '';
  return rua
    .split(',')
    .slice(0, maxAddresses)
    .flatMap((uri) => reportAddress(uri.trim()));
}

function reportAddress(uri: string): readonly ReportAddress[] {
  try {
    const [, mailbox] = /^mailto:([^?]+)/i.exec(uri) ?? [];
    if (mailbox !== undefined) return mailAddress(decodeURIComponent(mailbox));
    const url = new URL(uri);
    const isPlain = url.protocol === 'https:' && url.username === '' && url.password === '';
    return isPlain ? [{ kind: 'https', url }] : [];
  } catch {
    return [];
  }
}

/** Header fields of a report are ASCII. */
function mailAddress(text: string): readonly ReportAddress[] {
  const address = parseAddress(text);
  return address.international ? [] : [{ kind: 'mailto', address }];
}

/** A report as it is sent. */
export interface TlsReport {
  readonly id: string;
  readonly domain: string;
  /** Domain of this server's operator. */
  readonly submitter: string;
  readonly filename: string;
  /** JSON, by gzip. */
  readonly content: Buffer;
}

interface ReportInput {
  /** The day, `YYYY-MM-DD`, in UTC. */
  readonly day: string;
  readonly domain: string;
  readonly results: DayOfDomain;
  /** Contact for questions about the report. */
  readonly contact: Address;
  readonly hostname: string;
}

const idPrefix = 'tls-report-';

/** Whether a queued message is a report of this kind; the ids of other messages are made by `uniqueId`. */
export const isTlsReport = ({ uid }: { readonly uid: string }): boolean => uid.startsWith(idPrefix);

/** Id of the message that takes a report to an address: the same for the same report, so that it is sent once. */
export function reportUid(day: string, domain: string, address: string, hostname: string): string {
  const digest = createHash('sha256').update(`${domain} ${address} ${hostname}`).digest('hex').slice(0, 24);
  return `${idPrefix}${day.replaceAll('-', '')}-${digest}`;
}

/** The report about the sessions of a day (RFC 8460 §4.4); the same for the same results. */
export function tlsReport({ day, domain, results, contact, hostname }: ReportInput): TlsReport {
  const begin = Date.parse(`${day}T00:00:00Z`) / 1000;
  const end = begin + dayMs / 1000 - 1;
  const id = `${day}.${createHash('sha256').update(`${domain} ${hostname}`).digest('hex').slice(0, 24)}@${hostname}`;
  const json = {
    'organization-name': contact.domain,
    'date-range': { 'start-datetime': `${day}T00:00:00Z`, 'end-datetime': `${day}T23:59:59Z` },
    'contact-info': contact.address,
    'report-id': id,
    policies: results.policies.map(({ type, strings, mx, succeeded, failures }) => ({
      policy: {
        'policy-type': type,
        ...(strings.length > 0 && { 'policy-string': strings }),
        'policy-domain': domain,
        ...(mx.length > 0 && { 'mx-host': mx }),
      },
      summary: {
        'total-successful-session-count': succeeded,
        'total-failure-session-count': failures.reduce((sum, { count }) => sum + count, 0),
      },
      ...(failures.length > 0 && {
        'failure-details': failures.map(({ result, host, address, reason, count }) => ({
          'result-type': result,
          ...(host !== '' && { 'receiving-mx-hostname': host }),
          ...(address !== '' && { 'receiving-ip': address }),
          'failed-session-count': count,
          ...(reason !== '' && { 'failure-reason-code': reason }),
        })),
      }),
    })),
  };
  const filename = `${hostname}!${domain}!${begin}!${end}.json.gz`;
  return { id, domain, submitter: contact.domain, filename, content: gzipSync(JSON.stringify(json)) };
}

/** The report as mail (RFC 8460 §5.3). */
export function reportMail(report: TlsReport, from: Address, to: Address, date: Date): Buffer {
  const { id, domain, submitter, filename, content } = report;
  const boundary = `=_${createHash('sha256').update(`${id} ${to.address}`).digest('hex').slice(0, 40)}`;
  const lines = [
    `From: <${from.address}>`,
    `To: <${to.address}>`,
    `Date: ${mailDate(date)}`,
    `Message-ID: <tls-report.${createHash('sha256').update(`${id} ${to.address}`).digest('hex').slice(0, 24)}.${id}>`,
    `Subject: Report Domain: ${domain} Submitter: ${submitter}`,
    ` Report-ID: <${id}>`,
    `TLS-Report-Domain: ${domain}`,
    `TLS-Report-Submitter: ${submitter}`,
    'Auto-Submitted: auto-generated',
    'MIME-Version: 1.0',
    `Content-Type: multipart/report; report-type="tlsrpt"; boundary="${boundary}"`,
    '',
    `--${boundary}`,
    'Content-Type: text/plain; charset=us-ascii',
    '',
    `Report about TLS of the connections to servers of ${domain} (RFC 8460).`,
    '',
    `--${boundary}`,
    'Content-Type: application/tlsrpt+gzip',
    'Content-Transfer-Encoding: base64',
    `Content-Disposition: attachment; filename="${filename}"`,
    '',
    ...(content.toString('base64').match(/.{1,76}/g) ?? []),
    `--${boundary}--`,
    '',
  ];
  return Buffer.from(lines.join('\r\n'));
}
