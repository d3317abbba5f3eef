import assert from 'node:assert/strict';
import { access, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import type { MailboxPlace } from '../../../../core/contracts/mailbox-owners.js';
import { FramedInput } from '../../../../plugins/cluster/mailboxes/framed-input.js';
import { MailboxMoves } from '../../../../plugins/cluster/mailboxes/mailbox-moves.js';
import type { OwnerRow } from '../../../../plugins/cluster/mailboxes/owner-table.js';
import { rememberingLog } from '../../../core/spool/remembering-log.js';
import type { Ending } from '../../../support/ending.js';
import { temporaryFolder } from '../../../support/temporary-folder.js';

/** The node `mx2`, with the table in memory. A message is a file in the folder of its user. */
async function site(t: Ending, row: Partial<OwnerRow> = {}) {
  const root = await temporaryFolder(t);
  let row1: OwnerRow = { username: 'ann', revision: '1', node: 'mx2', moving: null, leaves: null, note: null, ...row };
  const { log, sentences } = rememberingLog();
  const sent: string[] = [];
  const inUse = new Set<string>();
  const closed = new Set<string>();
  const folderOf = (username: string): string => join(root, username);
  const place = {
    root,
    folderOf,
    usernameIn: () => undefined,
    list: () => Promise.resolve([]),
    count: (username: string) =>
      readdir(folderOf(username)).then(
        ({ length }) => length,
        () => undefined,
      ),
    remove: (username: string) => rm(folderOf(username), { recursive: true, force: true }),
    settled: Promise.resolve(),
  } satisfies MailboxPlace;
  const moves = new MailboxMoves({
    node: 'mx2',
    log,
    mailboxes: {
      close(username) {
        closed.add(username);
        return () => closed.delete(username);
      },
      unused: (username) => (inUse.has(username) ? new Promise(() => undefined) : Promise.resolve()),
    },
    link: {
      async ask(_, __, body) {
        const chunks: Buffer[] = [];
        for await (const chunk of body(false)) chunks.push(chunk);
        sent.push(Buffer.concat(chunks).toString());
        row1 = { ...row1, node: 'mx1', moving: null, leaves: 'mx2' };
        return {};
      },
    },
    table: {
      find: () => row1,
      ownedBy: (node) => (node === row1.node ? [row1.username] : []),
      row: () => Promise.resolve(row1),
      tasks: () => Promise.resolve([row1]),
      pull: () => Promise.resolve(),
      save: () => Promise.resolve(),
      change(_, change) {
        row1 = { ...row1, ...change };
        return Promise.resolve(true);
      },
    },
  });
  const copy = join(root, '.incoming', `${createHash('sha256').update('ann').digest('hex')}.whole`);
  return {
    root,
    place,
    moves,
    sent,
    sentences,
    inUse,
    closed,
    copy,
    row: () => row1,
    change: (more: Partial<OwnerRow>) => (row1 = { ...row1, ...more }),
    /** A copy that has come. */
    arrived: async (path = copy) => {
      await mkdir(path, { recursive: true });
      await writeFile(join(path, '1'), 'the only one');
    },
  };
}

const isThere = (path: string): Promise<boolean> =>
  access(path).then(
    () => true,
    () => false,
  );

describe('moves of mailboxes', () => {
  test('none begins with a mailbox whose copy is not in its place', async (t) => {
    const { moves, place, copy, sent, row, change, arrived } = await site(t);
    await arrived();
    await mkdir(place.folderOf('ann'));
    await writeFile(join(place.folderOf('ann'), 'x'), 'of a stranger');
    await moves.open(place, true);
    change({ moving: 'mx1' });
    await moves.run();
    assert.deepEqual([sent, row().node, row().note], [[], 'mx2', 'its copy is not in its place yet']);
    assert.equal(await readFile(join(copy, '1'), 'utf8'), 'the only one');
    await place.remove('ann');
    await moves.run();
    assert.match(sent.join(), /the only one/);
    assert.deepEqual([row().node, row().leaves, await isThere(place.folderOf('ann'))], ['mx1', null, false]);
  });

  test('no copy that is not in its place is removed, also when it comes again', async (t) => {
    const { moves, place, root, copy, change, arrived, sentences } = await site(t);
    await arrived();
    const [other, part] = [join(root, '.incoming', 'of-another.whole'), join(root, '.incoming', 'part')];
    await arrived(other);
    await mkdir(part);
    await mkdir(place.folderOf('ann'));
    await writeFile(join(place.folderOf('ann'), 'x'), 'of a stranger');
    await moves.open(place, true);
    assert.deepEqual(await Promise.all([copy, other, part].map(isThere)), [true, true, false]);
    assert.match(sentences.join(), /a copy of a mailbox that is not of this node is kept/);
    change({ node: 'mx1', moving: 'mx2' });
    const input = new FramedInput(
      (async function* () {
        yield await Promise.resolve(Buffer.from('{"username":"ann","from":"mx1","revision":"1"}\n'));
      })(),
    );
    await assert.rejects(moves.receive(input), /not in its place yet/);
    assert.equal(await isThere(copy), true);
  });

  test('a copy is put into its place once, though it is asked for several times at once', async (t) => {
    const { moves, place, arrived, closed } = await site(t);
    await moves.open(place, true);
    await arrived();
    await Promise.all([1, 2, 3].map(() => moves.install(['ann'])));
    assert.equal(await readFile(join(place.folderOf('ann'), '1'), 'utf8'), 'the only one');
    assert.equal(closed.size, 0);
  });

  test('what cannot be put into its place is closed at once, also while it is in use', async (t) => {
    const { moves, place, root, inUse, closed } = await site(t);
    await moves.open(place, true);
    inUse.add('ann');
    await writeFile(join(root, '.incoming'), 'no folder');
    await moves.install(['ann']);
    assert.deepEqual([...closed], ['ann']);
    await rm(join(root, '.incoming'));
    await moves.run();
    assert.deepEqual([...closed], []);
  });
});
