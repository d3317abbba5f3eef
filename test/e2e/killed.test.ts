import assert from 'node:assert/strict';
import { randomBytes, randomInt } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { HttpClient } from '../support/http-client.js';
import { behindTrace, listMessages, maildirMessages, rawMessage } from '../support/mailbox-reader.js';
import { ServerProcess } from '../support/server-process.js';
import { SmtpClient } from '../support/smtp-client.js';
import { temporaryFolder } from '../support/temporary-folder.js';

const senders = 20;
const rounds = 4;

/** What the senders know: every message that they have sent, and those that got a 250. */
class Ledger {
  readonly sent = new Map<string, string>();
  readonly acknowledged = new Set<string>();

  compose(): string {
    const id = `<${randomBytes(9).toString('hex')}@sender.example>`;
    const lines = Array.from({ length: randomInt(1, 400) }, (_, n) => `${'.'.repeat(n % 3)}line ${n} of ${id}`);
    const text = `From: a@sender.example\r\nSubject: ${lines.length}\r\nMessage-ID: ${id}\r\n\r\n${lines.join('\r\n')}\r\n`;
    this.sent.set(id, text);
    return text;
  }
}

const idOf = (text: string): string => /^Message-ID: (\S+)/m.exec(text)?.[1] ?? 'none';

/** Sends message after message until the server is gone. */
async function sendUntilGone(port: number, ledger: Ledger): Promise<void> {
  try {
    const client = await SmtpClient.greeted({ port });
    for (;;) {
      const text = ledger.compose();
      await client.pipeline(['MAIL FROM:<a@sender.example>', 'RCPT TO:<postmaster@localhost>']);
      const { code } = await client.data(text);
      if (code === 250) ledger.acknowledged.add(idOf(text));
    }
  } catch {
    // The connection ended: that is what this waits for.
  }
}

test('what got a 250 is there, byte for byte and once, however often the server is killed', async (t) => {
  const folder = await temporaryFolder(t);
  const ledger = new Ledger();
  for (let round = 0; round < rounds; round += 1) {
    const server = await ServerProcess.start(t, { folder });
    const sending = Array.from({ length: senders }, () => sendUntilGone(server.smtpPort, ledger));
    await pause(randomInt(100, 900));
    await server.kill('SIGKILL');
    await Promise.all(sending);
  }
  assert.ok(ledger.acknowledged.size > senders, `only ${ledger.acknowledged.size} messages got a 250`);
  assert.ok(ledger.acknowledged.size < ledger.sent.size, 'no kill has hit a message on its way');

  const server = await ServerProcess.start(t, { folder });
  const kept = await maildirMessages(join(folder, 'data', 'mail', 'localhost', 'postmaster'));
  const copies = new Map<string, number>();
  for (const raw of kept) {
    const text = behindTrace(raw).toString();
    assert.equal(text, ledger.sent.get(idOf(text)), 'no message is there in part');
    copies.set(idOf(text), (copies.get(idOf(text)) ?? 0) + 1);
  }
  const lost = [...ledger.acknowledged].filter((id) => copies.get(id) !== 1);
  assert.deepEqual(lost, []);

  const admin = HttpClient.admin(server.http);
  const listed = await listMessages(admin);
  assert.equal(listed.length, kept.length);
  assert.deepEqual(new Set(listed.map(({ internetMessageId }) => internetMessageId)), new Set(copies.keys()));
  const [newest] = listed;
  assert.ok(newest?.internetMessageId);
  const raw = await rawMessage(admin, newest.id);
  assert.equal(behindTrace(raw).toString(), ledger.sent.get(newest.internetMessageId));

  assert.deepEqual(await readdir(join(folder, 'data', 'spool')), [], 'the spool is emptied at the start');
  t.diagnostic(`${ledger.acknowledged.size} of ${ledger.sent.size} messages got a 250, ${kept.length} are there`);
});
