import { join } from 'node:path';
import { z } from 'zod';
import { dns } from '../../core/contracts/dns.js';
import { configuration } from '../../core/contracts/server.js';
import { openDocument } from '../../core/disk/document.js';
import type { ReceivedMessage } from '../../core/pipeline/transaction.js';
import { definePlugin, next } from '../../core/plugin.js';
import { reportsEndpoint } from './http/routes.js';
import { ReportReader, StoredReports } from './reader.js';

const Options = z.strictObject({
  addresses: z
    .array(z.email().max(254).toLowerCase())
    .max(20)
    .default([])
    .describe(
      'Recipients whose mail is searched for reports, as in the record _smtp._tls of the domains. Empty: postmaster of each of `domains`.',
    )
    .meta({ examples: [['tls-reports@example.org']] }),
});
type Settings = z.output<typeof Options>;

const postmaster = 'postmaster@';

/** Longer than the reader takes, which ends by itself. */
const timeLimitMs = 20_000;

/** Reads and shows the reports that other servers send about TLS of their connections to this one (RFC 8460). */
export const tlsReports = definePlugin({
  name: 'tls-reports',
  options: Options,
  needs: { configuration, dns },
  async setup(context, { options, configuration, dns }) {
    const { clock, log, http, metrics, smtp } = context;
    let settings: Settings = options;
    const file = join(await context.folder('tls-reports'), 'reports.json');
    const document = await openDocument({ file, schema: StoredReports, initial: { reports: [] } });
    const counter = metrics.counter('tls_reports_total', 'Reports of other servers about TLS.', ['result']);
    http.mount([reportsEndpoint(() => document.data.reports)]);
    http.navigate({ title: 'TLS reports', href: '/tls-reports', order: 94, role: 'read', group: 'Admin' });
    const domains = (): readonly string[] => configuration.domains;
    const tried = (result: string): void => counter.inc({ result });
    const reader = new ReportReader({ document, dns, domains, tried, clock, log });
    context.onClose(() => reader.close());
    const isWanted = (address: string): boolean => {
      const { addresses } = settings;
      if (addresses.length > 0) return addresses.includes(address);
      return address.startsWith(postmaster) && domains().includes(address.slice(postmaster.length));
    };
    smtp.on('message', { order: 'last', timeLimitMs }, async ({ transaction, message }) => {
      const { recipients, session, id } = transaction;
      const isForUs = recipients.some(({ address }) => isWanted(address.address.toLowerCase()));
      const isRead = isForUs && session.dryRun !== true && hasReport(message);
      if (isRead) await reader.read(id, message, session.remote.address);
      return next();
    });
    return {
      reconfigure(changed: Settings) {
        settings = changed;
      },
    };
  },
});

/** RFC 8460 §5.3: the report is a part of the mail, or the whole of it. */
function hasReport({ headers }: ReceivedMessage): boolean {
  const [, type = ''] = headers.find(([name]) => name.toLowerCase() === 'content-type') ?? [];
  return /^\s*(?:multipart\/report\b.*report-type="?tlsrpt\b|application\/tlsrpt\+)/i.test(type);
}
