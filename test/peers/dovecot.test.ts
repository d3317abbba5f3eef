import assert from 'node:assert/strict';
import { randomBytes, randomInt } from 'node:crypto';
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { giveTo, isRoot, mailAccount } from '../support/account.js';
import { deliver, lines } from '../support/delivery.js';
import { Dovecot } from '../support/dovecot.js';
import { suiteEnding } from '../support/ending.js';
import { HttpClient } from '../support/http-client.js';
import { ImapClient, type FetchedMessage } from '../support/imap-client.js';
import { behindTrace, listMessages, rawMessage } from '../support/mailbox-reader.js';
import { skipWithout } from '../support/peers.js';
import { ServerProcess } from '../support/server-process.js';
import { SmtpClient } from '../support/smtp-client.js';
import { temporaryFolder } from '../support/temporary-folder.js';

const suite = suiteEnding();
const skip = skipWithout('dovecot') || (isRoot() && skipWithout('setpriv'));
const senders = 6;
const messagesEach = 60;
const readers = 3;

function compose(): { readonly id: string; readonly text: string } {
  const id = `<${randomBytes(9).toString('hex')}@sender.example>`;
  const body = Array.from({ length: randomInt(1, 200) }, (_, n) => `${'.'.repeat(n % 3)}line ${n} of ${id}`);
  return { id, text: lines('From: a@sender.example', `Subject: ${body.length}`, `Message-ID: ${id}`, '', ...body) };
}

const idOf = (bytes: Buffer): string => /^Message-ID: (\S+)/m.exec(bytes.toString('latin1'))?.[1] ?? 'none';

/** Sends its messages in one session, and tells each that got a 250. */
async function send(port: number, accepted: (id: string, text: string) => void): Promise<void> {
  const client = await SmtpClient.greeted({ port });
  for (let n = 0; n < messagesEach; n += 1) {
    const { id, text } = compose();
    await client.pipeline(['MAIL FROM:<a@sender.example>', 'RCPT TO:<postmaster@localhost>']);
    assert.equal((await client.data(text)).code, 250);
    accepted(id, text);
  }
  client.close();
}

/** Takes what is new in INBOX again and again, and marks some of it, until `enough`; every message that it saw, in order. */
async function poll(port: number, enough: (seen: number) => boolean): Promise<readonly FetchedMessage[]> {
  const client = await ImapClient.open(port, 'postmaster@localhost');
  await client.command('SELECT INBOX');
  const seen: FetchedMessage[] = [];
  const flags = ['\\Flagged', '\\Answered', '\\Seen', '\\Deleted', '$Forwarded'];
  while (!enough(seen.length)) {
    const newest = seen.at(-1)?.uid ?? 0;
    const found = await client.fetch(`UID FETCH ${newest + 1}:* (UID FLAGS RFC822.SIZE BODY.PEEK[])`);
    // `n:*` names the newest message even when its number is below n (RFC 3501 §6.4.8).
    const fresh = found.filter(({ uid, body }) => uid > newest && body !== undefined);
    seen.push(...fresh);
    for (const { uid } of fresh.slice(-4)) {
      const sign = randomInt(2) === 0 ? '+' : '-';
      await client.command(`UID STORE ${uid} ${sign}FLAGS (${flags[randomInt(flags.length)] ?? ''})`);
    }
    await client.command('NOOP');
  }
  await client.logout();
  return seen;
}

describe('a mailbox that Dovecot serves by IMAP', { skip }, () => {
  let folder = '';
  let server: ServerProcess;
  let dovecot: Dovecot;
  let admin: HttpClient;
  const maildir = () => join(folder, 'data', 'mail', 'localhost', 'postmaster');

  before(async () => {
    const account = mailAccount();
    folder = await temporaryFolder(suite);
    await giveTo(account, folder);
    server = await ServerProcess.start(suite, { folder, launcher: account.launcher });
    admin = HttpClient.admin(server.http);
    dovecot = await Dovecot.start(suite, { mailRoot: join(folder, 'data', 'mail'), account });
  });

  test('keeps the id of a message that Dovecot moves, and shows the flags that a client sets', async () => {
    await deliver(server.smtpPort, lines('Subject: moved', '', 'once'));
    const [arrived] = await listMessages(admin);
    assert.ok(arrived);
    assert.equal(arrived.unread, true);
    const raw = await rawMessage(admin, arrived.id);

    const client = await ImapClient.open(dovecot.port, 'postmaster@localhost');
    await client.command('SELECT INBOX');
    assert.deepEqual(await readdir(join(maildir(), 'new')), [], 'Dovecot has moved it to cur');
    const [seen] = await client.fetch('FETCH 1 (UID RFC822.SIZE BODY.PEEK[])');
    assert.equal(seen?.size, raw.length);
    assert.deepEqual(seen.body, raw);
    assert.deepEqual(await rawMessage(admin, arrived.id), raw);

    await client.command('STORE 1 +FLAGS (\\Seen \\Flagged \\Answered)');
    assert.deepEqual(
      (await listMessages(admin)).map(({ id, unread, flagged, answered }) => ({ id, unread, flagged, answered })),
      [{ id: arrived.id, unread: false, flagged: true, answered: true }],
    );
    await client.command('STORE 1 -FLAGS (\\Seen \\Flagged)');
    assert.deepEqual(
      (await listMessages(admin)).map(({ id, unread, flagged, answered }) => ({ id, unread, flagged, answered })),
      [{ id: arrived.id, unread: true, flagged: false, answered: true }],
    );
    assert.deepEqual(await rawMessage(admin, arrived.id), raw);

    await client.command('STORE 1 +FLAGS (\\Deleted)');
    await client.command('EXPUNGE');
    assert.deepEqual(await listMessages(admin), [], 'what a client expunges is gone');
    await client.logout();
  });

  test('shows every message once and whole to clients that poll and set flags while mail comes in', async (t) => {
    const sent = new Map<string, string>();
    const expected = senders * messagesEach;
    const sending = Array.from({ length: senders }, () => send(server.smtpPort, (id, text) => sent.set(id, text)));
    const stopAt = performance.now() + 30_000;
    const enough = (seen: number) => seen >= expected || performance.now() > stopAt;
    const polls = Array.from({ length: readers }, () => poll(dovecot.port, enough));
    await Promise.all(sending);
    assert.equal(sent.size, expected);

    for (const seen of await Promise.all(polls)) {
      assert.deepEqual(seen.map(({ body }) => idOf(body ?? Buffer.alloc(0))).sort(), [...sent.keys()].sort());
      for (const { body, size } of seen) {
        assert.ok(body);
        assert.equal(size, body.length);
        assert.equal(behindTrace(body).toString('latin1'), sent.get(idOf(body)));
      }
    }
    const listed = await listMessages(admin);
    assert.deepEqual(
      listed.map(({ internetMessageId }) => internetMessageId ?? 'none').sort(),
      [...sent.keys()].sort(),
    );
    t.diagnostic(`${expected} messages, ${readers} clients`);
  });

  test('has the size in the name of every file, and Dovecot complains about nothing', async () => {
    const files = (await Promise.all(['new', 'cur'].map((part) => pathsIn(join(maildir(), part))))).flat();
    assert.equal(files.length, senders * messagesEach);
    for (const file of files) {
      const { size } = await stat(file);
      assert.match(file, new RegExp(`,S=${size},W=${size}(?::2,|$)`));
    }
    assert.deepEqual(await dovecot.complaints(), []);
  });
});

const pathsIn = async (folder: string): Promise<readonly string[]> =>
  (await readdir(folder)).map((name) => join(folder, name));
