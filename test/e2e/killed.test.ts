import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { Ledger } from '../crash/ledger.js';
import { HttpClient } from '../support/http-client.js';
import { behindTrace, listMessages, maildirMessages, rawMessage } from '../support/mailbox-reader.js';
import { ServerProcess } from '../support/server-process.js';
import { temporaryFolder } from '../support/temporary-folder.js';

const senders = 20;
const rounds = 4;

test('what got a 250 is there, byte for byte and once, however often the server is killed', async (t) => {
  const folder = await temporaryFolder(t);
  const ledger = new Ledger();
  for (let round = 0; round < rounds; round += 1) {
    const server = await ServerProcess.start(t, { folder });
    const sending = Array.from({ length: senders }, () => ledger.sendUntilGone(server.smtpPort));
    await ledger.more(randomInt(senders, 10 * senders));
    await server.kill('SIGKILL');
    await Promise.all(sending);
  }
  assert.ok(ledger.acknowledged.size < ledger.sent.size, 'no kill has hit a message on its way');

  const server = await ServerProcess.start(t, { folder });
  const kept = await maildirMessages(join(folder, 'data', 'mail', 'localhost', 'postmaster'));
  const copies = ledger.copies(kept);
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
