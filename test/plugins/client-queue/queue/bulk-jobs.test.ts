import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import type { MutationResult, MutationRun } from '../../../../core/contracts/relay-queue.js';
import { BulkJobs, type JobOrder } from '../../../../plugins/client-queue/queue/bulk-jobs.js';
import { rememberingLog } from '../../../core/spool/remembering-log.js';
import { HandClock } from '../../../support/hand-clock.js';
import { temporaryFolder } from '../../../support/temporary-folder.js';
import { until } from '../../../support/until.js';

const order: JobOrder = { operation: 'hold', selection: 'domain two.example', by: 'ann', back: '/', total: 10 };

async function fixtureOf(t: TestContext) {
  const file = join(await temporaryFolder(t), 'queue-jobs.json');
  const { log, sentences } = rememberingLog();
  const clock = new HandClock(1_000_000);
  const open = () => BulkJobs.open({ file, clock, log });
  return { file, clock, sentences, open, jobs: await open() };
}

/** The result after so many of ten entries, each with one recipient. */
function resultOf(done: number): MutationResult {
  const uids = Array.from({ length: done }, (_, index) => `uid-${index}`);
  return {
    requested: 10,
    changed: done,
    recipients: done,
    messages: done,
    otherRecipients: 3,
    results: uids.map((uid) => ({ uid, outcome: 'done', detail: null })),
    newlyHeld: Object.fromEntries(uids.map((uid) => [uid, [0]])),
  };
}

/** Work of ten steps that goes on when it is told to, and ends where it is cancelled. */
function steps() {
  let goOn: (() => void) | undefined;
  const work = async ({ signal, progress }: MutationRun): Promise<MutationResult> => {
    for (let done = 1; done <= 10; done += 1) {
      await new Promise<void>((resolve) => {
        goOn = resolve;
        signal.addEventListener('abort', () => resolve(), { once: true });
      });
      if (signal.aborted) return resultOf(done - 1);
      progress({ total: 10, done, recipients: done, messages: done, otherRecipients: 0 });
    }
    return resultOf(10);
  };
  const step = async (): Promise<void> => {
    const resolve = await until('the next step', () => goOn);
    goOn = undefined;
    resolve();
  };
  return { work, step };
}

test('a job tells how far it is while it runs, and its result stays over a restart', async (t) => {
  const { jobs, open } = await fixtureOf(t);
  const { work, step } = steps();
  const { id, state } = await jobs.start(order, work);
  assert.equal(state, 'running');
  for (let done = 1; done <= 10; done += 1) {
    await step();
    await until('its progress', () => (jobs.get(id)?.done === done ? true : undefined));
  }
  await jobs.stop();
  const again = (await open()).get(id);
  assert.deepEqual([again?.state, again?.done, again?.recipients, again?.otherRecipients], ['done', 10, 10, 3]);
});

test('a cancelled job says how far it came, and what it has held can be undone once', async (t) => {
  const { jobs } = await fixtureOf(t);
  const { work, step } = steps();
  const { id } = await jobs.start(order, work);
  await step();
  await until('its progress', () => (jobs.get(id)?.done === 1 ? true : undefined));
  assert.equal(await jobs.cancel(id), true);
  assert.deepEqual([jobs.get(id)?.state, jobs.get(id)?.done], ['cancelled', 1]);
  assert.equal(await jobs.cancel(id), false, 'it has ended');
  assert.deepEqual(await jobs.takeUndo(id), { 'uid-0': [0] });
  assert.equal(await jobs.takeUndo(id), undefined);
});

test('a job that a kill ended is interrupted, with the progress of the last second', async (t) => {
  const { jobs, open, clock, file } = await fixtureOf(t);
  const { work, step } = steps();
  const { id } = await jobs.start(order, work);
  clock.advance(2);
  await step();
  await until('its progress on disk', async () =>
    (await readFile(file, 'utf8')).includes('"done": 1') ? true : undefined,
  );
  const again = (await open()).get(id);
  assert.deepEqual([again?.state, again?.done], ['interrupted', 1]);
  await jobs.stop();
});

test('a stop interrupts what runs, and takes nothing new', async (t) => {
  const { jobs, open } = await fixtureOf(t);
  const { id } = await jobs.start(order, steps().work);
  await jobs.stop();
  assert.equal((await open()).get(id)?.state, 'interrupted');
  await assert.rejects(jobs.start(order, steps().work), { problem: 'unavailable' });
});

test('a job that fails says so', async (t) => {
  const { jobs } = await fixtureOf(t);
  const { id } = await jobs.start(order, () => Promise.reject(new Error('a secret of the server')));
  await until('its end', () => (jobs.get(id)?.state === 'failed' ? true : undefined));
  assert.doesNotMatch(jobs.get(id)?.error ?? 'secret', /secret/);
});

test('the newest 50 are kept, with Undo for 20,000 entries', async (t) => {
  const { jobs, open } = await fixtureOf(t);
  const first = await jobs.record(order, resultOf(10));
  const uids = Array.from({ length: 12_000 }, (_, index) => `uid-${index}`);
  const large = { ...resultOf(10), newlyHeld: Object.fromEntries(uids.map((uid) => [uid, [0]])) };
  const second = await jobs.record(order, large);
  assert.notEqual(first.held, null);
  await jobs.record(order, large);
  assert.deepEqual([first.held, second.held], [null, null]);
  for (let count = 0; count < 50; count += 1) await jobs.record(order, resultOf(1));
  assert.equal(jobs.list().length, 50);
  assert.equal((await open()).list().length, 50);
  assert.equal(jobs.get(first.id), undefined);
});

test('a damaged file is set aside, and the queue opens', async (t) => {
  const { file, open, sentences } = await fixtureOf(t);
  await writeFile(file, '{"jobs": [{');
  assert.deepEqual((await open()).list(), []);
  assert.equal(await readFile(`${file}.damaged`, 'utf8'), '{"jobs": [{');
  assert.match(sentences.join('\n'), /set aside/);
});
