import assert from 'node:assert/strict';
import { readdir, rm, stat, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { isProblem } from '../../../core/problem.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import {
  body,
  deliver,
  inbox,
  inboxOf,
  openStore,
  recipient,
  spooled,
  transactionOf,
  whole,
} from './delivery-fixture.js';

test('the first message makes the mailbox, and its file says how large it is', async (t) => {
  const store = await openStore(t);
  const outcomes = await deliver(store, [recipient('ann@example.org')]);
  assert.deepEqual(
    outcomes.map(({ outcome }) => outcome),
    ['delivered'],
  );
  const [[name, content] = ['', undefined]] = await inbox(store, 'ann@example.org');
  assert.ok(content?.equals(whole));
  assert.match(name, new RegExp(`\\.mail\\.example\\.org,S=${whole.length},W=${whole.length}$`));
  assert.equal((await stat(join(inboxOf(store, 'ann@example.org'), name))).mode & 0o777, 0o600);
  assert.deepEqual(await readdir(join(store.mail, 'example.org', 'ann', 'tmp')), []);
  assert.deepEqual(store.counted, { delivered: 1, bytes: whole.length, failed: 0 });
});

test('recipients of one mailbox share a delivery, and each has its outcome in order', async (t) => {
  const store = await openStore(t);
  const recipients = [
    recipient('ann@example.org'),
    recipient('bob@example.org'),
    recipient('ann+news@example.org', 'ann@example.org'),
    recipient('ann@example.org'),
  ];
  const outcomes = await deliver(store, recipients);
  assert.deepEqual(
    outcomes.map(({ recipient }) => recipient),
    recipients,
  );
  assert.equal((await inbox(store, 'ann@example.org')).size, 1);
  assert.equal((await inbox(store, 'bob@example.org')).size, 1);
  const [ann] = (await inbox(store, 'ann@example.org')).keys();
  const [bob] = (await inbox(store, 'bob@example.org')).keys();
  assert.notEqual(ann, bob);
});

test('nothing is visible before the commit, and an abort leaves nothing', async (t) => {
  const store = await openStore(t);
  const recipients = [recipient('ann@example.org')];
  const message = await spooled(store.spool);
  const delivery = await store.target.start(transactionOf(recipients), recipients);
  await delivery.body(message);
  assert.equal((await inbox(store, 'ann@example.org')).size, 0);
  await delivery.abort();
  await message.release();
  assert.equal((await inbox(store, 'ann@example.org')).size, 0);
});

test('an abort after the commit takes the message back', async (t) => {
  const store = await openStore(t);
  const recipients = [recipient('ann@example.org'), recipient('bob@example.org')];
  const message = await spooled(store.spool);
  const delivery = await store.target.start(transactionOf(recipients), recipients);
  await delivery.body(message);
  await delivery.commit();
  await delivery.abort();
  assert.equal((await inbox(store, 'ann@example.org')).size, 0);
  assert.equal((await inbox(store, 'bob@example.org')).size, 0);
});

test('an abort in the middle of a commit leaves nothing either', async (t) => {
  const store = await openStore(t);
  const recipients = [recipient('ann@example.org'), recipient('bob@example.org')];
  const message = await spooled(store.spool);
  const delivery = await store.target.start(transactionOf(recipients), recipients);
  await delivery.body(message);
  const release = store.files.hold('link');
  const committed = delivery.commit();
  await delivery.abort();
  release();
  await assert.rejects(committed);
  assert.equal((await inbox(store, 'ann@example.org')).size, 0);
  assert.equal((await inbox(store, 'bob@example.org')).size, 0);
});

test('an abort that cannot revoke a message says so in the log', async (t) => {
  const store = await openStore(t);
  const recipients = [recipient('ann@example.org')];
  const message = await spooled(store.spool);
  const delivery = await store.target.start(transactionOf(recipients), recipients);
  await delivery.body(message);
  await delivery.commit();
  await rm(inboxOf(store, 'ann@example.org'), { recursive: true });
  await delivery.abort();
  assert.ok(store.sentences.some((sentence) => sentence.startsWith('possible duplicate')));
});

test('a mailbox that is removed between body and commit is made again', async (t) => {
  const store = await openStore(t);
  const recipients = [recipient('ann@example.org')];
  const message = await spooled(store.spool);
  const delivery = await store.target.start(transactionOf(recipients), recipients);
  await delivery.body(message);
  await rm(join(store.mail, 'example.org'), { recursive: true });
  await delivery.commit();
  assert.equal((await inbox(store, 'ann@example.org')).size, 1);
});

test('a name that is taken is answered by a new one', async (t) => {
  const store = await openStore(t);
  store.files.order({ call: 'rename', code: 'EEXIST', nth: 1 }, { call: 'rename', code: 'EEXIST', nth: 1 });
  await deliver(store, [recipient('ann@example.org')]);
  const names = store.files.calls.filter((line) => line.startsWith('rename '));
  assert.equal(new Set(names).size, 3);
  assert.equal((await inbox(store, 'ann@example.org')).size, 1);
});

test('nothing is delivered through a symbolic link', async (t) => {
  const store = await openStore(t);
  const elsewhere = await temporaryFolder(t);
  await deliver(store, [recipient('ann@example.org')]);
  await rm(inboxOf(store, 'ann@example.org'), { recursive: true });
  await symlink(elsewhere, inboxOf(store, 'ann@example.org'));
  await assert.rejects(deliver(store, [recipient('ann@example.org'), recipient('bob@example.org')]), isProblem);
  assert.deepEqual(await readdir(elsewhere), []);
  assert.equal((await inbox(store, 'bob@example.org')).size, 0);
});

test('a destination that can be no mailbox refuses the delivery and makes nothing', async (t) => {
  const store = await openStore(t);
  for (const user of ['ann@[127.0.0.1]', '@example.org', 'ann', 'ann@..']) {
    const recipients = [recipient('ann@example.org', user)];
    await assert.rejects(store.target.start(transactionOf(recipients), recipients), isProblem);
  }
  assert.deepEqual(await readdir(store.mail), []);
});

test('many deliveries at the same time all arrive, and the spool is empty after', async (t) => {
  const store = await openStore(t);
  const bodies = Array.from({ length: 200 }, (_, n) => Buffer.concat([body, Buffer.from(`number ${n}\r\n`)]));
  await Promise.all(bodies.map((content) => deliver(store, [recipient('ann@example.org')], content)));
  const found = [...(await inbox(store, 'ann@example.org')).values()].map((content) => content.toString());
  const sent = bodies.map((content) => whole.toString().replace(body.toString(), content.toString()));
  assert.deepEqual(found.sort(), sent.sort());
  await store.spool.settled();
  assert.deepEqual(await readdir(join(store.root, 'spool')), []);
  assert.ok(store.files.count('fsync', 'ann/new') < 200, 'the fsyncs of the folder were shared');
});
