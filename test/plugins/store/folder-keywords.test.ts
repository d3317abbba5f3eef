import assert from 'node:assert/strict';
import { readdir, readFile, symlink, writeFile } from 'node:fs/promises';
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

  test('get the letters that they have in the other folder, and go where it has none', async (t) => {
    const ground = await opened(t, {
      INBOX: '0 $Forwarded\n1 urgent\n2 $Label1\n',
      Work: '0 $label1\n1 done\n2 $Forwarded\n',
    });
    assert.equal(await moved(ground, 'FSabcd'), 'FSac');
  });

  test('go when the other folder has no list, and stay when neither has one', async (t) => {
    assert.equal(await moved(await opened(t, { INBOX: '0 urgent\n' }), 'Sa'), 'S');
    assert.equal(await moved(await opened(t, { Work: '0 urgent\n' }), 'Sa'), 'S');
    assert.equal(await moved(await opened(t, {}), 'Sa'), 'Sa');
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
