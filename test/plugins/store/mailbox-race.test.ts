import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { suite, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { deliver, openStore, recipient, whole } from './delivery-fixture.js';
import { EditingFixture, problemOf } from './editing-fixture.js';

const messages = 40;
const rounds = 6;
const aWhile = 200;

/** A body that comes as far as its first half, and goes on when it is told to. */
function stalled(text: string) {
  const source = new Readable({ read: () => undefined });
  const half = Math.floor(text.length / 2);
  source.push(text.slice(0, half));
  const goOn = (): void => {
    source.push(text.slice(half));
    source.push(null);
  };
  return { source, goOn };
}

suite('changes of one mailbox at once', () => {
  test('each message is in one place in the end, whatever was renamed, moved, marked and appended', async (t) => {
    const fixture = await EditingFixture.open(t);
    const { mailbox, folder, editor } = fixture;
    for (const name of ['A', 'B', 'C']) await fixture.reading.makeFolder(name);
    const ids: string[] = [];
    const texts: string[] = [];
    for (let n = 0; n < messages; n++) {
      texts.push(`Subject: ${n}\r\n\r\n`);
      ids.push((await fixture.append(texts[n] ?? '', 'A', 'unread')).id);
    }
    const outcomes: string[] = [];
    const tried = async (change: Promise<unknown>): Promise<void> => void outcomes.push(await problemOf(change));
    const mark = (status: 'read' | 'unread') => editor.messages.mark(mailbox, folder('A'), ids, status);
    const move = (to: string, some: readonly string[]) => editor.messages.move(mailbox, folder('A'), folder(to), some);
    const append = async (text: string): Promise<void> => {
      const problem = await problemOf(fixture.append(text, 'A'));
      outcomes.push(problem);
      if (problem === 'none') texts.push(text);
    };
    const work: Promise<void>[] = [];
    for (let round = 0; round < rounds; round++) {
      const some = ids.slice(round * 5, round * 5 + 10);
      work.push(tried(mark('read')), tried(move('B', some)), tried(move('C', some)), tried(mark('unread')));
      work.push(append(`Subject: late ${round}\r\n\r\n`));
      work.push(tried(editor.folders.rename(mailbox, folder('A'), folder('D'))));
      work.push(tried(mark('read')), tried(editor.folders.rename(mailbox, folder('D'), folder('A'))));
      await pause(1);
    }
    await Promise.all(work);
    assert.deepEqual(new Set(outcomes.filter((problem) => problem !== 'none' && problem !== 'not-found')), new Set());
    assert.deepEqual(
      Object.values(await fixture.contents())
        .flat()
        .toSorted(),
      texts.toSorted(),
    );
  });

  test('what is delivered while INBOX is marked, moved and emptied is in one place or deleted', async (t) => {
    const fixture = await EditingFixture.open(t);
    const { mailbox, folder, editor, reading } = fixture;
    await reading.makeFolder('B');
    const store = await openStore(t, { root: reading.root });
    const to = [recipient('ann@example.org')];
    const delivered = new AbortController();
    let deleted = 0;
    const changing = async (): Promise<void> => {
      while (!delivered.signal.aborted) {
        const { ids } = await reading.reader.matching(mailbox, folder('INBOX'), {});
        const [moved, removed] = [ids.slice(0, 4), ids.slice(3, 5)];
        const done = await Promise.all([
          editor.messages.remove(mailbox, folder('INBOX'), removed),
          editor.messages.mark(mailbox, folder('INBOX'), ids, 'read'),
          editor.messages.move(mailbox, folder('INBOX'), folder('B'), moved),
          editor.messages.mark(mailbox, folder('INBOX'), ids, 'unread'),
        ]);
        deleted += done[0].deleted;
      }
    };
    const changes = changing();
    for (let round = 0; round < rounds; round++) {
      await Promise.all(Array.from({ length: messages / 4 }, () => deliver(store, to)));
    }
    delivered.abort();
    await changes;
    const left = Object.values(await fixture.contents()).flat();
    assert.equal(left.length + deleted, (rounds * messages) / 4);
    assert.ok(left.every((content) => content === whole.toString()));
  });

  test('a message that comes slowly keeps nobody waiting, and is not filed into a folder that is gone meanwhile', async (t) => {
    const fixture = await EditingFixture.open(t);
    const { mailbox, folder, editor } = fixture;
    for (const name of ['A', 'Gone']) await fixture.reading.makeFolder(name);
    const slow = stalled('Subject: slow\r\n\r\n');
    const doomed = stalled('Subject: doomed\r\n\r\n');
    const appending = editor.messages.append(mailbox, folder('A'), slow.source, 'read');
    const failing = problemOf(editor.messages.append(mailbox, folder('Gone'), doomed.source, 'read'));
    await pause(aWhile);
    let isDone = false;
    const changing = Promise.all([
      editor.folders.remove(mailbox, folder('Gone'), true),
      editor.folders.create(mailbox, folder('New')),
      fixture.append('Subject: quick\r\n\r\n', 'A'),
    ]).then(() => (isDone = true));
    await Promise.race([changing, pause(5 * aWhile)]);
    const wasDone = isDone;
    slow.goOn();
    doomed.goOn();
    await Promise.all([appending, changing]);
    assert.ok(wasDone, 'others wait for whoever sends slowly');
    assert.equal(await failing, 'not-found');
    assert.deepEqual(await fixture.contents(), {
      A: ['Subject: quick\r\n\r\n', 'Subject: slow\r\n\r\n'],
      INBOX: [],
      New: [],
    });
  });
});
