import assert from 'node:assert/strict';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import fc from 'fast-check';
import { isProblem } from '../../../core/problem.js';
import { folderOfDirectory, parseFolderName } from '../../../plugins/store/folders/folder-name.js';
import { decodeModifiedUtf7, encodeModifiedUtf7 } from '../../../plugins/store/maildir/modified-utf7.js';
import { ReadingFixture } from './reading-fixture.js';

suite('folder names', () => {
  test('a name and its directory belong together, in modified UTF-7', () => {
    const cases: readonly (readonly [string, string, string])[] = [
      ['Sent', 'Sent', '.Sent'],
      ['.Sent', 'Sent', '.Sent'],
      ['Projects.2026', 'Projects.2026', '.Projects.2026'],
      ['Entwürfe', 'Entwürfe', '.Entw&APw-rfe'],
      ['A & B', 'A & B', '.A &- B'],
      ['日本語', '日本語', '.&ZeVnLIqe-'],
      ['😀', '😀', '.&2D3eAA-'],
    ];
    for (const [written, name, directory] of cases) {
      const folder = parseFolderName(written);
      assert.deepEqual([folder.name, folder.directory], [name, directory]);
      assert.deepEqual(folderOfDirectory(directory), folder);
    }
  });

  test('INBOX in any case is the mailbox itself', () => {
    for (const written of ['INBOX', 'inbox', 'Inbox', '.INBOX']) assert.equal(parseFolderName(written).directory, '');
  });

  test('what could leave the mailbox, deceive, or be lost is refused', () => {
    const refused = ['', '.', '..', '...', 'a..b', 'a.', '..a', 'a/b', '../x', 'a\\b', '~x', 'a.~b', ' ', ' a', 'a '];
    refused.push(
      'a\0b',
      'a\r\nb',
      'a\u202eb',
      'a\u200bb',
      'u\u0308',
      '\ud800',
      'x'.repeat(256),
      'ü'.repeat(150),
      'INBOX.x',
    );
    for (const written of refused) {
      assert.throws(
        () => parseFolderName(written),
        (error) => isProblem(error) && error.problem === 'bad-request',
        written,
      );
    }
  });

  test('directories that are no folders are passed over', () => {
    for (const name of ['cur', 'new', 'tmp', '.', '..', '..DOVECOT-TRASHED', 'dovecot-uidlist', '.a..b', '.inbox']) {
      assert.equal(folderOfDirectory(name), undefined, name);
    }
  });

  test('a directory that another program named in UTF-8 or decomposed is found by the name that is shown', async (t) => {
    const fixture = await ReadingFixture.open(t);
    for (const name of ['.Entwürfe', `.${encodeModifiedUtf7('Ru\u0308ck')}`]) {
      await mkdir(join(fixture.home, name, 'cur'), { recursive: true });
    }
    const names = (await fixture.reader.folders(fixture.mailbox)).map(({ name }) => name);
    assert.deepEqual(names, ['INBOX', 'Entwürfe', 'Rück']);
    for (const name of names) assert.equal((await fixture.list({}, name)).total, 0);
  });

  test('modified UTF-7 reads what it wrote, and nothing that it would write otherwise', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme' }), (text) => {
        const written = encodeModifiedUtf7(text);
        assert.match(written, /^[\x20-\x7e]*$/);
        assert.equal(decodeModifiedUtf7(written), text);
      }),
    );
    for (const wrong of ['&', 'a&', '&AGE-', 'ü', '&Jjo', '&APw-&APw-', '&A-'])
      assert.equal(decodeModifiedUtf7(wrong), undefined, wrong);
  });

  test('every name that is accepted stays one directory of the mailbox', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 40 }), (text) => {
        try {
          const { directory } = parseFolderName(text);
          assert.match(directory, /^(?:|\.[^/\0.][^/\0]*)$/);
        } catch (error) {
          assert.ok(isProblem(error));
        }
      }),
    );
  });
});
