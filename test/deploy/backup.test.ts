import { mapBounded } from '../../core/concurrency.js';
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cp, mkdir, readdir, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { deliver, lines } from '../support/delivery.js';
import { freePort } from '../support/free-port.js';
import { HttpClient } from '../support/http-client.js';
import { listMessages, rawMessage } from '../support/mailbox-reader.js';
import { skipWithout } from '../support/peers.js';
import { ServerProcess } from '../support/server-process.js';
import { temporaryFolder } from '../support/temporary-folder.js';
import { run } from './package-tarball.js';
import { deployFolder } from './unit-file.js';

const script = join(deployFolder, 'backup.sh');
const owned = 40;
const text = (subject: string) => lines(`Subject: ${subject}`, '', 'x'.repeat(2000));

/** What a mailbox holds: subject and whole message, by folder. */
async function contents(admin: HttpClient, mailbox: string): Promise<readonly string[]> {
  const folders = ['INBOX', 'Archive'];
  const found = await Promise.all(
    folders.map(async (folder) => {
      const messages = await listMessages(admin, mailbox, folder).catch(() => []);
      return mapBounded(messages, 32, async ({ id }) =>
        (await rawMessage(admin, id, mailbox, folder)).toString('latin1'),
      );
    }),
  );
  return found.flat().toSorted();
}

const subjectOf = (message: string): string => /^Subject: (.*)\r$/m.exec(message)?.[1] ?? '';

/** Marks, moves and delivers until it is told to stop: messages called `owned` stay in the mailbox, wherever. */
async function busy(server: ServerProcess, admin: HttpClient, stop: AbortSignal): Promise<void> {
  const store = '/store/localhost/postmaster/messages';
  for (let round = 0; !stop.aborted; round += 1) {
    const there = round % 2 === 0;
    const selection = { filter: { q: 'owned' } };
    await admin.json(`${store}/read-status`, {
      json: { folder: there ? 'INBOX' : 'Archive', action: there ? 'read' : 'unread', ...selection },
    });
    const [fromFolder, toFolder] = there ? ['INBOX', 'Archive'] : ['Archive', 'INBOX'];
    await admin.json(`${store}/move`, { json: { fromFolder, toFolder, ...selection } });
    await deliver(server.smtpPort, text(`later ${round}`));
    await deliver(server.smtpPort, text(`later for elsewhere ${round}`), 'ben@elsewhere.example');
  }
}

describe('backup.sh', { skip: skipWithout('rsync') }, () => {
  test('copies a server that is busy; what is restored has every message, user, account and waiting mail', async (t) => {
    const folder = await temporaryFolder(t);
    const config = `{
      smtp: { listeners: [{ port: 0 }], relayNetworks: ['127.0.0.0/8'] },
      plugins: { 'client-queue': { routes: { away: { mx: ['127.0.0.1'], port: ${await freePort()} } }, defaultRoute: 'away' } },
    }`;
    const server = await ServerProcess.start(t, { folder, config });
    const admin = HttpClient.admin(server.http);
    const user = { username: 'anna@localhost', password: 'correct horse battery' };
    await admin.json('/users', { json: user }, 201);
    for (let count = 0; count < owned; count += 1) await deliver(server.smtpPort, text(`owned ${count}`));
    await deliver(server.smtpPort, text('for anna'), 'anna@localhost');
    for (let count = 0; count < 10; count += 1) {
      await deliver(server.smtpPort, text(`waits ${count}`), `ben${count}@elsewhere.example`);
    }
    const before = await contents(admin, 'localhost/postmaster');
    const waiting = (await queue(admin)).map(({ uid }) => uid);
    assert.equal(waiting.length, 10);

    const stop = new AbortController();
    const load = busy(server, admin, stop.signal);
    const copy = join(folder, 'copy');
    await run(script, [join(folder, 'data'), copy]);
    const second = join(folder, 'second');
    await run(script, [join(folder, 'data'), second, copy]);
    stop.abort();
    await load;
    const after = await contents(admin, 'localhost/postmaster');
    await server.kill('SIGKILL');

    for (const made of [copy, second]) {
      const restored = await temporaryFolder(t);
      await cp(made, join(restored, 'data'), { recursive: true, preserveTimestamps: true });
      const again = await ServerProcess.start(t, { folder: restored, config });
      const then = HttpClient.admin(again.http);
      const found = await contents(then, 'localhost/postmaster');
      const kept = found.filter((message) => subjectOf(message).startsWith('owned'));
      assert.deepEqual([...new Set(kept)], before, 'every message, byte by byte');
      // A message that was moved meanwhile may be in both places, as the page says; of one that was marked there is one.
      const inInbox = (await listMessages(then)).filter(({ subject }) => subject.startsWith('owned'));
      assert.equal(new Set(inInbox.map(({ id }) => id)).size, inInbox.length);
      assert.deepEqual(
        found.filter((message) => !after.includes(message)),
        [],
        'and nothing that never was',
      );
      assert.equal((await contents(then, 'localhost/anna')).length, 1);
      assert.equal((await then.request('/users/authenticate', { json: user })).status, 200);
      const queued = new Map((await queue(then)).map(({ uid, state }) => [uid, state]));
      for (const uid of waiting) assert.match(queued.get(uid) ?? 'none', /^(?:queued|deferred|active)$/);
      const { components } = (await then.json('/health')) as { components: Record<string, { status: string }> };
      const unwell = Object.entries(components).filter(([, { status }]) => status !== 'up');
      assert.deepEqual(unwell, []);
      await deliver(again.smtpPort, text('new mail'));
      assert.deepEqual(await again.kill('SIGTERM'), { code: 0, signal: null });
    }
  });

  test('one mailbox is restored beside the others while the server runs', async (t) => {
    const folder = await temporaryFolder(t);
    const server = await ServerProcess.start(t, { folder });
    const admin = HttpClient.admin(server.http);
    await deliver(server.smtpPort, text('lost'));
    await deliver(server.smtpPort, text('kept'));
    const copy = join(folder, 'copy');
    await run(script, [join(folder, 'data'), copy]);
    const [lost] = (await listMessages(admin)).filter(({ subject }) => subject === 'lost');
    await admin.json('/store/localhost/postmaster/messages/delete', {
      json: { folder: 'INBOX', messageIds: [lost?.id], permanent: true },
    });
    // As docs/backup.md says: a folder beside the inbox gets what the copy has.
    const target = join(folder, 'data', 'mail', 'localhost', 'postmaster', '.Restored');
    for (const name of ['tmp', 'new', 'cur']) await mkdir(join(target, name), { recursive: true, mode: 0o700 });
    for (const name of ['new', 'cur']) {
      const source = join(copy, 'mail', 'localhost', 'postmaster', name);
      for (const file of await readdir(source)) await cp(join(source, file), join(target, name, file));
    }
    const subjects = (await listMessages(admin, 'localhost/postmaster', 'Restored')).map(({ subject }) => subject);
    assert.deepEqual(subjects.toSorted(), ['kept', 'lost']);
    assert.equal((await listMessages(admin)).length, 1);
  });

  test('finds a message that is renamed during the search, and continues when a mailbox is removed', async (t) => {
    const folder = await temporaryFolder(t);
    const mailbox = join(folder, 'data', 'mail', 'localhost', 'anna');
    for (const name of ['new', 'cur', '.Archive/new', '.Archive/cur']) {
      await mkdir(join(mailbox, name), { recursive: true, mode: 0o700 });
    }
    await writeFile(join(mailbox, 'cur', 'busy:2,'), 'moved all the time');
    await mkdir(join(folder, 'data', 'mail', 'localhost', 'ben', 'new'), { recursive: true, mode: 0o700 });
    await writeFile(join(folder, 'data', 'mail', 'localhost', 'ben', 'new', 'calm'), 'left alone');
    // An rsync in front of the real one: in its first three passes it is as if the message were moved just behind the reader.
    const programs = join(folder, 'programs');
    await mkdir(programs);
    const passes = join(folder, 'passes');
    await writeFile(
      join(programs, 'rsync'),
      `#!/bin/sh
echo pass >>'${passes}'
count=$(wc -l <'${passes}')
PATH=\${PATH#*:}
if [ "$count" -gt 3 ]; then exec rsync "$@"; fi
if [ "$count" = 2 ]; then rm -r '${folder}/data/mail/localhost/ben'; fi
rsync --exclude='busy*' "$@" || exit
if [ "$count" = 1 ]; then touch '${folder}/data/mail/localhost/ben/new'; fi
cd '${mailbox}' && mv cur/busy* .Archive/cur/busy-$count 2>/dev/null || mv .Archive/cur/busy* cur/busy-$count:2,
`,
      { mode: 0o755 },
    );
    const copy = join(folder, 'copy');
    await run(script, [join(folder, 'data'), copy], {
      env: { ...process.env, PATH: `${programs}:${process.env['PATH']}` },
    });
    const found = await readdir(join(copy, 'mail'), { recursive: true });
    assert.deepEqual(found.filter((path) => /\/(?:cur|new)\/./.test(path)).toSorted(), [
      'localhost/anna/.Archive/cur/busy-3',
      'localhost/ben/new/calm',
    ]);
  });

  test('keeps secrets to its user, leaves out what a start makes, works without an earlier backup, and refuses an existing target', async (t) => {
    const folder = await temporaryFolder(t);
    const data = join(folder, 'data');
    await mkdir(join(data, 'mail', 'localhost', 'a'), { recursive: true, mode: 0o700 });
    for (const name of ['spool', 'cache', 'logs', 'uploads', 'heapdumps', 'lost+found']) {
      await mkdir(join(data, name));
      await writeFile(join(data, name, 'x'), '');
    }
    for (const name of ['postern.lock', 'users.json']) await writeFile(join(data, name), '{}', { mode: 0o600 });
    const copy = join(folder, 'copy');
    assert.equal(spawnSync(script, [data, copy]).status, 0);
    assert.deepEqual((await readdir(copy)).toSorted(), ['mail', 'users.json']);
    assert.equal((await stat(copy)).mode & 0o077, 0);
    assert.equal((await stat(join(copy, 'users.json'))).mode & 0o077, 0);
    const [none, first] = [join(folder, 'yesterday'), join(folder, 'first')];
    const made = spawnSync(script, [data, first, none], { encoding: 'utf8' });
    assert.deepEqual([made.status, made.stderr], [0, `backup.sh: there is no ${none}, so everything is copied\n`]);
    assert.deepEqual((await readdir(first)).toSorted(), ['mail', 'users.json']);
    for (const words of [[data, copy], [join(folder, 'none'), join(folder, 'new')], [data]]) {
      assert.equal(spawnSync(script, words).status, 2, words.join(' '));
    }
  });
});

async function queue(admin: HttpClient): Promise<readonly { readonly uid: string; readonly state: string }[]> {
  const { items } = (await admin.json('/client/queue/list?limit=200&q=waits')) as {
    items: readonly { uid: string; state: string; subject: string }[];
  };
  return items;
}
