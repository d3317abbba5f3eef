import { join } from 'node:path';
import { readFile } from 'node:fs/promises';
import { dkimSign } from 'mailauth/lib/dkim/sign.js';
import { generateKeyPairSync } from 'node:crypto';
import { openDocument } from '../../core/disk/document.js';
import { dkimText } from '../../core/dns/mail-zone.js';
import { WorkerJobs } from '../../core/worker-jobs.js';
import { composeMessage, correspondent } from '../../plugins/store/mime/compose.js';
import { type StoredReport, StoredReports } from '../../plugins/tls-reports/reader.js';
import type { ReportJob, ReportResult } from '../../plugins/tls-reports/report-job.js';
import { openSite } from '../plugins/store/store-site.js';
import { ReadingFixture } from '../plugins/store/reading-fixture.js';
import { atEnd, type Ending } from '../support/ending.js';
import { temporaryFolder } from '../support/temporary-folder.js';
import type { HoldUpRow } from './hold-up-row.js';

const kb = 1024;
const mb = 1024 * kb;
const filled = (text: string, bytes: number): string => text.repeat(Math.ceil(bytes / text.length)).slice(0, bytes);
const times = (count: number, line: (n: number) => string): string =>
  Array.from({ length: count }, (_, n) => line(n)).join('');

const head = 'From: Anna <anna@example.org>\r\nTo: ben@example.net\r\nSubject: hello\r\n';
const words = 'ordinary <words> & more of them\r\n';
const part = (type: string, text: string): string =>
  `--b\r\nContent-Type: ${type}; name="a <file>.txt"\r\n\r\n${text}\r\n`;

/** A message of much of everything: fields, recipients, parts, text, HTML. */
const largeMessage = (): string =>
  [
    times(900, (n) => `X-${n}: ${filled('=?utf-8?q?caf=C3=A9?= <words> & ', 500)}\r\n`),
    head,
    `Cc: ${times(9000, (n) => `"Some One" <user${n}@example.net>,\r\n `)}x@example.net\r\n`,
    'Content-Type: multipart/mixed; boundary=b\r\n\r\n',
    part('text/plain', filled(`> ${words}`, mb)),
    part('text/html', filled('<p title="a">some <b>words</b></p>\r\n', 512 * kb)),
    times(900, () => part('application/octet-stream', 'x')),
    '--b--\r\n',
  ].join('');

/** Pages of a message, parsed by a thread (mailparser, sanitize-html) and rendered on the main thread (nunjucks). */
async function pageRows(ending: Ending): Promise<readonly HoldUpRow[]> {
  const fixture = await ReadingFixture.open(ending, { timeLimitMs: 60_000 });
  const id = await fixture.file(largeMessage());
  for (let n = 0; n < 50; n += 1) await fixture.file(`${head}Subject: ${filled('a <b> & ', 1000)}\r\n\r\n${words}`);
  const { operator } = await openSite(ending, fixture);
  const path = `/store/example.org/ann/folders/INBOX/messages/${encodeURIComponent(id)}`;
  const ask = (address: string, accept: string) => async () => {
    const { status } = await operator.request(address, { accept });
    if (status !== 200) throw new Error(`${address}: ${status}`);
  };
  const html = 'text/html';
  const of = 'a message of 1,000 fields, 9,000 recipients, 900 parts, 1 MB of text';
  return [
    ...(['text', 'html', 'headers', 'structure', 'raw'] as const).map((view) => ({
      what: `the page of a message (nunjucks), ${view}`,
      given: of,
      prepare: () => ask(`${path}?view=${view}`, html),
    })),
    { what: 'a message as JSON', given: of, prepare: () => ask(path, 'application/json') },
    {
      what: 'the page of a folder (nunjucks)',
      given: '50 messages with subjects of 1,000 characters',
      prepare: () => ask('/store/example.org/ann/folders/INBOX', html),
    },
  ];
}

async function reportRows(ending: Ending): Promise<readonly HoldUpRow[]> {
  const file = join(await temporaryFolder(ending), 'reports.json');
  const document = await openDocument({ file, schema: StoredReports, initial: { reports: [] } });
  const long = filled('some words ', 300);
  const failure = { result: long, host: long, reason: long, count: 1 };
  const report = (id: number): StoredReport => ({
    id: String(id),
    submitter: 'example.net',
    organization: long,
    domain: 'example.org',
    from: '2026-03-01',
    to: '2026-03-02',
    receivedAt: '2026-03-02',
    succeeded: 1,
    failed: 1,
    failures: Array.from({ length: 20 }, () => failure),
  });
  const reports = Array.from({ length: 60 }, (_, n) => report(n));
  const jobs = new WorkerJobs<ReportJob, ReportResult>(
    new URL('../../plugins/tls-reports/report-worker.js', import.meta.url),
  );
  atEnd(ending, () => jobs.close());
  const pem = generateKeyPairSync('ed25519').privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
  const mail = Buffer.from(
    `${times(7, (n) => `X-${n}: ${filled('ordinary words in a row\r\n ', 7900)}x\r\n`)}From: a@example.net\r\nContent-Type: application/tlsrpt+json\r\n\r\n${JSON.stringify({ words: filled('words ', 900 * kb) })}\r\n`,
  );
  const { signatures } = await dkimSign(mail, {
    signingDomain: 'example.net',
    selector: 's1',
    privateKey: pem,
    signatureData: [{ signingDomain: 'example.net', selector: 's1', privateKey: pem }],
  });
  const keys = new Map([['s1._domainkey.example.net', [[dkimText(pem)]]]]);
  const job = { author: 'example.net', keys, domains: ['example.org'], maxReported: 50 };
  return [
    {
      what: 'TLS reports: DKIM, gzip, JSON (mailauth, zlib), in a thread',
      given: 'a mail of 1 MB with a header of 64 KB',
      prepare: () => () => jobs.run({ ...job, bytes: Buffer.concat([Buffer.from(signatures), mail]) }),
    },
    {
      what: 'TLS reports that are kept (zod, JSON)',
      given: '1 MB of reports',
      prepare: () => () => document.update(() => ({ reports })),
    },
    {
      what: 'TLS reports that are kept, at the start',
      given: 'the same',
      prepare: () => async () => StoredReports.parse(JSON.parse(await readFile(file, 'utf8'))),
    },
  ];
}

const composed: HoldUpRow = {
  what: 'drafts and messages (nodemailer)',
  given: '1 MB of text, 1 MB of HTML, 1,000 recipients, of operators',
  isOfOperator: true,
  prepare: () => {
    const recipients = Array.from({ length: 1000 }, (_, n) => correspondent('Söme One', `user${n}@example.net`));
    const composition = {
      from: correspondent('Anna', 'anna@example.org'),
      to: recipients,
      cc: [],
      bcc: [],
      subject: filled('wörds ', 900),
      date: 'Thu, 1 Jan 1970 00:00:00 +0000',
      messageId: '<a@example.org>',
      inReplyTo: null,
      references: [],
      text: filled('wörds in a row\n', mb),
      html: filled('<p>wörds in a row</p>\n', mb),
      kept: Buffer.alloc(0),
      parts: [],
    };
    return async () => {
      for await (const piece of composeMessage(composition)) void piece;
    };
  },
};

/** What needs a server, a file or a thread. */
export async function openServerRows(ending: Ending): Promise<readonly HoldUpRow[]> {
  return [...(await pageRows(ending)), ...(await reportRows(ending)), composed];
}
