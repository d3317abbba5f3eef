import assert from 'node:assert/strict';
import { open, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { skipWithoutRoot } from '../support/account.js';
import { deliver } from '../support/delivery.js';
import { HttpClient } from '../support/http-client.js';
import { listMessages } from '../support/mailbox-reader.js';
import { ServerProcess } from '../support/server-process.js';
import { SmallDisk } from '../support/small-disk.js';
import { SmtpClient } from '../support/smtp-client.js';
import { temporaryFolder } from '../support/temporary-folder.js';
import { until, untilTrue } from '../support/until.js';

const config = `{
  smtp: { listeners: [{ mode: 'mx', port: 0 }] },
  plugins: { 'client-queue': { housekeepingInterval: 1 } },
}`;
const mail = 'Subject: small\r\n\r\nHello.\r\n';

/** The code of the reply that ends a transaction. */
async function codeOfMail(port: number, to = 'postmaster@localhost'): Promise<number> {
  const client = await SmtpClient.greeted({ port });
  for (const line of ['MAIL FROM:<a@far.example>', `RCPT TO:<${to}>`]) {
    const { code } = await client.command(line);
    if (code >= 400) return code;
  }
  return (await client.data(mail)).code;
}

async function fill(path: string): Promise<void> {
  const file = await open(path, 'w');
  const piece = Buffer.alloc(4096);
  try {
    for (;;) await file.write(piece);
  } catch {
    // It is full.
  } finally {
    await file.close();
  }
}

async function troubles(admin: HttpClient): Promise<string> {
  const { text } = await admin.request('/health/extended', { accept: 'application/json' });
  const { components } = JSON.parse(text) as {
    components: Record<string, { status: string; why: string | null }>;
  };
  return Object.entries(components)
    .filter(([, { status }]) => status !== 'up')
    .map(([name, { why }]) => `${name}: ${why ?? ''}`)
    .join('\n');
}

describe('F-R24: a start where nothing can be written', { skip: skipWithoutRoot('a file system is mounted') }, () => {
  for (const mode of ['full', 'read-only'] as const) {
    test(`a ${mode} disk: pages and mail are there, mail is refused for now, and all is well when it can be written`, async (t) => {
      const folder = await temporaryFolder(t);
      const disk = await SmallDisk.mount(t, folder, 'data', 128);
      const first = await ServerProcess.start(t, { folder, config });
      await deliver(first.smtpPort, mail);
      await deliver(first.smtpPort, mail);
      await first.kill('SIGKILL');
      const ballast = join(disk.path, 'logs', 'ballast');
      if (mode === 'full') await fill(ballast);
      else await disk.readOnly();

      const server = await ServerProcess.start(t, { folder, config });
      const admin = HttpClient.admin(server.http);
      const [message] = await listMessages(admin);
      assert.equal((await listMessages(admin)).length, 2);
      assert.equal(await codeOfMail(server.smtpPort), 452);
      assert.match(await troubles(admin), mode === 'full' ? /full|free|ENOSPC/ : /read-only|EROFS/);
      if (mode === 'full') {
        const json = { folder: 'INBOX', messageIds: [message?.id], permanent: true };
        await admin.json('/store/localhost/postmaster/messages/delete', { json });
        assert.equal((await listMessages(admin)).length, 1);
        await rm(ballast);
      } else await disk.writable();
      await untilTrue('mail again', async () => (await codeOfMail(server.smtpPort)) === 250);
      await until('the lock', () => stat(join(disk.path, 'postern.lock')).then(Boolean, () => undefined));
      // A checkpoint that failed is tried again every 20 s.
      const end = performance.now() + 40_000;
      let still = await troubles(admin);
      while (/^(?:queue|spool):/m.test(still) && performance.now() < end) {
        await pause(500);
        still = await troubles(admin);
      }
      assert.doesNotMatch(still, /^(?:queue|spool):/m);
      assert.deepEqual(await server.kill('SIGTERM'), { code: 0, signal: null });
    });
  }

  for (const mebibytes of [1, 4, 8]) {
    test(`a disk of ${mebibytes} MiB: the server starts, says what is wrong and refuses mail for now`, async (t) => {
      const folder = await temporaryFolder(t);
      await SmallDisk.mount(t, folder, 'data', mebibytes);
      const server = await ServerProcess.start(t, { folder, config });
      const admin = HttpClient.admin(server.http);
      assert.equal(await codeOfMail(server.smtpPort), 452);
      assert.match(await troubles(admin), /almost full|cannot be written|free/);
      await admin.page('/client/queue/list');
      assert.deepEqual(await server.kill('SIGTERM'), { code: 0, signal: null });
      const again = await ServerProcess.start(t, { folder, config });
      assert.equal(await codeOfMail(again.smtpPort), 452);
    });
  }
});
