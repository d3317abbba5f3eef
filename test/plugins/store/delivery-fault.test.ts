import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { classOf, isProblem } from '../../../core/problem.js';
import type { Fault } from '../../core/spool/faulty-files.js';
import { deliver, inbox, openStore, recipient } from './delivery-fixture.js';

const replies = { ENOSPC: 452, EDQUOT: 452, EROFS: 452, EIO: 451, EMFILE: 451 } as const;
const codes = Object.keys(replies) as (keyof typeof replies)[];
const steps: readonly Omit<Fault, 'code'>[] = [
  { call: 'lstat', path: 'bob' },
  { call: 'open', path: 'spool' },
  { call: 'write' },
  { call: 'fsync', path: 'spool' },
  { call: 'close', path: 'spool' },
  { call: 'link', path: 'bob' },
  { call: 'rename', path: 'cid' },
  { call: 'open', path: 'bob/new' },
  { call: 'fsync', path: 'bob/new' },
];

for (const step of steps) {
  test(`when ${step.call} on ${step.path ?? 'anything'} fails, no recipient keeps the message`, async (t) => {
    for (const code of codes) {
      const store = await openStore(t);
      const recipients = [recipient('ann@example.org'), recipient('bob@example.org'), recipient('cid@example.com')];
      await deliver(store, recipients);
      store.files.order({ ...step, code });
      const error = await deliver(store, recipients).then(
        () => assert.fail('it was acknowledged'),
        (error: unknown) => error,
      );
      assert.ok(isProblem(error), String(error));
      assert.equal(classOf(error).smtp[0], replies[code]);
      assert.ok(!`${error.message} ${error.details.detail ?? ''}`.includes('/'), error.message);
      assert.deepEqual(await sizes(store), [1, 1, 1]);
      store.files.order();
      await store.spool.settled();
      assert.deepEqual(await readdir(join(store.root, 'spool')), []);
      assert.equal(store.files.opened.size, 0);
      assert.deepEqual([store.counted.delivered, store.counted.failed], [3, 3]);
      await deliver(store, recipients);
      assert.deepEqual(await sizes(store), [2, 2, 2]);
    }
  });
}

for (const call of ['mkdir', 'fsync'] as const) {
  test(`when ${call} fails for a new mailbox the message is refused, and taken the next time`, async (t) => {
    const store = await openStore(t);
    store.files.order({ call, code: 'ENOSPC', nth: 1, path: 'example.org' });
    await assert.rejects(
      deliver(store, [recipient('ann@example.org')]),
      (error) => isProblem(error) && error.problem === 'storage-full',
    );
    await deliver(store, [recipient('ann@example.org')]);
    assert.equal((await inbox(store, 'ann@example.org')).size, 1);
  });
}

test('a sibling that cannot be revoked is logged as a possible duplicate', async (t) => {
  const store = await openStore(t);
  const recipients = [recipient('ann@example.org'), recipient('bob@example.org')];
  await deliver(store, recipients);
  store.files.order({ call: 'rename', code: 'ENOSPC', path: 'bob' }, { call: 'unlink', code: 'EIO', path: 'ann' });
  await assert.rejects(deliver(store, recipients), isProblem);
  assert.ok(store.sentences.some((sentence) => sentence.startsWith('possible duplicate')));
});

test('after a fault of the disk the store is degraded until a probe can write again', async (t) => {
  const store = await openStore(t);
  store.files.order({ call: 'fsync', code: 'EIO' });
  await assert.rejects(deliver(store, [recipient('ann@example.org')]), isProblem);
  await store.health.probe();
  assert.equal(store.health.report().status, 'degraded');
  store.files.order();
  await store.health.probe();
  assert.deepEqual(store.health.report(), { status: 'up' });
  assert.deepEqual(
    (await readdir(store.mail)).filter((name) => name.startsWith('.')),
    [],
  );
});

function sizes(store: Parameters<typeof inbox>[0]): Promise<readonly number[]> {
  const users = ['ann@example.org', 'bob@example.org', 'cid@example.com'];
  return Promise.all(users.map(async (user) => (await inbox(store, user)).size));
}

for (const code of ['EACCES', 'EPERM', 'EMLINK', 'EMFILE'] as const) {
  test(`a mailbox that refuses a message with ${code} shows in health, with the cause`, async (t) => {
    const store = await openStore(t);
    await deliver(store, [recipient('bob@example.org')]);
    store.files.order({ call: 'open', path: 'bob/new', code });
    await assert.rejects(deliver(store, [recipient('bob@example.org')]));
    const { status, why } = store.health.report();
    assert.equal(status, 'degraded');
    assert.match(why ?? '', /another user|EMLINK|EMFILE/);
    store.files.order();
    await store.health.probe();
    assert.equal(store.health.report().status, code === 'EMFILE' ? 'up' : 'degraded');
  });
}
