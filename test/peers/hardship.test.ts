import assert from 'node:assert/strict';
import { mkdir, readdir, rm, statfs, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { skipWithoutRoot } from '../support/account.js';
import { deliver, lines } from '../support/delivery.js';
import type { Ending } from '../support/ending.js';
import { HttpClient } from '../support/http-client.js';
import { behindTrace, listMessages, maildirMessages, rawMessage } from '../support/mailbox-reader.js';
import { ServerProcess } from '../support/server-process.js';
import { SmallDisk } from '../support/small-disk.js';
import { SmtpClient, type ReceivedReply } from '../support/smtp-client.js';
import { temporaryFolder } from '../support/temporary-folder.js';

const mebibyte = 1024 * 1024;
/** A full machine may take its time over a large message. */
const timeoutMs = 60_000;
const listeners = `listeners: [{ port: 0 }]`;

interface Component {
  readonly status: string;
  readonly why: string | null;
}

async function componentsOf(admin: HttpClient): Promise<Readonly<Record<string, Component>>> {
  // Of a disk that is full it is 503, with the same words.
  const { text } = await admin.request('/health/extended', { accept: 'application/json' });
  return (JSON.parse(text) as { readonly components: Readonly<Record<string, Component>> }).components;
}

/** Offers one message; the first reply that is not the good one, else the reply to the final dot. */
async function offer(port: number, text: string): Promise<ReceivedReply> {
  const client = await SmtpClient.greeted({ port, timeoutMs });
  try {
    const replies = await client.pipeline(['MAIL FROM:<a@sender.example>', 'RCPT TO:<postmaster@localhost>']);
    return replies.find(({ code }) => code !== 250) ?? (await client.data(text));
  } finally {
    client.close();
  }
}

async function until(holds: () => Promise<boolean>, what: string): Promise<void> {
  for (let tries = 0; tries < 300; tries += 1) {
    if (await holds()) return;
    await pause(100);
  }
  throw new Error(`never: ${what}`);
}

/** Each message that lies in the mailbox is one of those that got a 250, whole, and there is nothing else. */
async function assertKept(data: string, accepted: readonly string[]): Promise<void> {
  const kept = await maildirMessages(join(data, 'mail', 'localhost', 'postmaster'));
  assert.deepEqual(kept.map((raw) => behindTrace(raw).toString()).toSorted(), accepted.toSorted());
  assert.deepEqual(await readdir(join(data, 'mail', 'localhost', 'postmaster', 'tmp')), []);
}

const large = (n: number, bytes: number) =>
  lines(`Subject: number ${n}`, '', ...Array(Math.ceil(bytes / 66)).fill(`${n}`.padEnd(64, '.')));

describe('a data folder on a small disk', { skip: skipWithoutRoot('a file system is mounted') }, () => {
  /** A server whose data folder is a file system of its own. */
  async function started(t: Ending, mebibytes: number, durability: 'file' | 'log', plugins = '{}') {
    const folder = await temporaryFolder(t);
    const disk = await SmallDisk.mount(t, folder, 'data', mebibytes);
    // A file system with a file that is open for writing cannot be made read-only: the queue keeps its journal open.
    await mkdir(join(folder, 'logs'));
    await symlink('../logs', join(disk.path, 'logs'));
    const server = await ServerProcess.start(t, {
      folder,
      config: `{ durability: '${durability}', smtp: { ${listeners} }, plugins: ${plugins} }`,
    });
    return { disk, server, admin: HttpClient.admin(server.http) };
  }

  for (const durability of ['file', 'log'] as const) {
    test(`refuses mail for a while when it is full, and takes it again when there is room (${durability})`, async (t) => {
      // The log and the journal of the queue take their room in advance.
      const { disk, server, admin } = await started(t, durability === 'log' ? 72 : 40, durability);
      const accepted: string[] = [];
      let refused: ReceivedReply | undefined;
      for (let n = 0; refused === undefined && n < 40; n += 1) {
        const text = large(n, 2 * mebibyte);
        const reply = await offer(server.smtpPort, text);
        if (reply.code === 250) accepted.push(text);
        else refused = reply;
      }
      assert.ok(accepted.length > 3, `${accepted.length} were taken`);
      assert.deepEqual([refused?.code, refused?.status], [452, '4.3.1']);
      assert.doesNotMatch(refused?.raw ?? '', /\/|ENOSPC/);
      await assertKept(disk.path, accepted);

      // What no reserve keeps free: another program takes the rest of the disk.
      const { bavail, bsize } = await statfs(disk.path);
      await writeFile(join(disk.path, 'ballast'), Buffer.alloc(bavail * bsize)).catch((error: unknown) => {
        // The server has taken some of it meanwhile.
        if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
      });
      const reply = await offer(server.smtpPort, large(100, 1000));
      assert.deepEqual([reply.code, reply.status], [452, '4.3.1']);
      const { spool } = await componentsOf(admin);
      assert.equal(spool?.status, 'degraded');
      assert.match(spool.why ?? '', /full/);
      assert.equal((await listMessages(admin)).length, accepted.length, 'what is there can be read');
      await assertKept(disk.path, accepted);

      await rm(join(disk.path, 'ballast'));
      const mailbox = join(disk.path, 'mail', 'localhost', 'postmaster', 'new');
      for (const name of await readdir(mailbox)) await rm(join(mailbox, name));
      await until(async () => (await offer(server.smtpPort, lines('Subject: again', '', 'room'))).code === 250, 'room');
      await until(async () => (await componentsOf(admin))['spool']?.status === 'up', 'the spool is up');
      assert.ok((await listMessages(admin)).every(({ subject }) => subject === 'again'));
    });
  }

  test('that is read-only refuses mail for a while, and what is there can be read', async (t) => {
    const { disk, server, admin } = await started(t, 64, 'file', "{ 'client-queue': false }");
    const text = lines('Subject: before', '', 'kept');
    await deliver(server.smtpPort, text);

    await disk.readOnly();
    for (const size of [100, 300_000]) {
      const reply = await offer(server.smtpPort, large(1, size));
      assert.ok([451, 452].includes(reply.code), reply.raw);
      assert.doesNotMatch(reply.raw, /\/|EROFS/);
    }
    assert.ok(
      Object.values(await componentsOf(admin)).some(
        ({ status, why }) => status === 'degraded' && /read-only/.test(why ?? ''),
      ),
    );
    const [listed] = await listMessages(admin);
    assert.equal(behindTrace(await rawMessage(admin, listed?.id ?? '')).toString(), text);

    await disk.writable();
    await until(async () => (await offer(server.smtpPort, text)).code === 250, 'it can be written');
    await until(
      async () =>
        Object.values(await componentsOf(admin)).every(
          ({ status, why }) => status === 'up' || !/read-only/.test(why ?? ''),
        ),
      'health is well again',
    );
    await assertKept(disk.path, [text, text]);
  });
});

describe('a process that may open few files', () => {
  /** With fewer, not even the modules of the program can be read. */
  const files = 240;

  test('sheds the sessions beyond, takes the mail of the others and recovers', async (t) => {
    const folder = await temporaryFolder(t);
    const server = await ServerProcess.start(t, {
      folder,
      config: `{ smtp: { ${listeners} } }`,
      launcher: ['sh', '-c', `ulimit -n ${files}; exec "$@"`, 'sh'],
    });
    const sessions = await Promise.all(Array.from({ length: 3 * files }, () => greetedOrShed(server.smtpPort)));
    const open = sessions.filter((session) => session !== undefined);
    assert.ok(open.length > 0 && open.length < files, `${open.length} sessions`);

    const accepted: string[] = [];
    const texts = open.map((_, n) => large(n, 1000));
    const replies = await Promise.all(open.map((client, n) => offerIn(client, texts[n] ?? '')));
    for (const [n, reply] of replies.entries()) {
      if (reply?.code === 250) accepted.push(texts[n] ?? '');
      else assert.ok(reply === undefined || (reply.code >= 400 && reply.code < 500), reply?.raw);
    }
    for (const client of open) client.close();

    const after = large(1000, 300_000);
    await until(
      async () => (await offer(server.smtpPort, after).catch(() => undefined))?.code === 250,
      'it takes mail',
    );
    await assertKept(join(folder, 'data'), [...accepted, after]);
    assert.equal((await listMessages(HttpClient.admin(server.http))).length, accepted.length + 1);
    assert.deepEqual(await server.kill('SIGTERM'), { code: 0, signal: null });
  });

  /** A session that got its greeting; undefined for one that was turned away. */
  async function greetedOrShed(port: number): Promise<SmtpClient | undefined> {
    try {
      const client = await SmtpClient.connect({ port });
      const { code, raw } = await client.readReply();
      if (code === 220) return client;
      assert.equal(code, 421, raw);
      client.close();
    } catch {
      // Closed without a word: there was no descriptor to say one with.
    }
    return undefined;
  }

  /** Undefined when the session ended. */
  async function offerIn(client: SmtpClient, text: string): Promise<ReceivedReply | undefined> {
    try {
      await client.command('EHLO client.example');
      const replies = await client.pipeline(['MAIL FROM:<a@sender.example>', 'RCPT TO:<postmaster@localhost>']);
      return replies.find(({ code }) => code !== 250) ?? (await client.data(text));
    } catch {
      return undefined;
    }
  }
});
