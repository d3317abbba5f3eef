import assert from 'node:assert/strict';
import { test } from 'node:test';
import { HttpClient } from '../support/http-client.js';
import { ServerProcess } from '../support/server-process.js';
import { SmtpClient } from '../support/smtp-client.js';
import { temporaryFolder } from '../support/temporary-folder.js';

const sessions = 10;
const rounds = 60;
const text = `Subject: large\r\n\r\n${`${'x'.repeat(78)}\r\n`.repeat(12_500)}`;

test('large messages seldom make V8 mark its whole heap', async (t) => {
  const server = await ServerProcess.start(t, { folder: await temporaryFolder(t) });
  const admin = HttpClient.admin(server.http);
  const before = await majorCollections(admin);
  await Promise.all(Array.from({ length: sessions }, () => sendMany(server.smtpPort)));
  const made = (await majorCollections(admin)) - before;
  assert.ok(made <= 16, `${made} in ${sessions * rounds} MB of mail`);
});

async function sendMany(port: number): Promise<void> {
  const client = await SmtpClient.greeted({ port });
  for (let round = 0; round < rounds; round += 1) {
    assert.equal((await client.command('MAIL FROM:<anna@example.org>')).code, 250);
    assert.equal((await client.command('RCPT TO:<postmaster@localhost>')).code, 250);
    assert.equal((await client.data(text)).code, 250);
  }
  client.close();
}

async function majorCollections(admin: HttpClient): Promise<number> {
  const { text: metrics } = await admin.request('/metrics/prometheus');
  return Number(/^nodejs_gc_duration_seconds_count\{kind="major"\} (\d+)$/m.exec(metrics)?.[1] ?? 0);
}
