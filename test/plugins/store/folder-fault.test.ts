import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import type { Ending } from '../../support/ending.js';
import { FaultyFiles } from '../../core/spool/faulty-files.js';
import { EditingFixture, problemOf, thisNode } from './editing-fixture.js';

const text = 'Subject: again\r\n\r\n';

suite('a fault of the disk during a change of folders', () => {
  async function opened(t: Ending, folders: readonly string[]) {
    const files = new FaultyFiles();
    const fixture = await EditingFixture.open(t, { files });
    for (const name of folders) await fixture.reading.makeFolder(name);
    return { files, fixture };
  }

  /** Its removal fails at the very end; then another program makes the folder again, with a message. */
  async function removedAndMadeAgain(t: Ending): Promise<EditingFixture> {
    const { files, fixture } = await opened(t, ['A', 'A.sub']);
    files.order({ call: 'unlink', code: 'EIO', path: '.intents', nth: 1 });
    const removal = fixture.editor.folders.remove(fixture.mailbox, fixture.folder('A'), true);
    assert.match(await problemOf(removal), /^EIO/);
    assert.deepEqual(await fixture.folderNames(), ['INBOX']);
    await fixture.reading.makeFolder('A');
    await fixture.reading.file(text, { folder: 'A' });
    return fixture;
  }

  test('a folder that was made again after its removal stays when the next change completes that', async (t) => {
    const fixture = await removedAndMadeAgain(t);
    await fixture.editor.folders.create(fixture.mailbox, fixture.folder('Z'));
    assert.deepEqual(await fixture.contents(), { A: [text], INBOX: [], Z: [] });
    assert.deepEqual(await fixture.intents(), []);
  });

  test('a folder that was made again after its removal stays when the next start completes that', async (t) => {
    const restarted = await EditingFixture.over((await removedAndMadeAgain(t)).reading);
    assert.deepEqual(await restarted.contents(), { A: [text], INBOX: [] });
    assert.deepEqual(await restarted.intents(), []);
  });

  test('a change whose last fsync failed is done, and the next one takes place', async (t) => {
    const { files, fixture } = await opened(t, ['A']);
    // The first two make the intent durable: its file and its name.
    files.order({ call: 'fsync', code: 'EIO', path: `.intents/${thisNode}`, nth: 3 });
    const { editor, mailbox, folder } = fixture;
    assert.match(await problemOf(editor.folders.rename(mailbox, folder('A'), folder('B'))), /^EIO/);
    assert.deepEqual(await fixture.intents(), []);
    await editor.folders.create(mailbox, folder('Z'));
    assert.deepEqual(await fixture.folderNames(), ['INBOX', 'B', 'Z']);
  });

  test('a removal that was refused for the fsync of its intent is not carried out by the next start', async (t) => {
    const { files, fixture } = await opened(t, ['A']);
    // The first one is that of the intent itself, the second that of its name.
    files.order({ call: 'fsync', code: 'EIO', path: `.intents/${thisNode}`, nth: 2 });
    const removal = fixture.editor.folders.remove(fixture.mailbox, fixture.folder('A'), true);
    assert.match(await problemOf(removal), /^EIO/);
    await fixture.reading.file(text, { folder: 'A' });
    const restarted = await EditingFixture.over(fixture.reading);
    assert.deepEqual(await restarted.contents(), { A: [text], INBOX: [] });
  });
});
