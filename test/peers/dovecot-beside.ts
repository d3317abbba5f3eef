import assert from 'node:assert/strict';
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { giveTo, mailAccount } from '../support/account.js';
import { Dovecot } from '../support/dovecot.js';
import type { Ending } from '../support/ending.js';
import { HttpClient } from '../support/http-client.js';
import { ImapClient } from '../support/imap-client.js';
import { listMessages } from '../support/mailbox-reader.js';
import { ServerProcess } from '../support/server-process.js';
import { temporaryFolder } from '../support/temporary-folder.js';
import { type Found, Ledger, tokenOf } from './dovecot-ledger.js';
import { mailbox, storm, type StormFixture, user } from './dovecot-storm.js';

/** As the API says it, and in the modified UTF-7 of RFC 3501 §5.1.3. */
const folders = [
  ['INBOX', 'INBOX'],
  ['Projekte', 'Projekte'],
  ['Projekte.Entwürfe & Pläne', 'Projekte.Entw&APw-rfe &- Pl&AOQ-ne'],
  ['日本語', '&ZeVnLIqe-'],
] as const;

/** Our server and a Dovecot, both as the same user, over the same mail. */
export class BesideDovecot {
  readonly admin: HttpClient;
  readonly server: ServerProcess;
  readonly dovecot: Dovecot;
  readonly maildir: string;

  private constructor(folder: string, server: ServerProcess, dovecot: Dovecot) {
    this.server = server;
    this.dovecot = dovecot;
    this.admin = HttpClient.admin(server.http);
    this.maildir = join(folder, 'data', 'mail', 'localhost', 'postmaster');
  }

  static async start(test: Ending): Promise<BesideDovecot> {
    const account = mailAccount();
    const folder = await temporaryFolder(test);
    await giveTo(account, folder);
    const server = await ServerProcess.start(test, { folder, launcher: account.launcher });
    const dovecot = await Dovecot.start(test, { mailRoot: join(folder, 'data', 'mail'), account });
    return new BesideDovecot(folder, server, dovecot);
  }

  imap(): Promise<ImapClient> {
    return ImapClient.open(this.dovecot.port, user);
  }

  /** UIDVALIDITY of a folder (RFC 3501 §2.3.1.1). */
  async validity(imapName: string): Promise<string> {
    const client = await this.imap();
    const [status] = await client.command(`STATUS "${imapName}" (UIDVALIDITY)`);
    await client.logout();
    return /UIDVALIDITY (\d+)/.exec(status?.text ?? '')?.[1] ?? 'none';
  }

  /** All messages of a folder as a mail client reads them, each with the size that it was told. */
  async read(imapName: string): Promise<readonly Found[]> {
    const client = await this.imap();
    await client.command(`SELECT "${imapName}"`);
    const all = await client.fetch('UID FETCH 1:* (UID FLAGS RFC822.SIZE BODY.PEEK[])');
    await client.logout();
    return all.map(({ body, size }) => {
      assert.ok(body);
      assert.equal(body.length, size);
      return { folder: imapName, token: tokenOf(body), body };
    });
  }
}

/**
 * Its sessions miss files that other sessions of it rename meanwhile, so both of these come without us, too: a message has
 * another UID afterwards, and is there.
 */
const isOurs = (complaint: string): boolean =>
  !/Warning: .*(?:dovecot-uidlist: Duplicate file entry|Expunged message reappeared, giving a new UID)/.test(complaint);

/** Runs the storm and accounts for every message. @returns a line about it @throws Error for whatever is not right */
export async function weather(test: Ending, seconds: number): Promise<string> {
  const beside = await BesideDovecot.start(test);
  const { admin, server, dovecot } = beside;
  const ledger = new Ledger();
  await admin.json(`${mailbox}/folders`, { json: { name: 'Projekte' } }, 201);
  await admin.json(`${mailbox}/folders`, { json: { name: 'Entwürfe & Pläne', parent: 'Projekte' } }, 201);
  await admin.json(`${mailbox}/folders`, { json: { name: 'Drafts' } }, 201);
  const client = await beside.imap();
  await client.command(`CREATE "${folders[3][1]}"`);
  await client.logout();
  const everywhere = [...folders, ['Drafts', 'Drafts'] as const];
  const validities = () => Promise.all(everywhere.map(([, imap]) => beside.validity(imap)));
  const before = await validities();
  const fixture: StormFixture = { admin, smtpPort: server.smtpPort, imapPort: dovecot.port, folders, ledger };
  const done = await storm(fixture, seconds);
  assert.deepEqual(await validities(), before, 'UIDVALIDITY');
  const found = (await Promise.all(everywhere.map(([, imap]) => beside.read(imap)))).flat();
  assert.deepEqual(ledger.complaints(found), []);
  for (const [api, imap] of everywhere) {
    const listed = await listMessages(admin, 'localhost/postmaster', encodeURIComponent(api));
    const tokens = listed.map(({ internetMessageId }) => tokenOf(`Message-ID: ${internetMessageId}`));
    const served = found.filter(({ folder }) => folder === imap).map(({ token }) => token);
    assert.deepEqual(tokens.toSorted(), served.toSorted(), `${api}, here and by IMAP`);
  }
  await sizesAreRight(beside.maildir);
  const complaints = await dovecot.complaints();
  assert.deepEqual(complaints.filter(isOurs), []);
  const clients = Object.entries(done).map(([kind, count]) => `${kind} ${count}`);
  return `${seconds} s: ${ledger.size} messages made, ${found.length} there; changes: ${clients.join(', ')}; new UIDs ${complaints.length}`;
}

/** Every name says the size of its file. */
async function sizesAreRight(maildir: string): Promise<void> {
  for (const entry of await readdir(maildir, { recursive: true, withFileTypes: true })) {
    const said = /,S=(\d+)/.exec(entry.name)?.[1];
    if (!entry.isFile() || said === undefined) continue;
    assert.equal((await stat(join(entry.parentPath, entry.name))).size, Number(said), entry.name);
  }
}
