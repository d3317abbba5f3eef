import assert from 'node:assert/strict';
import { mkdir, readdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { suite, test } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import fc from 'fast-check';
import { monthsBefore } from '../../../plugins/store/http/emptying-endpoints.js';
import { LineEndings } from '../../../core/mime/line-endings.js';
import { EditingFixture, problemOf } from './editing-fixture.js';

const text = 'Subject: x\r\n\r\n';

const filesOf = async (fixture: EditingFixture, folder: string) => {
  const path = fixture.reading.pathOf(folder);
  const parts = await Promise.all(
    ['new', 'cur'].map(async (part) => (await readdir(join(path, part))).map((name) => `${part}/${name}`)),
  );
  return parts.flat().toSorted();
};

suite('messages are changed', () => {
  test('a status changes the letters of the name, sorted, and keeps those of other programs', async (t) => {
    const fixture = await EditingFixture.open(t);
    const { messages } = fixture.editor;
    const inbox = fixture.folder('INBOX');
    const fresh = await fixture.reading.file(text);
    const known = await fixture.reading.file(text, { flags: 'bRaF' });
    const seen = await fixture.reading.file(text, { flags: 'S' });
    const read = await messages.mark(fixture.mailbox, inbox, [fresh, known, seen, fresh, 'none'], 'read');
    assert.deepEqual(read, { updated: 2, unchanged: 1, notFound: ['none'] });
    assert.deepEqual(
      await filesOf(fixture, 'INBOX'),
      [`cur/${fresh}:2,S`, `cur/${known}:2,FRSab`, `cur/${seen}:2,S`].toSorted(),
    );
    const unread = await messages.mark(fixture.mailbox, inbox, [fresh, known], 'unread');
    assert.deepEqual(unread, { updated: 2, unchanged: 0, notFound: [] });
    assert.deepEqual(
      await filesOf(fixture, 'INBOX'),
      [`cur/${fresh}:2,`, `cur/${known}:2,FRab`, `cur/${seen}:2,S`].toSorted(),
    );
  });

  test('a moved message has a new name that keeps flags, sizes and received time', async (t) => {
    const fixture = await EditingFixture.open(t);
    const id = await fixture.reading.file(text, { flags: 'FS', at: 1_600_000_000 });
    const { moved, newIds, notFound } = await fixture.editor.messages.move(
      fixture.mailbox,
      fixture.folder('INBOX'),
      fixture.folder('Archive'),
      [id, 'none'],
    );
    assert.deepEqual([moved, notFound], [1, ['none']]);
    const [file = ''] = await filesOf(fixture, 'Archive');
    assert.equal(file, `cur/${newIds[id]}:2,FS`);
    assert.match(file, /^cur\/1600000000\.M.*,S=14,W=14:2,FS$/);
    assert.deepEqual(await filesOf(fixture, 'INBOX'), []);
  });

  test('messages on their way into a folder that is renamed meanwhile stay where they are', async (t) => {
    const fixture = await EditingFixture.open(t);
    const { messages, folders } = fixture.editor;
    const id = await fixture.reading.file(text);
    await folders.create(fixture.mailbox, fixture.folder('Old'));
    let moved = '';
    let move = Promise.resolve();
    // The move finds the folder, and then waits for the lock that the rename holds.
    const moveMeanwhile = async (): Promise<void> => {
      const [from, to] = [fixture.folder('INBOX'), fixture.folder('Old')];
      move = problemOf(messages.move(fixture.mailbox, from, to, [id])).then((outcome) => void (moved = outcome));
      await setTimeout(100);
      assert.equal(moved, '');
    };
    await folders.rename(fixture.mailbox, fixture.folder('Old'), fixture.folder('New'), moveMeanwhile);
    await move;
    assert.equal(moved, 'not-found');
    assert.deepEqual(await filesOf(fixture, 'INBOX'), [`new/${id}`]);
  });

  test('a name without sizes gets none when the message is moved', async (t) => {
    const fixture = await EditingFixture.open(t);
    await fixture.reading.put('cur/foreign.name:2,', 'a\n');
    await fixture.editor.messages.move(fixture.mailbox, fixture.folder('INBOX'), fixture.folder('Archive'), [
      'foreign.name',
    ]);
    const [file = ''] = await filesOf(fixture, 'Archive');
    assert.doesNotMatch(file, /,[SW]=/);
  });

  test('what is deleted goes to Trash; deletion from Trash and Junk is permanent', async (t) => {
    const fixture = await EditingFixture.open(t);
    const { messages } = fixture.editor;
    const id = await fixture.reading.file(text);
    const discarded = await messages.discard(fixture.mailbox, fixture.folder('INBOX'), [id]);
    const trashed = (await fixture.reading.list({}, 'Trash')).items.map((item) => item.id);
    assert.equal(trashed.length, 1);
    assert.deepEqual(discarded, { deleted: 1, notFound: [], newIds: { [id]: trashed[0] } });
    assert.deepEqual(await messages.discard(fixture.mailbox, fixture.folder('Trash'), [...trashed, 'none']), {
      deleted: 1,
      notFound: ['none'],
      newIds: {},
    });
    assert.deepEqual(Object.values(await fixture.contents()).flat(), []);
  });

  test('messages that another program renames all the time are found, and none is lost or doubled', async (t) => {
    const fixture = await EditingFixture.open(t);
    const { messages } = fixture.editor;
    const ids = await Promise.all(Array.from({ length: 60 }, (_, n) => fixture.reading.file(`Subject: ${n}\r\n\r\n`)));
    const over = new AbortController();
    const other = async (letters: readonly string[]): Promise<void> => {
      const path = fixture.reading.pathOf('INBOX');
      while (!over.signal.aborted) {
        for (const file of await filesOf(fixture, 'INBOX')) {
          const id = file.slice(4).split(':')[0] ?? '';
          const letter = letters[Math.floor(id.length + file.length) % letters.length] ?? '';
          await rename(join(path, file), join(path, `cur/${id}:2,${letter}`)).catch(() => undefined);
        }
      }
    };
    const others = [other(['F', '']), other(['R', 'FS', 'S'])];
    const halves = [ids.slice(0, 40), ids.slice(20)].map((half) =>
      messages.move(fixture.mailbox, fixture.folder('INBOX'), fixture.folder('Archive'), half),
    );
    const outcomes = await Promise.all(halves);
    over.abort();
    await Promise.all(others);
    const contents = await fixture.contents();
    assert.equal(Object.values(contents).flat().length, 60);
    assert.equal(new Set(Object.values(contents).flat()).size, 60);
    const moved = outcomes.reduce((sum, outcome) => sum + outcome.moved, 0);
    assert.equal(contents['Archive']?.length, moved, 'the counts are honest');
    assert.ok(moved > 50, `${moved} of 60 were caught`);
  });

  test('a message is filed with CRLF line ends, and its name tells its size', async (t) => {
    const fixture = await EditingFixture.open(t);
    const { id, size } = await fixture.append('Subject: x\n\nbare\rmixed\r\nend');
    assert.equal(size, 30);
    assert.ok(id.endsWith(',S=30,W=30'));
    assert.deepEqual(await filesOf(fixture, 'INBOX'), [`cur/${id}:2,S`]);
    assert.equal(
      await readFile(join(fixture.reading.pathOf('INBOX'), `cur/${id}:2,S`), 'latin1'),
      'Subject: x\r\n\r\nbare\r\nmixed\r\nend',
    );
    const unread = await fixture.append(text, 'INBOX', 'unread');
    assert.ok((await filesOf(fixture, 'INBOX')).includes(`new/${unread.id}`));
    for (const content of ['', 'a\0b']) assert.equal(await problemOf(fixture.append(content)), 'invalid');
    assert.deepEqual(await readdir(join(fixture.reading.pathOf('INBOX'), 'tmp')), []);
  });

  test('a body that breaks off leaves nothing', async (t) => {
    const fixture = await EditingFixture.open(t);
    const broken = Readable.from(
      (function* () {
        yield Buffer.from('Subject: x\r\n');
        throw new Error('cut off');
      })(),
    );
    await assert.rejects(fixture.editor.messages.append(fixture.mailbox, fixture.folder('INBOX'), broken, 'read'));
    for (const part of ['tmp', 'new', 'cur'])
      assert.deepEqual(await readdir(join(fixture.reading.pathOf('INBOX'), part)), []);
  });

  test('a folder without tmp, new or cur gets them when something is put into it', async (t) => {
    const fixture = await EditingFixture.open(t);
    await mkdir(join(fixture.reading.home, '.Bare'));
    await fixture.append(text, 'Bare');
    assert.equal((await filesOf(fixture, 'Bare')).length, 1);
  });

  test('line ends are the same however the bytes are cut', () => {
    const byte = fc.constantFrom('\r', '\n', 'a', '.');
    fc.assert(
      fc.property(fc.array(fc.array(byte, { maxLength: 5 })), (pieces) => {
        const lines = new LineEndings();
        const chunks = pieces.map((piece) => lines.push(Buffer.from(piece.join(''))));
        const whole = pieces.flat().join('');
        assert.equal(Buffer.concat([...chunks, lines.end()]).toString(), whole.replace(/\r\n|\r|\n/g, '\r\n'));
      }),
    );
  });

  test('months are counted by the calendar, to the last day of a shorter one', () => {
    const at = (iso: string) => Date.parse(iso);
    assert.equal(monthsBefore(at('2026-11-21T10:00:00Z'), 3), at('2026-08-21T10:00:00Z'));
    assert.equal(monthsBefore(at('2026-05-31T10:00:00Z'), 3), at('2026-02-28T10:00:00Z'));
    assert.equal(monthsBefore(at('2026-01-15T00:00:00Z'), 12), at('2025-01-15T00:00:00Z'));
  });
});

suite('a quota', () => {
  const sizeFile = (fixture: EditingFixture) => readFile(join(fixture.reading.home, 'maildirsize'), 'utf8');

  test('is kept in maildirsize, which each change is added to', async (t) => {
    const fixture = await EditingFixture.open(t, { quota: 40 });
    const { id } = await fixture.append(text);
    assert.equal(await sizeFile(fixture), '40S\n0 0\n14 1\n');
    await fixture.append(text);
    assert.equal(await problemOf(fixture.append(text)), 'mailbox-full');
    await fixture.editor.messages.remove(fixture.mailbox, fixture.folder('INBOX'), [id]);
    assert.equal(await sizeFile(fixture), '40S\n0 0\n14 1\n14 1\n-14 -1\n');
    await fixture.append(text);
    await fixture.editor.folders.create(fixture.mailbox, fixture.folder('A'));
    const copy = fixture.editor.folders.copy(fixture.mailbox, fixture.folder('INBOX'), fixture.folder('Copy'));
    assert.equal(await problemOf(copy), 'mailbox-full');
    assert.deepEqual(await fixture.folderNames(), ['INBOX', 'A']);
  });

  test('that changed, a file that grew long or makes no sense, and an old one that says full are counted anew', async (t) => {
    const fixture = await EditingFixture.open(t, { quota: 1000 });
    const file = join(fixture.reading.home, 'maildirsize');
    await fixture.append(text);
    for (const stale of ['40S,3C\n39 1\n', 'nonsense', `1000S\n${'1 0\n'.repeat(2000)}`, '1000S\nx y\n']) {
      await writeFile(file, stale);
      await fixture.append(text);
      assert.match(await sizeFile(fixture), /^1000S\n\d+ \d+\n14 1\n$/, stale.slice(0, 20));
    }
    await writeFile(file, '1000S\n1000 1\n');
    assert.equal(await problemOf(fixture.append(text)), 'mailbox-full', 'a fresh file is believed');
  });

  test('that another program keeps is kept right, and none is begun for a mailbox without one', async (t) => {
    const fixture = await EditingFixture.open(t);
    const file = join(fixture.reading.home, 'maildirsize');
    await writeFile(file, '5000S,10C\n100 2\n');
    await fixture.append(text);
    assert.equal(await sizeFile(fixture), '5000S,10C\n100 2\n14 1\n');
    const other = await EditingFixture.open(t);
    await other.append(text);
    assert.ok(!(await readdir(other.reading.home)).includes('maildirsize'));
  });
});
