import assert from 'node:assert/strict';
import { readdir, readFile, symlink, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { type FileLayer, nodeFiles } from '../../../core/disk/file-layer.js';
import { FaultyFiles } from '../../core/spool/faulty-files.js';
import type { Ending } from '../../support/ending.js';
import { EditingFixture } from './editing-fixture.js';

const text = 'Subject: x\r\n\r\n';

suite('keywords of mail clients', () => {
  async function opened(t: Ending, lists: Readonly<Record<string, string>>, files: FileLayer = nodeFiles) {
    const fixture = await EditingFixture.open(t, { files });
    await fixture.reading.makeFolder('Work');
    for (const [folder, list] of Object.entries(lists)) {
      await writeFile(join(fixture.reading.pathOf(folder), 'dovecot-keywords'), list);
    }
    return fixture;
  }

  async function moved(fixture: EditingFixture, flags: string): Promise<string> {
    const id = await fixture.reading.file(text, { flags });
    await fixture.editor.messages.move(fixture.mailbox, fixture.folder('INBOX'), fixture.folder('Work'), [id]);
    const [name = ''] = await readdir(join(fixture.reading.pathOf('Work'), 'cur'));
    return name.slice(name.indexOf(':2,') + 3);
  }

  test('get the letters that they have in the other folder', async (t) => {
    const fixture = await opened(t, {
      INBOX: '0 $Forwarded\n1 urgent\n2 $Label1\n',
      Work: '0 $label1\n1 done\n2 $Forwarded\n',
    });
    assert.equal(await moved(fixture, 'FSacd'), 'FSac');
  });

  const listOf = (fixture: EditingFixture, folder = 'Work') =>
    readFile(join(fixture.reading.pathOf(folder), 'dovecot-keywords'), 'utf8');

  test('are added to the list of the other folder, which is replaced as a whole and without a trace of a lock', async (t) => {
    const fixture = await opened(t, { INBOX: '0 $Forwarded\n1 urgent\n2 later\n', Work: '0 done\n2 $forwarded\n' });
    assert.equal(await moved(fixture, 'FSabc'), 'FSbcd');
    assert.equal(await listOf(fixture), '0 done\n2 $forwarded\n1 urgent\n3 later\n');
    const names = await readdir(fixture.reading.pathOf('Work'));
    assert.deepEqual(names.toSorted(), ['cur', 'dovecot-keywords', 'new', 'tmp']);
    assert.equal(await listOf(fixture, 'INBOX'), '0 $Forwarded\n1 urgent\n2 later\n');
  });

  test('get a list where the other folder has none, and stay when neither has one', async (t) => {
    const fixture = await opened(t, { INBOX: '0 other\n1 urgent\n' });
    assert.equal(await moved(fixture, 'Sb'), 'Sa');
    assert.equal(await listOf(fixture), '0 urgent\n');
    assert.equal(await moved(await opened(t, { Work: '0 urgent\n' }), 'Sa'), 'S');
    assert.equal(await moved(await opened(t, {}), 'Sa'), 'Sa');
  });

  test('go where the other folder has no letter left, or Dovecot is busy with it', async (t) => {
    const full = Array.from({ length: 25 }, (_, index) => `${index} k${index}\n`).join('');
    const fixture = await opened(t, { INBOX: '0 one\n1 two\n', Work: full });
    assert.equal(await moved(fixture, 'Sab'), 'Sz');
    assert.equal(await listOf(fixture), `${full}25 one\n`);
    const busy = await opened(t, { INBOX: '0 one\n', Work: '0 two\n' });
    for (const name of ['dovecot-uidlist', 'dovecot-uidlist.lock']) {
      await writeFile(join(busy.reading.pathOf('Work'), name), '');
    }
    assert.equal(await moved(busy, 'Sa'), 'S');
    assert.equal(await listOf(busy), '0 two\n');
  });

  test('a lock that another program left is no obstacle; many messages moved at once share one list', async (t) => {
    const fixture = await opened(t, { INBOX: '0 one\n1 two\n2 three\n', Work: '0 two\n' });
    const lock = join(fixture.reading.pathOf('Work'), 'dovecot-keywords.lock');
    await writeFile(lock, '');
    await utimes(lock, 1, 1);
    await fixture.reading.makeFolder('Other');
    await writeFile(join(fixture.reading.pathOf('Other'), 'dovecot-keywords'), '0 four\n1 one\n');
    const move = async (folder: string, flags: readonly string[]) => {
      const ids = await Promise.all(flags.map((flag) => fixture.reading.file(text, { folder, flags: flag })));
      await fixture.editor.messages.move(fixture.mailbox, fixture.folder(folder), fixture.folder('Work'), ids);
    };
    await Promise.all([move('INBOX', ['Sa', 'Sb', 'Sc', 'Sabc']), move('Other', ['Sa', 'Sb', 'Sab'])]);
    const words = new Map(
      (await listOf(fixture)).split('\n').map((one) => [one.split(' ')[1], Number(one.split(' ')[0])]),
    );
    assert.equal(words.size, 5, await listOf(fixture));
    const letter = (word: string) => String.fromCharCode(97 + (words.get(word) ?? 0));
    const expected = [['one'], ['two'], ['three'], ['one', 'two', 'three'], ['four'], ['one'], ['four', 'one']];
    const names = await readdir(join(fixture.reading.pathOf('Work'), 'cur'));
    assert.deepEqual(
      names.map((name) => name.slice(name.indexOf(':2,') + 3)).toSorted(),
      expected.map((keywords) => `S${keywords.map(letter).toSorted().join('')}`).toSorted(),
    );
  });

  test('are left out, each message is moved, and nothing stays open, when the list cannot be written', async (t) => {
    const files = new FaultyFiles();
    const fixture = await opened(t, { INBOX: '0 one\n1 two\n', Work: '0 two\n' }, files);
    files.order({ call: 'write', code: 'ENOSPC', path: 'dovecot-keywords.lock' });
    const ids = [];
    for (const flags of ['Sa', 'Sab', 'Fa']) ids.push(await fixture.reading.file(text, { flags }));
    const { editor, mailbox, folder } = fixture;
    assert.equal((await editor.messages.move(mailbox, folder('INBOX'), folder('Work'), ids)).moved, 3);
    const names = await readdir(join(fixture.reading.pathOf('Work'), 'cur'));
    assert.deepEqual(names.map((name) => name.slice(name.indexOf(':2,') + 3)).toSorted(), ['F', 'S', 'Sa']);
    assert.deepEqual([...files.opened.values()], []);
    assert.equal(files.count('write', 'dovecot-keywords.lock'), 1, 'it is tried once for a keyword');
    assert.equal(await listOf(fixture), '0 two\n');
    assert.ok(!(await readdir(fixture.reading.pathOf('Work'))).includes('dovecot-keywords.lock'));
    assert.match(fixture.sentences.join('\n'), /keywords/);
  });

  test('a lock that is there after the list was replaced belongs to another program', async (t) => {
    const files = new FaultyFiles();
    const fixture = await opened(t, { INBOX: '0 one\n', Work: '' }, files);
    // The first fsync is that of the list, the second that of its folder.
    files.order({ call: 'fsync', code: 'EIO', path: '.Work', nth: 2 });
    assert.equal(await moved(fixture, 'Sa'), 'S');
    assert.equal(await listOf(fixture), '0 one\n');
    assert.equal(files.count('unlink', 'dovecot-keywords.lock'), 0);
  });

  test('a list that is none, or a link, is no list', async (t) => {
    const fixture = await opened(t, { INBOX: '\0\n99 x\n-1 y\n0\n0 \n', Work: '0 urgent\n' });
    assert.equal(await moved(fixture, 'Sa'), 'S');
    const linked = await opened(t, {});
    const elsewhere = join(linked.reading.root, 'elsewhere');
    await writeFile(elsewhere, '0 urgent\n');
    await symlink(elsewhere, join(linked.reading.pathOf('INBOX'), 'dovecot-keywords'));
    assert.equal(await moved(linked, 'Sa'), 'Sa');
  });

  test('a copied folder takes its list along', async (t) => {
    const fixture = await opened(t, { Work: '0 urgent\n' });
    await fixture.reading.file(text, { folder: 'Work', flags: 'Sa' });
    await fixture.editor.folders.copy(fixture.mailbox, fixture.folder('Work'), fixture.folder('Copy'));
    const copy = fixture.reading.pathOf('Copy');
    assert.equal(await readFile(join(copy, 'dovecot-keywords'), 'utf8'), '0 urgent\n');
    assert.match((await readdir(join(copy, 'cur')))[0] ?? '', /:2,Sa$/);
  });
});
