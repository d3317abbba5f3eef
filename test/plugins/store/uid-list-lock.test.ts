import assert from 'node:assert/strict';
import { access, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { nodeFiles } from '../../../core/disk/file-layer.js';
import { whileUidsAreLocked } from '../../../plugins/store/maildir/dovecot-files.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { EditingFixture } from './editing-fixture.js';

suite('the list of UIDs that Dovecot keeps', () => {
  test('is locked while names change, and free afterwards, also after a fault', async (t) => {
    const folder = await temporaryFolder(t);
    await writeFile(join(folder, 'dovecot-uidlist'), '3 V1 N1\n');
    const lock = join(folder, 'dovecot-uidlist.lock');
    await whileUidsAreLocked(folder, nodeFiles, () => access(lock));
    await assert.rejects(
      whileUidsAreLocked(folder, nodeFiles, () => Promise.reject(new Error('a fault'))),
      /a fault/,
    );
    assert.deepEqual(await readdir(folder), ['dovecot-uidlist']);
  });

  test('is waited for while Dovecot has it', async (t) => {
    const folder = await temporaryFolder(t);
    await writeFile(join(folder, 'dovecot-uidlist'), '3 V1 N1\n');
    const lock = join(folder, 'dovecot-uidlist.lock');
    await writeFile(lock, '1:host');
    const order: string[] = [];
    const done = whileUidsAreLocked(folder, nodeFiles, () => Promise.resolve(void order.push('ours')));
    await new Promise((resolve) => setImmediate(resolve));
    order.push('freed');
    await rm(lock);
    await done;
    assert.deepEqual(order, ['freed', 'ours']);
  });

  test('is not made where there is none, and a lock that another has taken over stays', async (t) => {
    const folder = await temporaryFolder(t);
    await whileUidsAreLocked(folder, nodeFiles, async () => assert.deepEqual(await readdir(folder), []));
    await writeFile(join(folder, 'dovecot-uidlist'), '3 V1 N1\n');
    const lock = join(folder, 'dovecot-uidlist.lock');
    await whileUidsAreLocked(folder, nodeFiles, async () => {
      // A new file first, so that it cannot get the number of the old one.
      await writeFile(`${lock}.new`, '1:host');
      await rm(lock);
      await nodeFiles.rename(`${lock}.new`, lock);
    });
    assert.deepEqual((await readdir(folder)).toSorted(), ['dovecot-uidlist', 'dovecot-uidlist.lock']);
  });

  test('and many messages are marked under it', async (t) => {
    const fixture = await EditingFixture.open(t);
    const inbox = fixture.reading.pathOf('INBOX');
    await writeFile(join(inbox, 'dovecot-uidlist'), '3 V1 N1\n');
    const ids = await Promise.all(Array.from({ length: 20 }, () => fixture.reading.file('Subject: x\r\n\r\n')));
    const { updated } = await fixture.editor.messages.mark(fixture.mailbox, fixture.folder('INBOX'), ids, 'read');
    assert.equal(updated, 20);
    assert.ok(!(await readdir(inbox)).includes('dovecot-uidlist.lock'));
  });
});
