import assert from 'node:assert/strict';
import { access, mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { suiteEnding } from '../../../support/ending.js';
import { skipWithout } from '../../../support/peers.js';
import { runPostern } from '../../../support/server-process.js';
import { until, untilTrue } from '../../../support/until.js';
import { OwnerSite, sendMail } from './owner-site.js';

const waiting = "select count(*) from postern.recipient where destination = 'target:mailbox' and state in (0, 1, 2)";

describe('moving a mailbox', { skip: skipWithout('postgres') }, () => {
  let site: OwnerSite;
  const ending = suiteEnding();
  before(async () => {
    site = await OwnerSite.start(ending, ['mx1', 'mx2']);
    await site.users('mx1', 'ann', 'bob', 'cat', 'dan');
  });

  const folderAt = (node: string, user: string): string =>
    join(site.node(node).folder, 'data', 'mail', 'example.org', user);
  const isAt = (node: string, user: string): Promise<boolean> =>
    access(folderAt(node, user)).then(
      () => true,
      () => false,
    );
  const otherThan = (node: string): string => (node === 'mx1' ? 'mx2' : 'mx1');
  const move = (node: string, user: string, to: string) =>
    runPostern(['cluster', 'move-mailbox', `${user}@example.org`, to], {
      cwd: site.node(node).folder,
      limitMs: 120_000,
    });
  const stateOf = (user: string): Promise<string> =>
    site.sql(
      `select node, coalesce(moving, '-'), coalesce(leaves, '-') from postern.mailbox_owner where username = '${user}@example.org'`,
    );

  test('takes all folders, flags and times along, and removes the old copy', async () => {
    const from = await site.ownerOf('ann');
    const to = otherThan(from);
    for (const nth of [1, 2, 3]) assert.equal(await sendMail(site.node(to), ['ann'], `before ${nth}`), 250);
    const admin = site.node(from).admin;
    await admin.json('/store/example.org/ann/folders', { json: { name: 'Work' } }, 201);
    const { items } = (await admin.json('/store/example.org/ann/folders/INBOX')) as {
      items: readonly { id: string; receivedAt: string; subject: string }[];
    };
    const { stdout, stderr, code } = await move('mx1', 'ann', to);
    assert.equal(code, 0, stderr);
    assert.match(stdout, new RegExp(`ann@example.org is on ${to}\\.`));
    assert.equal(await stateOf('ann'), `${to}|-|-`);
    assert.equal(await isAt(from, 'ann'), false);
    const moved = (await site.node(to).admin.json('/store/example.org/ann/folders/INBOX')) as { items: unknown };
    assert.deepEqual(moved.items, items);
    const folders = (await site.node(to).admin.json('/store/example.org/ann')) as {
      folders: readonly { name: string }[];
    };
    assert.ok(folders.folders.some(({ name }) => name === 'Work'));
    assert.equal(await sendMail(site.node(from), ['ann'], 'after'), 250);
    assert.deepEqual(await site.subjects(to, 'ann'), ['after', 'before 1', 'before 2', 'before 3']);
    assert.equal((await move('mx2', 'ann', to)).code, 0, 'again: nothing to do');
    assert.deepEqual(await readdir(join(site.node(to).folder, 'data', 'mail', '.incoming')), []);
  });

  test('loses and doubles no mail that comes meanwhile', async () => {
    const from = await site.ownerOf('bob');
    const over = new AbortController();
    let nth = 0;
    const accepted: string[] = [];
    const client = async (): Promise<void> => {
      while (!over.signal.aborted) {
        const subject = `coming ${(nth += 1)}`;
        if ((await sendMail(site.node(nth % 2 === 0 ? 'mx1' : 'mx2'), ['bob'], subject)) === 250)
          accepted.push(subject);
      }
    };
    const clients = Promise.all([client(), client(), client()]);
    for (const to of [otherThan(from), from, otherThan(from)]) {
      const { code, stderr } = await move('mx1', 'bob', to);
      assert.equal(code, 0, stderr);
    }
    over.abort();
    await clients;
    await untilTrue('the queue is empty', async () => (await site.sql(waiting)) === '0', 60_000);
    const to = otherThan(from);
    assert.equal(await isAt(from, 'bob'), false);
    assert.deepEqual(await site.subjects(to, 'bob'), accepted.toSorted());
    assert.ok(accepted.length > 10);
  });

  test('waits for a node that is away, and may be taken back', async () => {
    const from = await site.ownerOf('cat');
    const to = otherThan(from);
    assert.equal(await sendMail(site.node(to), ['cat'], 'one'), 250);
    const admin = site.node(from).admin;
    const unknown = await admin.request('/cluster/move-mailbox', {
      json: { username: 'cat@example.org', node: 'mx9' },
    });
    assert.equal(unknown.status, 404);
    await site.node(to).server.kill('SIGKILL');
    const wish = { username: 'cat@example.org', node: to };
    await admin.json('/cluster/move-mailbox', { json: wish });
    await untilTrue('it is frozen', async () => {
      const { status } = await admin.request('/store/example.org/cat', { accept: 'application/json' });
      return status === 503;
    });
    assert.equal(await sendMail(site.node(from), ['cat'], 'two'), 250);
    const note = await until('a note', async () => {
      const state = (await admin.json('/cluster/mailboxes/cat@example.org')) as { note: string | null };
      return state.note ?? undefined;
    });
    assert.match(note, /does not answer/);
    await admin.json('/cluster/move-mailbox', { json: { username: 'cat@example.org', node: from } });
    await untilTrue('both are there', async () => (await site.subjects(from, 'cat')).length === 2, 30_000);
    await site.again(to);
  });

  test('refuses where an old mailbox lies', async () => {
    const from = await site.ownerOf('dan');
    const to = otherThan(from);
    for (const part of ['new', 'cur', 'tmp']) await mkdir(join(folderAt(to, 'dan'), part), { recursive: true });
    await writeFile(join(folderAt(to, 'dan'), 'cur', '1.M1P1.old,S=14:2,S'), 'Subject: old\r\n');
    await site.node(from).admin.json('/cluster/move-mailbox', { json: { username: 'dan@example.org', node: to } });
    const note = await until('a note', async () => {
      const path = '/cluster/mailboxes/dan@example.org';
      return ((await site.node(from).admin.json(path)) as { note: string | null }).note ?? undefined;
    });
    assert.match(note, /An old mailbox dan@example\.org with 1 messages lies on/);
    await site.node(from).admin.json('/cluster/move-mailbox', { json: { username: 'dan@example.org', node: from } });
    assert.equal(await stateOf('dan'), `${from}|-|-`);
  });

  describe('that is killed', () => {
    const count = 2000;
    const incoming = async (node: string): Promise<boolean> =>
      (await readdir(join(site.node(node).folder, 'data', 'mail', '.incoming')).catch(() => [])).length > 0;
    const points: Readonly<Record<string, (from: string, to: string) => Promise<boolean>>> = {
      'while it is copied': (_, to) => incoming(to),
      'when it has another owner': async () => (await stateOf('eve')).split('|')[2] !== '-',
    };
    before(async () => {
      await site.users('mx1', 'eve');
      const folder = folderAt(await site.ownerOf('eve'), 'eve');
      for (const part of ['new', 'cur', 'tmp']) await mkdir(join(folder, part), { recursive: true });
      for (let nth = 0; nth < count; nth += 1) {
        const text = `Subject: ${nth}\r\n\r\n${'text '.repeat(200)}\r\n`;
        await writeFile(join(folder, 'cur', `${1_700_000_000 + nth}.M1P1.host,S=${text.length}:2,S`), text);
      }
    });

    for (const [where, isThere] of Object.entries(points)) {
      for (const victim of ['old', 'new'] as const) {
        test(`${where}, at its ${victim} node, goes on and leaves one mailbox`, async () => {
          const from = await site.ownerOf('eve');
          const to = otherThan(from);
          const wish = { username: 'eve@example.org', node: to };
          await site.node(from).admin.json('/cluster/move-mailbox', { json: wish });
          await untilTrue(
            'the point is reached',
            async () => (await isThere(from, to)) || (await site.ownerOf('eve')) === to,
          );
          const killed = victim === 'old' ? from : to;
          await site.node(killed).server.kill('SIGKILL');
          await site.again(killed);
          const { code, stderr } = await move('mx1', 'eve', to);
          assert.equal(code, 0, stderr);
          assert.equal(await stateOf('eve'), `${to}|-|-`);
          assert.equal(await isAt(from, 'eve'), false);
          const subjects = await site.subjects(to, 'eve');
          assert.equal(new Set(subjects).size, count);
          assert.equal(subjects.length, count);
          assert.equal(await incoming(to), false);
        });
      }
    }
  });
});
