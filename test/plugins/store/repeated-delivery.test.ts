import assert from 'node:assert/strict';
import { mkdir, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { deliver, inbox, inboxOf, openStore, recipient, transactionOf } from './delivery-fixture.js';

const ann = recipient('ann@example.org');
const repeatable = (id: string) => ({ ...transactionOf([ann]), id, repeatable: true });

test('a delivery whose end a crash has hidden is done once, under the same name of its mailbox', async (t) => {
  const store = await openStore(t);
  await deliver(store, [ann], undefined, repeatable('q1'));
  const outcomes = await deliver(store, [ann], undefined, repeatable('q1'));
  assert.deepEqual(
    outcomes.map(({ outcome }) => outcome),
    ['delivered'],
  );
  assert.equal((await inbox(store, 'ann@example.org')).size, 1);
  assert.equal(store.counted.delivered, 2);
});

test('it is found where a reader has moved it to cur and set flags', async (t) => {
  const store = await openStore(t);
  await deliver(store, [ann], undefined, repeatable('q1'));
  const [name = ''] = (await inbox(store, 'ann@example.org')).keys();
  const folder = inboxOf(store, 'ann@example.org');
  const read = join(folder, '..', 'cur');
  await mkdir(read, { recursive: true });
  await rename(join(folder, name), join(read, `${name}:2,S`));
  await deliver(store, [ann], undefined, repeatable('q1'));
  assert.equal((await inbox(store, 'ann@example.org')).size, 0);
});

test('only those who have it not get it when it is repeated', async (t) => {
  const store = await openStore(t);
  await deliver(store, [ann], undefined, repeatable('q1'));
  const bob = recipient('bob@example.org');
  await deliver(store, [ann, bob], undefined, { ...repeatable('q1'), recipients: [ann, bob] });
  assert.equal((await inbox(store, 'ann@example.org')).size, 1);
  assert.equal((await inbox(store, 'bob@example.org')).size, 1);
});

test('another message is another delivery, and an ordinary one is never taken for a repetition', async (t) => {
  const store = await openStore(t);
  await deliver(store, [ann], undefined, repeatable('q1'));
  await deliver(store, [ann], undefined, repeatable('q2'));
  await deliver(store, [ann]);
  await deliver(store, [ann]);
  assert.equal((await inbox(store, 'ann@example.org')).size, 4);
});

test('a mailbox is looked through only where an earlier try may have been interrupted', async (t) => {
  const store = await openStore(t);
  const folder = join(inboxOf(store, 'ann@example.org'), '..');
  await deliver(store, [ann]);
  // What cannot be listed would fail the delivery.
  await rename(join(folder, 'cur'), join(folder, 'elsewhere'));
  await writeFile(join(folder, 'cur'), '');
  await deliver(store, [ann], undefined, { ...repeatable('q1'), fresh: true });
  assert.equal((await inbox(store, 'ann@example.org')).size, 2);
  await assert.rejects(deliver(store, [ann], undefined, repeatable('q1')));
});
