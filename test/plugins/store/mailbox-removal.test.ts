import assert from 'node:assert/strict';
import { access, mkdir, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { lines } from '../../support/delivery.js';
import { startInProcess } from '../../support/in-process-server.js';
import { dyingFiles } from './dying-files.js';
import { EditingFixture } from './editing-fixture.js';
import { ReadingFixture } from './reading-fixture.js';

const home = '/store/localhost/anna';
const text = lines('Subject: x', '', 'text');
const page = { accept: 'text/html', headers: { 'Sec-Fetch-Site': 'same-origin' } };
const always = () => Promise.resolve();

const isThere = (path: string): Promise<boolean> =>
  access(path).then(
    () => true,
    () => false,
  );

suite('a mailbox is removed', () => {
  test('when its user is gone: from the disk, from all lists, with a line in the audit log', async (t) => {
    const { admin, folder } = await startInProcess(t);
    const user = { username: 'anna@localhost', password: 'correct horse battery' };
    await admin.json('/users', { json: user }, 201);
    const path = join(folder, 'data', 'mail', 'localhost', 'anna');
    for (const name of ['INBOX', 'Archive']) {
      const headers = { 'Content-Type': 'message/rfc822' };
      await admin.json(`${home}/folders/${name}/messages`, { body: text, headers }, 201);
    }
    const used = await admin.request(home, { method: 'DELETE' });
    assert.equal(used.status, 409);
    assert.match(used.text, /Remove the user first/);
    assert.doesNotMatch((await admin.request(home, page)).text, /name="_method" value="DELETE"[^]*Delete mailbox/);

    await admin.json('/users/anna@localhost', { method: 'DELETE' });
    assert.match((await admin.request(home, page)).text, /Delete mailbox/);
    const asked = await admin.request(home, { ...page, form: { _method: 'DELETE' } });
    assert.match(asked.text, /Delete the mailbox anna@localhost, with 2 messages in 2 folders, permanently\?/);
    assert.ok(await isThere(path));
    const done = await admin.json(home, { method: 'DELETE' });
    assert.deepEqual(done, { mailbox: 'anna@localhost', folders: 2, messages: 2, size: 2 * text.length });
    assert.equal(await isThere(path), false);
    assert.deepEqual(await readdir(join(folder, 'data', 'mail', '.removed')), []);
    for (const method of ['GET', 'DELETE']) assert.equal((await admin.request(home, { method })).status, 404);
    const { items } = (await admin.json('/audit?action=mailbox.delete')) as {
      items: readonly Record<string, unknown>[];
    };
    assert.deepEqual(
      items.filter(({ status }) => status === 200).map(({ selector, counts }) => [selector, counts]),
      [[{ mailbox: 'anna@localhost' }, { folders: 2, messages: 2 }]],
    );

    await admin.json('/users', { json: user }, 201);
    const again = (await admin.json(home)) as { folders: readonly { total: number }[] };
    assert.deepEqual(
      again.folders.map(({ total }) => total),
      [0],
    );
  });

  test('whole or not at all, wherever the process dies; the next start removes what is left', async (t) => {
    let survived = 0;
    for (let changes = 0; ; changes++) {
      const reading = await ReadingFixture.open(t);
      await reading.makeFolder('Archive');
      for (let n = 0; n < 3; n++) await reading.file(text, { folder: n === 2 ? 'Archive' : 'INBOX' });
      const dying = dyingFiles(changes);
      const { editor, mailbox } = await EditingFixture.over(reading, { files: dying.files });
      const removed = editor.mailboxes.remove(mailbox, always).then(
        () => true,
        () => false,
      );
      const isDone = await removed;
      const aside = join(reading.root, '.removed');
      if (await isThere(reading.home)) {
        survived++;
        assert.equal(isDone, false);
        assert.equal((await readdir(join(reading.home, 'new'))).length, 2);
        assert.equal((await readdir(join(reading.pathOf('Archive'), 'new'))).length, 1);
      }
      const { editor: next } = await EditingFixture.over(reading);
      await next.mailboxes.resume();
      if (await isThere(aside)) assert.deepEqual(await readdir(aside), []);
      if (!dying.died()) break;
      assert.ok(changes < 100);
    }
    assert.ok(survived > 0);
  });

  test('without other mailboxes of the domain, and foreign files apart', async (t) => {
    const reading = await ReadingFixture.open(t);
    const other = join(reading.root, 'example.org', 'ben');
    await mkdir(join(other, 'cur'), { recursive: true });
    await mkdir(join(reading.root, '.removed', 'of-somebody'), { recursive: true });
    const { editor, mailbox } = await EditingFixture.over(reading);
    await assert.rejects(
      editor.mailboxes.remove(mailbox, () => Promise.reject(new Error('in use'))),
      /in use/,
    );
    assert.ok(await isThere(reading.home));
    await editor.mailboxes.remove(mailbox, always);
    await editor.mailboxes.resume();
    assert.deepEqual(await readdir(join(reading.root, 'example.org')), ['ben']);
    assert.deepEqual(await readdir(join(reading.root, '.removed')), ['of-somebody']);
    await assert.rejects(editor.mailboxes.remove(mailbox, always), { problem: 'not-found' });
  });
});
