import assert from 'node:assert/strict';
import { mkdir, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { isProblem } from '../../../../core/problem.js';
import { openInTime } from '../../../../plugins/client-queue/queue/open-relay-queue.js';
import { rememberingLog } from '../../../core/spool/remembering-log.js';
import { claiming, newEntry } from '../../../kit/relay-queue/entries.js';
import { temporaryFolder } from '../../../support/temporary-folder.js';
import { fileQueueFixture } from './queue-fixture.js';

/** A queue that would take long to read: it is opened when `begin` is called. */
async function large(t: TestContext) {
  const fixture = await fileQueueFixture(t);
  const folder = await temporaryFolder(t);
  await mkdir(join(folder, 'journal'));
  const snapshot = join(folder, 'snapshot-01m84pzzeh000wef43te');
  await writeFile(snapshot, '');
  await truncate(snapshot, 17 * 2 ** 20);
  let begin = (): void => undefined;
  const started = new Promise<void>((resolve) => {
    begin = resolve;
  });
  const { log } = rememberingLog();
  const queue = await openInTime(folder, { started, open: () => Promise.resolve(fixture.queue), log });
  return { fixture, queue, begin };
}

test('while a large queue is read, mail that is handed in waits, and questions get 503 with the reason', async (t) => {
  const { fixture, queue, begin } = await large(t);
  const { clock } = fixture;
  const outcomes: string[] = [];
  queue.onOutcome(({ uid }) => outcomes.push(uid));
  let wakes = 0;
  queue.onDue(() => (wakes += 1));
  const isLater = (error: unknown): boolean => isProblem(error) && error.problem === 'unavailable';
  await assert.rejects(queue.list({ filter: {}, limit: 1 }), isLater);
  await assert.rejects(queue.statistics(clock.now()), isLater);
  assert.deepEqual(await queue.claim(claiming(clock.now())), []);
  assert.match(queue.complaint() ?? '', /still being read/);
  assert.equal(queue.nextDue(), null);
  const entry = newEntry(clock.now());
  let isPrepared = false;
  const handIn = async (): Promise<void> => {
    const prepared = await queue.prepare(entry, await fixture.message());
    isPrepared = true;
    await prepared.commit();
    prepared.release();
  };
  const handedIn = handIn();
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.equal(isPrepared, false);
  begin();
  await handedIn;
  assert.equal(queue.complaint(), undefined);
  assert.ok(wakes > 0);
  const [lease] = await queue.claim(claiming(clock.now()));
  assert.equal(lease?.uid, entry.uid);
  await queue.mutate({ uids: [entry.uid] }, { operation: 'delete' }, clock.now());
});

test('health reports a large queue that cannot be read, and no mail is accepted for it', async (t) => {
  const folder = await temporaryFolder(t);
  await mkdir(join(folder, 'journal'));
  await writeFile(join(folder, 'journal', '1.segment'), '');
  await truncate(join(folder, 'journal', '1.segment'), 65 * 2 ** 20);
  const { log, sentences } = rememberingLog();
  const open = () => Promise.reject(new Error('It was written by a newer version.'));
  const queue = await openInTime(folder, { started: Promise.resolve(), open, log });
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.match(queue.complaint() ?? '', /cannot be read.*newer version/);
  assert.ok(sentences.some((sentence) => /cannot be read/.test(sentence)));
  const fixture = await fileQueueFixture(t);
  await assert.rejects(queue.prepare(newEntry(0), await fixture.message()), /newer version/);
  await queue.close();
});

test('a small queue is there at once', async (t) => {
  const fixture = await fileQueueFixture(t);
  const { log } = rememberingLog();
  const open = () => Promise.resolve(fixture.queue);
  assert.equal(await openInTime(fixture.folder, { started: new Promise(() => undefined), open, log }), fixture.queue);
});
