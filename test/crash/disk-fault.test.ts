import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { HttpClient } from '../support/http-client.js';
import { maildirMessages } from '../support/mailbox-reader.js';
import { ServerProcess } from '../support/server-process.js';
import { SmtpClient } from '../support/smtp-client.js';
import { temporaryFolder } from '../support/temporary-folder.js';
import { attachMissing, whileFailing, type DiskFault } from './disk-fault.js';
import { Ledger } from './ledger.js';

/** Faults of the system's own calls against a server that takes mail. With CI set a missing strace is a failure. */
const missing = process.env['CI'] === undefined ? attachMissing() : undefined;

const replies = { EIO: 451, EMFILE: 451, ENOSPC: 452, EDQUOT: 452, EROFS: 452 } as const;
const sentences = {
  EIO: /input\/output error/,
  ENOSPC: /full/,
  EDQUOT: /quota/,
  EROFS: /read-only/,
  EMFILE: undefined,
} as const;

/** All of them meet a small message; the first ones a large one too. */
const faults: Readonly<Record<'file' | 'log', readonly DiskFault[]>> = {
  file: [
    { call: 'writev', code: 'ENOSPC', by: 'pool' },
    { call: 'writev', code: 'EDQUOT', by: 'pool' },
    { call: 'writev', code: 'EIO', by: 'pool' },
    { call: 'openat', code: 'EMFILE', by: 'main' },
    { call: 'openat', code: 'EROFS', by: 'main' },
    { call: 'fsync', code: 'EIO', by: 'pool' },
    { call: 'fsync', code: 'EDQUOT', by: 'pool' },
    { call: 'rename', code: 'EIO', by: 'main' },
    { call: 'rename', code: 'ENOSPC', by: 'main' },
  ],
  log: [
    { call: 'writev', code: 'ENOSPC', by: 'main' },
    { call: 'writev', code: 'EDQUOT', by: 'main' },
    { call: 'writev', code: 'EIO', by: 'main' },
    { call: 'fdatasync', code: 'EIO', by: 'pool' },
    { call: 'fdatasync', code: 'EIO', by: 'pool', when: '1' },
    { call: 'fdatasync', code: 'EDQUOT', by: 'pool', when: '1' },
    { call: 'openat', code: 'EMFILE', by: 'main' },
    { call: 'openat', code: 'EROFS', by: 'main' },
    { call: 'rename', code: 'ENOSPC', by: 'main' },
    { call: 'rename', code: 'EIO', by: 'main' },
  ],
};

interface Component {
  readonly status: string;
  readonly why: string | null;
}

async function degraded(server: ServerProcess): Promise<readonly string[]> {
  const { text } = await HttpClient.admin(server.http).request('/health/extended', { accept: 'application/json' });
  const { components } = JSON.parse(text) as { readonly components: Readonly<Record<string, Component>> };
  return Object.values(components).flatMap(({ status, why }) => (status === 'up' ? [] : [why ?? 'no reason']));
}

/** Sends what the ledger makes up; the reply to its final dot, or the first one before it that is no yes. */
async function offer(port: number, ledger: Ledger) {
  const client = await SmtpClient.greeted({ port });
  try {
    const envelope = await client.pipeline(['MAIL FROM:<a@sender.example>', 'RCPT TO:<postmaster@localhost>']);
    return envelope.find(({ code }) => code !== 250) ?? (await ledger.send(client));
  } finally {
    client.close();
  }
}

/** The first reply that is no yes: strace is said to be attached a moment before it stops the first call. */
async function refusal(port: number, ledger: Ledger) {
  for (let tries = 1; ; tries += 1) {
    const reply = await offer(port, ledger);
    if (reply.code !== 250 || tries === 20) return reply;
  }
}

/** A checkpoint of the commit log that failed is tried again after twenty seconds. */
async function until(holds: () => Promise<boolean>, what: string): Promise<void> {
  for (let tries = 0; tries < 1200; tries += 1) {
    if (await holds()) return;
    await pause(50);
  }
  throw new Error(`never: ${what}`);
}

/** Counts after a kill and one more start: what got a 250 is there once; what did not, only where the log has a doubt. */
async function account(
  server: ServerProcess,
  folder: string,
  config: string,
  ledger: Ledger,
  t: Parameters<typeof temporaryFolder>[0],
): Promise<void> {
  await server.kill('SIGKILL');
  const next = await ServerProcess.start(t, { folder, config });
  await next.kill('SIGTERM');
  const data = join(folder, 'data');
  const mailbox = join(data, 'mail', 'localhost', 'postmaster');
  const copies = ledger.copies(await maildirMessages(mailbox));
  assert.deepEqual(
    [...ledger.acknowledged].filter((id) => !copies.has(id)),
    [],
    'lost',
  );
  assert.deepEqual(
    [...copies].filter(([, count]) => count > 1),
    [],
    'doubled',
  );
  const logs = await Promise.all(
    (await readdir(join(data, 'logs'))).map((name) => readFile(join(data, 'logs', name), 'utf8')),
  );
  const doubts = logs.join('').split('possible duplicate').length - 1;
  const refused = [...ledger.refused].filter((id) => copies.has(id));
  assert.ok(refused.length <= doubts, `${refused.length} that were refused are there, with ${doubts} doubts`);
  assert.deepEqual(await readdir(join(mailbox, 'tmp')), []);
  assert.deepEqual(await readdir(join(data, 'spool')), []);
}

for (const durability of ['file', 'log'] as const) {
  const config = `{ durability: '${durability}', smtp: { listeners: [{ port: 0 }] } }`;

  test(
    `a disk that fails refuses mail for a while, and nothing else (${durability})`,
    { skip: missing ?? false },
    async (t) => {
      const folder = await temporaryFolder(t);
      const server = await ServerProcess.start(t, { folder, config });
      const ledger = new Ledger();
      assert.equal((await offer(server.smtpPort, ledger)).code, 250);
      for (const fault of faults[durability]) {
        const what = `${fault.call} ${fault.code} ${fault.when ?? 'always'}`;
        const failed = await whileFailing(t, server.pid, fault, async () => {
          const reply = await refusal(server.smtpPort, ledger);
          assert.equal(reply.code, replies[fault.code], `${what}: ${reply.raw}`);
          assert.doesNotMatch(reply.raw, /\/|E[A-Z]{2,}/, what);
          // Where no writev of the main thread works, no answer by HTTP comes through either.
          const isMute = fault.call === 'writev' && fault.by === 'main';
          const sentence = isMute ? undefined : sentences[fault.code];
          if (sentence !== undefined) {
            const why = await degraded(server);
            assert.ok(
              why.some((text) => sentence.test(text)),
              `${what}: ${why.join(' ')}`,
            );
            assert.ok(!why.some((text) => text.includes(folder)), why.join(' '));
          }
        });
        assert.ok(failed > 0, `${what} met no call`);
        assert.equal((await offer(server.smtpPort, ledger)).code, 250, `behind ${what}`);
        await until(async () => (await degraded(server)).length === 0, `health behind ${what}`);
      }
      await account(server, folder, config, ledger, t);
    },
  );

  test(
    `faults that come and go under load lose nothing and double nothing (${durability})`,
    { skip: missing ?? false },
    async (t) => {
      const folder = await temporaryFolder(t);
      const server = await ServerProcess.start(t, { folder, config });
      const ledger = new Ledger();
      const ending = new AbortController();
      const send = async (): Promise<void> => {
        while (!ending.signal.aborted) await ledger.sendUntilGone(server.smtpPort);
      };
      const sending = Array.from({ length: 8 }, send);
      let failed = 0;
      for (const fault of faults[durability]) {
        const when = `${randomInt(1, 6)}+${randomInt(1, 6)}`;
        failed += await whileFailing(t, server.pid, { ...fault, when }, () => pause(300));
        await ledger.more(5);
      }
      ending.abort();
      const accounted = account(server, folder, config, ledger, t);
      await Promise.all(sending);
      await accounted;
      t.diagnostic(`${failed} calls failed, ${ledger.acknowledged.size} of ${ledger.sent.size} messages got a 250`);
    },
  );
}
