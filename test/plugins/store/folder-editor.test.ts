import assert from 'node:assert/strict';
import { lstat, mkdir, readdir, readFile, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { folderBelow } from '../../../plugins/store/folders/folder-name.js';
import { EditingFixture, problemOf } from './editing-fixture.js';

suite('folders are changed', () => {
  test('a new folder is a whole Maildir with the mark of one, under its name in modified UTF-7', async (t) => {
    const fixture = await EditingFixture.open(t);
    await fixture.editor.folders.create(fixture.mailbox, fixture.folder('Entwürfe & mehr'));
    const path = join(fixture.reading.home, '.Entw&APw-rfe &- mehr');
    assert.deepEqual((await readdir(path)).toSorted(), ['cur', 'maildirfolder', 'new', 'tmp']);
    assert.equal((await stat(path)).mode & 0o777, 0o700);
    assert.deepEqual(await fixture.folderNames(), ['INBOX', 'Entwürfe & mehr']);
    assert.deepEqual(await fixture.hidden(), []);
    assert.deepEqual(await fixture.intents(), []);
  });

  test('a name that is there already, in whatever case or spelling, is a conflict', async (t) => {
    const fixture = await EditingFixture.open(t);
    const create = (name: string) => problemOf(fixture.editor.folders.create(fixture.mailbox, fixture.folder(name)));
    assert.equal(await create('Straße'), 'none');
    assert.equal(await create('Projects.2026'), 'none');
    for (const name of ['Straße', 'STRASSE', 'straße', 'projects', 'sent', 'TRASH', 'projects.2026']) {
      assert.equal(await create(name), 'conflict', name);
    }
    assert.equal(await create('Projects'), 'none', 'a folder that others lie below already');
    assert.equal(await create('Sent'), 'none', 'a special folder under its own name');
    await mkdir(join(fixture.reading.home, '.Raw'));
    assert.equal(await create('Raw'), 'conflict');
    await symlink('/etc', join(fixture.reading.home, '.Link'));
    assert.equal(await create('Link'), 'conflict', 'what lies in the way is looked at, not followed');
  });

  test('names that other programs or protocols use are refused', () => {
    const names = ['', '.', '..', 'a.b', 'a/b', 'a\\b', '~x', ' x', 'INBOX', 'inbox', 'cur', 'new', 'tmp'];
    const more = [
      'dovecot-uidlist',
      'Dovecot',
      'maildirfolder',
      'a\0',
      'a\r\nb',
      '\u202egnp',
      'u\u0308',
      'x'.repeat(255),
    ];
    for (const name of [...names, ...more]) {
      assert.throws(() => folderBelow(null, name), { problem: 'invalid' }, JSON.stringify(name));
    }
    assert.equal(folderBelow(null, 'dovecots').name, 'dovecots');
  });

  test('a rename takes the folders below along, with their messages', async (t) => {
    const fixture = await EditingFixture.open(t);
    const { folders } = fixture.editor;
    for (const name of ['A', 'A.sub', 'A.sub.deep', 'AB']) await folders.create(fixture.mailbox, fixture.folder(name));
    await fixture.append('Subject: one\r\n\r\n', 'A');
    await fixture.append('Subject: deep\r\n\r\n', 'A.sub.deep');
    await folders.rename(fixture.mailbox, fixture.folder('A'), fixture.folder('B'));
    assert.deepEqual(await fixture.contents(), {
      AB: [],
      B: ['Subject: one\r\n\r\n'],
      'B.sub': [],
      'B.sub.deep': ['Subject: deep\r\n\r\n'],
      INBOX: [],
    });
    await folders.rename(fixture.mailbox, fixture.folder('B'), fixture.folder('b'));
    assert.deepEqual(await fixture.folderNames(), ['INBOX', 'AB', 'b', 'b.sub', 'b.sub.deep']);
  });

  test('a rename is refused whole when one target is taken, and into itself', async (t) => {
    const fixture = await EditingFixture.open(t);
    const { folders } = fixture.editor;
    for (const name of ['A', 'A.sub', 'B.sub']) await folders.create(fixture.mailbox, fixture.folder(name));
    const rename = (from: string, to: string) =>
      problemOf(folders.rename(fixture.mailbox, fixture.folder(from), fixture.folder(to)));
    assert.equal(await rename('A', 'B'), 'conflict');
    assert.equal(await rename('A', 'A.new'), 'invalid');
    assert.equal(await rename('A', 'Sent'), 'conflict');
    assert.equal(await rename('none', 'C'), 'not-found');
    for (const name of ['INBOX', 'Trash'])
      assert.equal(await rename(name, 'C'), name === 'INBOX' ? 'forbidden' : 'not-found');
    assert.deepEqual(await fixture.folderNames(), ['INBOX', 'A', 'A.sub', 'B.sub']);
  });

  test('a copy has links under names of their own, with flags and times', async (t) => {
    const fixture = await EditingFixture.open(t);
    const { folders } = fixture.editor;
    await folders.create(fixture.mailbox, fixture.folder('A'));
    await folders.create(fixture.mailbox, fixture.folder('A.sub'));
    await fixture.reading.file('Subject: x\r\n\r\n', { folder: 'A', flags: 'FSa', at: 1_600_000_000 });
    await fixture.reading.file('Subject: y\r\n\r\n', { folder: 'A.sub' });
    await folders.copy(fixture.mailbox, fixture.folder('A'), fixture.folder('Copy'));
    const [before = ''] = await readdir(join(fixture.reading.pathOf('A'), 'cur'));
    const [after = ''] = await readdir(join(fixture.reading.pathOf('Copy'), 'cur'));
    assert.match(after, /^1600000000\.M\d+P\d+Q\d+R[0-9a-f]{32}\.mail\.example\.org,S=14,W=14:2,FSa$/);
    assert.notEqual(after, before);
    const inode = async (folder: string, name: string) =>
      (await stat(join(fixture.reading.pathOf(folder), 'cur', name))).ino;
    assert.equal(await inode('A', before), await inode('Copy', after));
    assert.equal((await readdir(join(fixture.reading.pathOf('Copy.sub'), 'new'))).length, 1);
    assert.equal(
      await problemOf(folders.copy(fixture.mailbox, fixture.folder('A'), fixture.folder('A.in'))),
      'invalid',
    );
    assert.equal(
      await problemOf(folders.copy(fixture.mailbox, fixture.folder('A'), fixture.folder('copy'))),
      'conflict',
    );
  });

  test('a folder is removed with what is in it, and nothing that a link points to', async (t) => {
    const fixture = await EditingFixture.open(t);
    const { folders } = fixture.editor;
    await folders.create(fixture.mailbox, fixture.folder('A'));
    await folders.create(fixture.mailbox, fixture.folder('A.sub'));
    await fixture.append('Subject: one\r\n\r\n', 'A.sub');
    const outside = join(fixture.reading.root, 'outside');
    await mkdir(outside);
    await writeFile(join(outside, 'precious'), 'x');
    await symlink(outside, join(fixture.reading.pathOf('A'), 'cur', 'link'));
    await mkdir(join(fixture.reading.pathOf('A'), 'cur', 'odd'));
    await writeFile(join(fixture.reading.pathOf('A'), 'dovecot-uidlist'), '3 V1 N1');
    const remove = (name: string, recursive: boolean) =>
      problemOf(folders.remove(fixture.mailbox, fixture.folder(name), recursive));
    assert.equal(await remove('A', false), 'conflict');
    assert.equal(await remove('INBOX', true), 'forbidden');
    assert.equal(await remove('A', true), 'none');
    assert.equal(await remove('A', true), 'not-found');
    assert.equal(await readFile(join(outside, 'precious'), 'utf8'), 'x');
    assert.deepEqual(await fixture.folderNames(), ['INBOX']);
    assert.deepEqual(await fixture.hidden(), []);
  });

  test('subscriptions follow, in both formats, and keep what is not concerned byte for byte', async (t) => {
    const fixture = await EditingFixture.open(t);
    const { folders } = fixture.editor;
    const list = join(fixture.reading.home, 'subscriptions');
    for (const name of ['Büro', 'Büro.alt']) await folders.create(fixture.mailbox, fixture.folder(name));
    await writeFile(list, 'V\t2\n\nB&APw-ro\nB&APw-ro\talt\nB&APw-rosch\nother\n');
    await folders.rename(fixture.mailbox, fixture.folder('Büro'), fixture.folder('Öffice'));
    assert.equal(await readFile(list, 'utf8'), 'V\t2\n\n&ANY-ffice\n&ANY-ffice\talt\nB&APw-rosch\nother\n');
    await writeFile(list, '&ANY-ffice\n&ANY-ffice.alt\nb\n');
    await folders.remove(fixture.mailbox, fixture.folder('Öffice'), true);
    assert.equal(await readFile(list, 'utf8'), 'b\n');
    await assert.rejects(lstat(`${list}.lock`), { code: 'ENOENT' });
  });

  test('special folders are made when something is to be put into them, once for a hundred at a time', async (t) => {
    const fixture = await EditingFixture.open(t);
    await Promise.all(Array.from({ length: 100 }, (_, n) => fixture.append(`Subject: ${n}\r\n\r\n`, 'Archive')));
    assert.equal((await fixture.contents())['Archive']?.length, 100);
    assert.equal(await problemOf(fixture.append('x\r\n', 'Elsewhere')), 'not-found');
  });

  test('a hundred changes of folders at once leave a tree that each of them may have left', async (t) => {
    const fixture = await EditingFixture.open(t);
    const { folders } = fixture.editor;
    await folders.create(fixture.mailbox, fixture.folder('A'));
    await fixture.append('Subject: kept\r\n\r\n', 'A');
    const names = Array.from({ length: 100 }, (_, n) => `N${n}`);
    const outcomes = await Promise.all(
      names.map((name) => problemOf(folders.rename(fixture.mailbox, fixture.folder('A'), fixture.folder(name)))),
    );
    assert.equal(outcomes.filter((outcome) => outcome === 'none').length, 1);
    assert.equal(outcomes.filter((outcome) => outcome === 'not-found').length, 99);
    assert.deepEqual(Object.values(await fixture.contents()).flat(), ['Subject: kept\r\n\r\n']);
  });
});
