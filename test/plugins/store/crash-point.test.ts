import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import type { Ending } from '../../support/ending.js';
import { dyingFiles } from './dying-files.js';
import { EditingFixture, thisNode } from './editing-fixture.js';

type Change = (fixture: EditingFixture) => Promise<unknown>;
type Contents = Record<string, readonly string[]>;

/** More than any of these changes takes. */
const mostSteps = 200;

async function prepared(t: Ending): Promise<EditingFixture> {
  const fixture = await EditingFixture.open(t);
  for (const name of ['A', 'A.sub', 'B', 'Trash']) await fixture.reading.makeFolder(name);
  for (const number of [1, 2, 3]) await fixture.reading.file(`Subject: ${number}\r\n\r\n`, { folder: 'A', flags: 'S' });
  await fixture.reading.file('Subject: sub\r\n\r\n', { folder: 'A.sub' });
  await writeFile(join(fixture.reading.home, 'subscriptions'), 'A\nA.sub\nB\n');
  return fixture;
}

/** Dies at each step of the change in turn, starts again, and asks what is there then. */
async function dieEverywhere(
  t: Ending,
  change: Change,
  check: (after: Contents, fixture: EditingFixture) => void | Promise<void>,
  whileDead: (fixture: EditingFixture) => Promise<void> = () => Promise.resolve(),
) {
  for (let steps = 0; steps < mostSteps; steps++) {
    const fixture = await prepared(t);
    const { files, died } = dyingFiles(steps);
    const dying = await EditingFixture.over(fixture.reading, { files });
    const outcome = await change(dying).then(
      () => 'done',
      () => 'failed',
    );
    await whileDead(fixture);
    const restarted = await EditingFixture.over(fixture.reading);
    assert.deepEqual(await restarted.intents(), [], `after ${steps} steps`);
    assert.deepEqual(await restarted.hidden(), [], `after ${steps} steps`);
    await check(await restarted.contents(), restarted);
    if (!died()) {
      assert.equal(outcome, 'done');
      assert.ok(steps >= 3, 'it did die on the way');
      return;
    }
  }
  assert.fail('the change never ends');
}

const before: Contents = {
  A: ['Subject: 1\r\n\r\n', 'Subject: 2\r\n\r\n', 'Subject: 3\r\n\r\n'],
  'A.sub': ['Subject: sub\r\n\r\n'],
  B: [],
  INBOX: [],
  Trash: [],
};

/** It happened, or it did not. */
const oneOf =
  (...states: readonly Contents[]) =>
  (found: Contents) => {
    assert.ok(
      states.some((state) => JSON.stringify(state) === JSON.stringify(found)),
      JSON.stringify(found),
    );
  };

const all = Object.values(before).flat().toSorted();

suite('a process that dies at any step of a change', () => {
  test('leaves a renamed folder whole, and its subscriptions with it', async (t) => {
    const { A: top = [], 'A.sub': sub = [] } = before;
    const after = { B: [], C: top, 'C.sub': sub, INBOX: [], Trash: [] };
    await dieEverywhere(
      t,
      ({ editor, mailbox, folder }) => editor.folders.rename(mailbox, folder('A'), folder('C')),
      async (found, fixture) => {
        oneOf(before, after)(found);
        const names = found['C'] === undefined ? 'A\nA.sub\nB\n' : 'C\nC.sub\nB\n';
        assert.equal(await readFile(join(fixture.reading.home, 'subscriptions'), 'utf8'), names);
      },
    );
  });

  test('leaves a copied folder whole or not at all', async (t) => {
    const { A: top = [], 'A.sub': sub = [] } = before;
    await dieEverywhere(
      t,
      ({ editor, mailbox, folder }) => editor.folders.copy(mailbox, folder('A'), folder('C')),
      oneOf(before, { A: top, 'A.sub': sub, B: [], C: top, 'C.sub': sub, INBOX: [], Trash: [] }),
    );
  });

  test('leaves a removed folder whole or not at all', async (t) => {
    await dieEverywhere(
      t,
      ({ editor, mailbox, folder }) => editor.folders.remove(mailbox, folder('A'), true),
      oneOf(before, { B: [], INBOX: [], Trash: [] }),
    );
  });

  test('leaves a folder that another program makes after its removal has begun, with the message in it', async (t) => {
    const again = 'Subject: again\r\n\r\n';
    let isAgain = false;
    await dieEverywhere(
      t,
      ({ editor, mailbox, folder }) => editor.folders.remove(mailbox, folder('A'), true),
      (found) => {
        if (isAgain) assert.deepEqual(found['A'], [again]);
      },
      async ({ reading }) => {
        isAgain = !existsSync(reading.pathOf('A'));
        if (!isAgain) return;
        await reading.makeFolder('A');
        await reading.file(again, { folder: 'A' });
      },
    );
  });

  test('leaves an empty folder that was to be removed whole or not at all', async (t) => {
    const { B, ...rest } = before;
    assert.deepEqual(B, []);
    await dieEverywhere(
      t,
      ({ editor, mailbox, folder }) => editor.folders.remove(mailbox, folder('B'), false),
      oneOf(before, rest),
    );
  });

  test('leaves each message that was to be moved or deleted in one place, once', async (t) => {
    for (const to of ['B', 'Trash', 'Archive']) {
      await dieEverywhere(
        t,
        async ({ editor, mailbox, folder, reading }) => {
          const { ids } = await reading.reader.matching(mailbox, folder('A'), {});
          if (to === 'Trash') return editor.messages.discard(mailbox, folder('A'), ids);
          return editor.messages.move(mailbox, folder('A'), folder(to), ids);
        },
        (found) => assert.deepEqual(Object.values(found).flat().toSorted(), all),
      );
    }
  });

  test('leaves each message of a folder that was to be emptied whole or not at all, and all others', async (t) => {
    await dieEverywhere(
      t,
      async ({ editor, mailbox, folder, reading }) => {
        const { ids } = await reading.reader.matching(mailbox, folder('A'), {});
        return editor.messages.remove(mailbox, folder('A'), ids);
      },
      (found) => {
        assert.ok(found['A']?.every((content) => before['A']?.includes(content)));
        assert.deepEqual({ ...found, A: before['A'] }, before);
      },
    );
  });

  test('leaves a message that was to be filed whole or not at all', async (t) => {
    const added = 'Subject: added\r\n\r\n';
    await dieEverywhere(
      t,
      (fixture) => fixture.append(added.replaceAll('\r\n', '\n'), 'B'),
      oneOf(before, { ...before, B: [added] }),
    );
  });
});

test('a start completes the changes of this server and of an earlier version, and leaves those of others', async (t) => {
  const fixture = await EditingFixture.open(t);
  const { root } = fixture.reading;
  const { domain, user } = fixture.mailbox;
  const other = '01k7m3v9q0000zzzzzzz';
  const intent = '01k7m3v9q1111abcdefg';
  for (const [name, folder] of [
    ['Own', join(root, '.intents', thisNode)],
    ['Former', join(root, '.intents')],
    ['Other', join(root, '.intents', other)],
  ] as const) {
    await fixture.reading.makeFolder(name);
    const steps = { renames: [[`.${name}`, `.${name}-renamed`]], remove: [], subscriptions: null };
    await mkdir(folder, { recursive: true });
    await writeFile(join(folder, intent), JSON.stringify({ domain, user, ...steps }));
  }
  const restarted = await EditingFixture.over(fixture.reading);
  assert.deepEqual((await restarted.folderNames()).toSorted(), ['Former-renamed', 'INBOX', 'Other', 'Own-renamed']);
  assert.deepEqual((await readdir(join(root, '.intents'))).toSorted(), [thisNode, other].toSorted());
  assert.deepEqual(await readdir(join(root, '.intents', other)), [intent]);
  const there = await EditingFixture.over(fixture.reading, { node: other });
  assert.deepEqual((await there.folderNames()).toSorted(), ['Former-renamed', 'INBOX', 'Other-renamed', 'Own-renamed']);
});
