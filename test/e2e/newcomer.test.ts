import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { deliver } from '../support/delivery.js';
import { HttpClient } from '../support/http-client.js';
import { behindTrace, listMessages, rawMessage } from '../support/mailbox-reader.js';
import { findPeer, skipWithout } from '../support/peers.js';
import { ServerProcess } from '../support/server-process.js';
import { temporaryFolder } from '../support/temporary-folder.js';

const message = [
  'From: "Anna" <anna@example.org>',
  'To: postmaster@localhost',
  'Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?= & <b>hello</b>',
  'Message-ID: <first@example.org>',
  'Date: Fri, 20 Nov 2026 10:00:00 +0100',
  '',
  'It works.',
  '.a line that begins with a dot',
  'trailing space \t',
  '',
  '',
].join('\r\n');

test('a newcomer starts the server, sends mail and reads it', async (t) => {
  const folder = await temporaryFolder(t);
  const server = await ServerProcess.start(t, { folder, env: {} });
  const [, password = ''] = await server.find(/Password\s+(\S+)/);

  assert.match(server.output, /^ {2}Sign in as\s+admin$/m);
  assert.match(server.output, new RegExp(`Pages\\s+${server.http}/`));
  assert.match(server.http, /^http:\/\/127\.0\.0\.1:\d+$/);
  const admin = HttpClient.admin(server.http, password);
  assert.deepEqual(await listMessages(admin), [], 'the first start puts no message into the mailbox');

  await deliver(server.smtpPort, message);

  const [listed, ...others] = await listMessages(admin);
  assert.ok(listed !== undefined);
  assert.deepEqual(others, []);
  assert.equal(listed.internetMessageId, '<first@example.org>');
  assert.equal(listed.unread, true);
  const raw = await rawMessage(admin, listed.id);
  assert.deepEqual(behindTrace(raw), Buffer.from(message));
  assert.equal(listed.size, raw.length);
  const list = await admin.page('/store/localhost/postmaster/folders/INBOX');
  assert.match(list, /&lt;b&gt;hello&lt;\/b&gt;/);
  const page = await admin.page(`/store/localhost/postmaster/folders/INBOX/messages/${encodeURIComponent(listed.id)}`);
  assert.match(page, /It works\./);

  await t.test('the password is stored as a hash and is not in the log', async () => {
    for (const name of await readdir(join(folder, 'data'), { recursive: true, withFileTypes: true })) {
      if (!name.isFile()) continue;
      assert.ok(!(await readFile(join(name.parentPath, name.name), 'utf8')).includes(password), name.name);
    }
  });

  await t.test('after a restart the password and the mail are the same, and nothing is shown again', async (t) => {
    assert.deepEqual(await server.kill('SIGTERM'), { code: 0, signal: null });
    const again = await ServerProcess.start(t, { folder, env: {} });
    await again.find(/Try it/);
    assert.doesNotMatch(again.output, /Password/);
    const messages = await listMessages(HttpClient.admin(again.http, password));
    assert.deepEqual(
      messages.map(({ id }) => id),
      [listed.id],
    );
  });
});

test('an empty folder without any configuration is enough', async (t) => {
  const folder = await temporaryFolder(t);
  const server = await ServerProcess.start(t, { folder, config: null, env: {} });
  await server.find(/Settings\s+defaults/);
  assert.deepEqual(await readdir(folder), ['data']);
});

test('swaks sends a message that is listed', { skip: skipWithout('swaks') }, async (t) => {
  const folder = await temporaryFolder(t);
  const server = await ServerProcess.start(t, { folder });
  const swaks = findPeer('swaks') ?? 'swaks';

  const session = `--server 127.0.0.1:${server.smtpPort} --from swaks@example.org --to postmaster@localhost`;
  const content = ['--header', 'Subject: sent by swaks', '--body', 'one\n.two\n'];
  const { stdout } = await promisify(execFile)(swaks, [...session.split(' '), ...content]);

  assert.match(stdout, /<- {2}250 2\.\d\.\d .*\n.*QUIT/);
  const messages = await listMessages(HttpClient.admin(server.http));
  assert.deepEqual(
    messages.map(({ subject }) => subject),
    ['sent by swaks'],
  );
});
