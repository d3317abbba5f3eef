import assert from 'node:assert/strict';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import type { Delivery, RecipientOutcome } from '../../../core/pipeline/delivery-target.js';
import { isProblem } from '../../../core/problem.js';
import type { Recipient, Transaction } from '../../../core/pipeline/transaction.js';
import { FaultyFiles } from '../../core/spool/faulty-files.js';
import { deliver, inbox, openStore, prologue, recipient, transactionOf } from './delivery-fixture.js';
import { EditingFixture, problemOf } from './editing-fixture.js';

const quota = 1000;
const text = `Subject: x\r\n\r\n${'x'.repeat(384)}\r\n`;
/** So many messages fit; of more, the others are refused. */
const fitting = 2;
const many = 6;
const counts = 100;

const refused = 'deferred 452 4.2.2 There is no room left in this mailbox: its quota is used up.';
const isProblemNamed = (name: string) => (error: unknown) => isProblem(error) && error.problem === name;

const wordsOf = (given: RecipientOutcome): string =>
  given.outcome === 'delivered' ? 'delivered' : `${given.outcome} ${given.code} ${given.status} ${given.text}`;

suite('a quota holds when much comes at once', () => {
  test('by uploads', async (t) => {
    const fixture = await EditingFixture.open(t, { quota });
    const outcomes = await Promise.all(Array.from({ length: many }, () => problemOf(fixture.append(text))));
    assert.deepEqual(
      outcomes.toSorted(),
      Array.from({ length: many }, (_, n) => (n < many - fitting ? 'mailbox-full' : 'none')),
    );
    assert.equal((await fixture.contents())['INBOX']?.length, fitting);
  });

  test('by deliveries and an upload, and what is not delivered makes room again', async (t) => {
    const fixture = await EditingFixture.open(t, { quota });
    const store = await openStore(t, { root: fixture.reading.root, quotas: fixture.editor.quotas });
    const begin = async (): Promise<Delivery> => {
      const to = [recipient('ann@example.org')];
      const delivery = await store.target.start(transactionOf(to), to);
      const message = await store.spool.create(prologue.returnPath, prologue.trace);
      await message.write(Buffer.from(text));
      await delivery.body(await message.finish());
      return delivery;
    };
    const taken = await Promise.all(Array.from({ length: fitting }, begin));
    const late = await Promise.all(Array.from({ length: many - fitting }, begin));
    for (const delivery of late) assert.deepEqual((await delivery.commit()).map(wordsOf), [refused]);
    assert.equal(await problemOf(fixture.append(text)), 'mailbox-full');
    await taken[0]?.abort();
    assert.equal(await problemOf(fixture.append(text)), 'none');
    await taken[1]?.commit();
    assert.equal(await problemOf(fixture.append(text)), 'mailbox-full');
    assert.equal((await fixture.contents())['INBOX']?.length, fitting);
  });

  test('by deliveries to several mailboxes, each by its own room', async (t) => {
    const fixture = await EditingFixture.open(t, { quota });
    const store = await openStore(t, { root: fixture.reading.root, quotas: fixture.editor.quotas });
    const [ann, bob] = [recipient('ann@example.org'), recipient('bob@example.org')];
    const send = (to: readonly Recipient[]) => deliver(store, to, Buffer.from(text)).catch(String);
    await send([bob]);
    const outcomes = await Promise.all(Array.from({ length: many }, () => send([ann, bob, ann])));
    const told = outcomes.map((each) => (typeof each === 'string' ? each : each.map(wordsOf).join(', ')));
    assert.deepEqual(told.toSorted(), [
      ...Array.from({ length: many - fitting }, () => `${refused}, ${refused}, ${refused}`),
      `delivered, ${refused}, delivered`,
      'delivered, delivered, delivered',
    ]);
    assert.equal((await inbox(store, 'ann@example.org')).size, fitting);
    assert.equal((await inbox(store, 'bob@example.org')).size, fitting);
    assert.equal(store.counted.delivered, 2 * fitting);
    assert.equal(store.counted.failed, 0);
    assert.deepEqual(store.sentences, []);
  });

  test('by deliveries to several mailboxes, and what fails makes room in each of them', async (t) => {
    const fixture = await EditingFixture.open(t, { quota });
    const store = await openStore(t, { root: fixture.reading.root, quotas: fixture.editor.quotas });
    const [ann, bob] = [recipient('ann@example.org'), recipient('bob@example.org')];
    const send = (to: readonly Recipient[]) => deliver(store, to, Buffer.from(text));
    for (const step of [
      { call: 'fsync', path: 'spool' },
      { call: 'open', path: 'bob/new' },
      { call: 'rename', path: 'bob' },
    ] as const) {
      store.files.order({ ...step, code: 'EIO' });
      for (let n = 0; n < many; n++) await assert.rejects(send([ann, bob]), isProblemNamed('internal'));
      store.files.order();
    }
    assert.equal(store.counted.delivered, 0);
    for (let n = 0; n < fitting; n++)
      assert.deepEqual((await send([ann, bob])).map(wordsOf), ['delivered', 'delivered']);
    assert.deepEqual((await send([ann, bob])).map(wordsOf), [refused, refused]);
  });

  test('and a full mailbox that has a repeated message already is no reason to refuse it', async (t) => {
    const fixture = await EditingFixture.open(t, { quota });
    const store = await openStore(t, { root: fixture.reading.root, quotas: fixture.editor.quotas });
    const ann = recipient('ann@example.org');
    const repeatable = { ...transactionOf([ann]), id: 'q1', repeatable: true };
    const send = (transaction?: Transaction) => deliver(store, [ann], Buffer.from(text), transaction);
    await send(repeatable);
    await send();
    assert.deepEqual((await send()).map(wordsOf), [refused]);
    assert.deepEqual((await send(repeatable)).map(wordsOf), ['delivered']);
    assert.equal((await inbox(store, 'ann@example.org')).size, fitting);
  });

  test('by copies of a folder, and what could not be stored makes room again', async (t) => {
    const disk = new FaultyFiles();
    const fixture = await EditingFixture.open(t, { quota, files: disk });
    await fixture.editor.folders.create(fixture.mailbox, fixture.folder('A'));
    await fixture.append(text, 'A');
    disk.order({ call: 'link', code: 'EDQUOT' });
    for (let n = 0; n < many; n++) assert.equal(await problemOf(fixture.append(text)), 'storage-full');
    disk.order();
    const copy = (to: string) => fixture.editor.folders.copy(fixture.mailbox, fixture.folder('A'), fixture.folder(to));
    const outcomes = await Promise.all([problemOf(copy('B')), problemOf(fixture.append(text)), problemOf(copy('C'))]);
    assert.deepEqual(outcomes.toSorted(), ['mailbox-full', 'mailbox-full', 'none']);
  });

  test('by a count of folders that are renamed meanwhile', async (t) => {
    const fixture = await EditingFixture.open(t, { quota });
    const { mailbox, folder, editor, reading } = fixture;
    for (const name of ['A', 'M', 'Z']) await editor.folders.create(mailbox, folder(name));
    await fixture.append(text, 'A');
    await fixture.append(text, 'Z');
    const counted = new AbortController();
    const renaming = async (): Promise<void> => {
      while (!counted.signal.aborted) {
        for (const [from, to] of [
          ['A', 'B'],
          ['Z', 'Y'],
          ['B', 'A'],
          ['Y', 'Z'],
        ] as const) {
          await editor.folders.rename(mailbox, folder(from), folder(to));
        }
      }
    };
    const renames = renaming();
    const outcomes: string[] = [];
    for (let n = 0; n < counts; n++) {
      await rm(join(reading.home, 'maildirsize'), { force: true });
      outcomes.push(await problemOf(Promise.resolve(editor.quotas.requireRoom(mailbox, text.length))));
    }
    counted.abort();
    await renames;
    assert.deepEqual(new Set(outcomes), new Set(['mailbox-full']));
  });
});
