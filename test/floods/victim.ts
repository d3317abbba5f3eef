import { generateKeyPairSync } from 'node:crypto';
import { cp, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { hashPassword } from '../../core/auth/password.js';
import { dkimText } from '../../core/dns/mail-zone.js';
import { DnsServer } from '../support/dns-server.js';
import { freePort } from '../support/free-port.js';
import { HttpClient } from '../support/http-client.js';
import { adminPassword, ServerProcess } from '../support/server-process.js';
import { SmtpClient } from '../support/smtp-client.js';
import { temporaryFolder, type Ending } from '../support/temporary-folder.js';

/** Where the server is, and who has an account there: what flooders and the bystander are told. */
export interface Target {
  readonly httpPort: number;
  readonly httpsPort: number;
  readonly mxPort: number;
  readonly submissionPort: number;
  readonly lmtpPort: number;
  /** Ids of messages in the INBOX at `pathOfMailbox`. */
  readonly messageIds: readonly string[];
}

/** Of all accounts and mail users. */
export const password = 'the password of everybody';
const roles = ['read', 'operate', 'admin'] as const;
export type Role = (typeof roles)[number];
/** The name of the account that floods with that role. */
export const flooderOf = (role: Role): string => `flooder-${role}`;
/** Each signs in once: a password that was right a moment ago is not hashed again. */
export const visitors = Array.from({ length: 150 }, (_, n) => `visitor${n}`);
/** Whose session looks at pages. */
export const watcher = 'watcher';
/** Has the messages that are looked at. */
const mailbox = 'anna@localhost';
export const pathOfMailbox = '/store/localhost/anna';
/** Gets the mail of the bystander. */
export const quietMailbox = 'clara@localhost';
/** Gets the mail of floods. */
export const floodedMailbox = 'bruno@localhost';
export const reporter = 'sender.example';
export const reporterSelector = 's1';

const seededMessages = 300;

/** What all servers of a run begin with. */
export interface Site {
  /** To be copied. */
  readonly folder: string;
  readonly passwordHash: string;
  readonly dnsAddress: string;
  readonly messageIds: readonly string[];
}

/** Makes mailboxes and mail once, with a server that is gone afterwards. */
export async function prepareSite(ending: Ending): Promise<Site> {
  const folder = await temporaryFolder(ending);
  const { privateKey } = generateKeyPairSync('ed25519');
  const key = dkimText(privateKey.export({ type: 'pkcs8', format: 'pem' }).toString());
  const dns = await DnsServer.start(ending, { [`${reporterSelector}._domainkey.${reporter}`]: { TXT: [key] } });
  const empty = { folder, passwordHash: await hashPassword(password), dnsAddress: dns.address, messageIds: [] };
  const { server, target } = await launch(ending, empty, folder);
  const admin = HttpClient.admin(server.http);
  for (const username of [mailbox, quietMailbox, floodedMailbox]) {
    await admin.json('/users', { json: { username, password } }, 201);
  }
  await fillMailbox(target.mxPort);
  const page = (await admin.json(`${pathOfMailbox}/folders/INBOX?limit=100`)) as {
    readonly items: readonly { readonly id: string }[];
  };
  await server.kill('SIGTERM');
  return { ...empty, messageIds: page.items.map(({ id }) => id) };
}

async function fillMailbox(port: number): Promise<void> {
  const client = await SmtpClient.greeted({ port });
  for (let n = 0; n < seededMessages; n += 1) {
    await client.pipeline(['MAIL FROM:<a@client.example>', `RCPT TO:<${mailbox}>`]);
    const { raw, code } = await client.data(ordinaryMail(n));
    if (code !== 250) throw new Error(`a message was refused: ${raw}`);
  }
  client.close();
}

/** Text and HTML, as mail of people is. */
export function ordinaryMail(n: number): string {
  const paragraph = `This is sentence ${n} of somebody who writes a little about the weather. `.repeat(20);
  return [
    'From: Ann <a@client.example>',
    `Subject: Message ${n}`,
    `Message-ID: <${n}@client.example>`,
    'Date: Mon, 02 Mar 2026 10:00:00 +0000',
    'MIME-Version: 1.0',
    'Content-Type: multipart/alternative; boundary=part',
    '',
    '--part',
    'Content-Type: text/plain; charset=utf-8',
    '',
    paragraph.replaceAll('. ', '.\r\n'),
    '--part',
    'Content-Type: text/html; charset=utf-8',
    '',
    `<p>${paragraph.replaceAll('. ', '.</p>\r\n<p>')}</p>`,
    '--part--',
    '',
  ].join('\r\n');
}

/** A whole server in a process of its own, that tells how long its event loop was held. */
export class Victim {
  readonly target: Target;
  readonly #server: ServerProcess;
  readonly #record: string;
  #alive = true;

  private constructor(server: ServerProcess, target: Target, record: string) {
    this.#server = server;
    this.target = target;
    this.#record = record;
    void server.exit.then(() => (this.#alive = false));
  }

  /** With a copy of what the site begins with. */
  static async start(ending: Ending, site: Site): Promise<Victim> {
    const folder = await temporaryFolder(ending);
    await cp(site.folder, folder, { recursive: true });
    const { server, target, record } = await launch(ending, site, folder);
    return new Victim(server, target, record);
  }

  get isAlive(): boolean {
    return this.#alive;
  }

  /** Milliseconds, since that time. What it has not told yet counts until now. */
  async longestHoldSince(time: number): Promise<number> {
    const lines = (await readFile(this.#record, 'utf8')).trim().split('\n');
    const records = lines.map((line) => line.split(' ').map(Number) as [at: number, ms: number]);
    const told = records.filter(([at]) => at >= time).map(([, ms]) => ms);
    const silentMs = Date.now() - Math.max(time, records.at(-1)?.[0] ?? 0);
    return Math.max(0, ...told, this.#alive && silentMs > 1000 ? silentMs : 0);
  }

  /** The most memory that it had (VmHWM of proc(5)), in megabytes; NaN when it is gone. */
  async peakMegabytes(): Promise<number> {
    const status = await readFile(`/proc/${this.#server.pid}/status`, 'utf8').catch(() => '');
    return Number(/^VmHWM:\s+(\d+) kB$/m.exec(status)?.[1] ?? Number.NaN) / 1024;
  }

  /** The end of what it wrote, for somebody who wonders why it is gone. */
  get lastWords(): string {
    return this.#server.output.slice(-2000);
  }
}

async function launch(ending: Ending, site: Site, folder: string) {
  const httpsPort = await freePort();
  const record = join(folder, 'loop-record');
  const preload = join(folder, 'preload.cjs');
  await writeFile(record, '');
  // Loaded late, and as CommonJS, so that the server has set up its process before.
  const recorder = JSON.stringify(new URL('loop-record.js', import.meta.url).href);
  await writeFile(
    preload,
    `if (require('node:worker_threads').isMainThread) setImmediate(() => import(${recorder}));\n`,
  );
  const server = await ServerProcess.start(ending, {
    folder,
    config: configuration(site, httpsPort),
    env: {
      POSTERN_ADMIN_PASSWORD: adminPassword,
      NODE_OPTIONS: `--require=${preload}`,
      FLOODS_LOOP_RECORD: record,
    },
  });
  const target: Target = {
    httpPort: Number(new URL(server.http).port),
    httpsPort,
    mxPort: server.smtpPort,
    submissionPort: await server.portOf('submission'),
    lmtpPort: await server.portOf('lmtp'),
    messageIds: site.messageIds,
  };
  return { server, target, record };
}

/** Everything as it comes, but loopback is a network as others are. */
function configuration({ passwordHash, dnsAddress }: Site, httpsPort: number): string {
  const account = (username: string, role: Role) => ({ username, role, passwordHash });
  return JSON.stringify({
    http: {
      https: { host: '127.0.0.1', port: httpsPort },
      accounts: [
        ...roles.map((role) => account(flooderOf(role), role)),
        account(watcher, 'operate'),
        ...visitors.map((name) => account(name, 'read')),
      ],
      limits: { exemptLoopback: false },
    },
    smtp: {
      limits: { exemptLoopback: false },
      listeners: [
        { mode: 'mx', port: 0, tls: 'starttls' },
        { mode: 'submission', port: 0, tls: 'starttls', allowPlaintextAuth: true },
        { mode: 'lmtp', port: 0 },
      ],
    },
    dns: { servers: [dnsAddress] },
  });
}
