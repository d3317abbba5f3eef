import assert from 'node:assert/strict';
import { readdir, readFile, symlink, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { EditingGround } from './editing-ground.js';

const text = 'Subject: x\r\n\r\n';

suite('keywords of mail clients', () => {
  async function opened(t: Parameters<typeof EditingGround.open>[0], lists: Readonly<Record<string, string>>) {
    const ground = await EditingGround.open(t);
    await ground.reading.makeFolder('Work');
    for (const [folder, list] of Object.entries(lists)) {
      await writeFile(join(ground.reading.pathOf(folder), 'dovecot-keywords'), list);
    }
    return ground;
  }

  async function moved(ground: EditingGround, flags: string): Promise<string> {
    const id = await ground.reading.file(text, { flags });
    await ground.editor.messages.move(ground.mailbox, ground.folder('INBOX'), ground.folder('Work'), [id]);
    const [name = ''] = await readdir(join(ground.reading.pathOf('Work'), 'cur'));
    return name.slice(name.indexOf(':2,') + 3);
  }

  test('get the letters that they have in the other folder', async (t) => {
    const ground = await opened(t, {
      INBOX: '0 $Forwarded\n1 urgent\n2 $Label1\n',
      Work: '0 $label1\n1 done\n2 $Forwarded\n',
    });
    assert.equal(await moved(ground, 'FSacd'), 'FSac');
  });

  const listOf = (ground: EditingGround, folder = 'Work') =>
    readFile(join(ground.reading.pathOf(folder), 'dovecot-keywords'), 'utf8');

  test('are added to the list of the other folder, which is replaced as a whole and without a trace of a lock', async (t) => {
    const ground = await opened(t, { INBOX: '0 $Forwarded\n1 urgent\n2 later\n', Work: '0 done\n2 $forwarded\n' });
    assert.equal(await moved(ground, 'FSabc'), 'FSbcd');
    assert.equal(await listOf(ground), '0 done\n2 $forwarded\n1 urgent\n3 later\n');
    const names = await readdir(ground.reading.pathOf('Work'));
    assert.deepEqual(names.toSorted(), ['cur', 'dovecot-keywords', 'new', 'tmp']);
    assert.equal(await listOf(ground, 'INBOX'), '0 $Forwarded\n1 urgent\n2 later\n');
  });

  test('get a list where the other folder has none, and stay when neither has one', async (t) => {
    const ground = await opened(t, { INBOX: '0 other\n1 urgent\n' });
    assert.equal(await moved(ground, 'Sb'), 'Sa');
    assert.equal(await listOf(ground), '0 urgent\n');
    assert.equal(await moved(await opened(t, { Work: '0 urgent\n' }), 'Sa'), 'S');
    assert.equal(await moved(await opened(t, {}), 'Sa'), 'Sa');
  });

  test('go where the other folder has no letter left, or Dovecot is busy with it', async (t) => {
    const full = Array.from({ length: 25 }, (_, index) => `${index} k${index}\n`).join('');
    const ground = await opened(t, { INBOX: '0 one\n1 two\n', Work: full });
    assert.equal(await moved(ground, 'Sab'), 'Sz');
    assert.equal(await listOf(ground), `${full}25 one\n`);
    const busy = await opened(t, { INBOX: '0 one\n', Work: '0 two\n' });
    for (const name of ['dovecot-uidlist', 'dovecot-uidlist.lock']) {
      await writeFile(join(busy.reading.pathOf('Work'), name), '');
    }
    assert.equal(await moved(busy, 'Sa'), 'S');
    assert.equal(await listOf(busy), '0 two\n');
  });

  test('a lock that another program left is no obstacle; many messages moved at once share one list', async (t) => {
    const ground = await opened(t, { INBOX: '0 one\n1 two\n2 three\n', Work: '0 two\n' });
    const lock = join(ground.reading.pathOf('Work'), 'dovecot-keywords.lock');
    await writeFile(lock, '');
    await utimes(lock, 1, 1);
    await ground.reading.makeFolder('Other');
    await writeFile(join(ground.reading.pathOf('Other'), 'dovecot-keywords'), '0 four\n1 one\n');
    const move = async (folder: string, flags: readonly string[]) => {
      const ids = await Promise.all(flags.map((flag) => ground.reading.file(text, { folder, flags: flag })));
      await ground.editor.messages.move(ground.mailbox, ground.folder(folder), ground.folder('Work'), ids);
    };
    await Promise.all([move('INBOX', ['Sa', 'Sb', 'Sc', 'Sabc']), move('Other', ['Sa', 'Sb', 'Sab'])]);
    const words = new Map(
      (await listOf(ground)).split('\n').map((one) => [one.split(' ')[1], Number(one.split(' ')[0])]),
    );
    assert.equal(words.size, 5, await listOf(ground));
    const letter = (word: string) => String.fromCharCode(97 + (words.get(word) ?? 0));
    const expected = [['one'], ['two'], ['three'], ['one', 'two', 'three'], ['four'], ['one'], ['four', 'one']];
    const names = await readdir(join(ground.reading.pathOf('Work'), 'cur'));
    assert.deepEqual(
      names.map((name) => name.slice(name.indexOf(':2,') + 3)).toSorted(),
      expected.map((keywords) => `S${keywords.map(letter).toSorted().join('')}`).toSorted(),
    );
  });

  test('a list that is none, or a link, is no list', async (t) => {
    const ground = await opened(t, { INBOX: '\0\n99 x\n-1 y\n0\n0 \n', Work: '0 urgent\n' });
    assert.equal(await moved(ground, 'Sa'), 'S');
    const linked = await opened(t, {});
    const elsewhere = join(linked.reading.root, 'elsewhere');
    await writeFile(elsewhere, '0 urgent\n');
    await symlink(elsewhere, join(linked.reading.pathOf('INBOX'), 'dovecot-keywords'));
    assert.equal(await moved(linked, 'Sa'), 'Sa');
  });

  test('a copied folder takes its list along', async (t) => {
    const ground = await opened(t, { Work: '0 urgent\n' });
    await ground.reading.file(text, { folder: 'Work', flags: 'Sa' });
    await ground.editor.folders.copy(ground.mailbox, ground.folder('Work'), ground.folder('Copy'));
    const copy = ground.reading.pathOf('Copy');
    assert.equal(await readFile(join(copy, 'dovecot-keywords'), 'utf8'), '0 urgent\n');
    assert.match((await readdir(join(copy, 'cur')))[0] ?? '', /:2,Sa$/);
  });
});
