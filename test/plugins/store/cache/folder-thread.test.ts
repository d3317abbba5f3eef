import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { systemClock } from '../../../../core/clock.js';
import { isProblem } from '../../../../core/problem.js';
import { FolderThread, type ThreadLimits } from '../../../../plugins/store/cache/folder-thread.js';
import type { FolderQuestion } from '../../../../plugins/store/cache/folder-task.js';
import { atEnd, type Ending } from '../../../support/ending.js';
import { temporaryFolder } from '../../../support/temporary-folder.js';

const unavailable = (error: unknown) => isProblem(error) && error.problem === 'unavailable';

async function open(test: Ending, limits: Partial<ThreadLimits> = {}) {
  const root = await temporaryFolder(test);
  for (const part of ['new', 'cur']) await mkdir(join(root, 'box', part), { recursive: true });
  await writeFile(join(root, 'box', 'new', '1000.a,S=1'), 'x');
  const thread = new FolderThread(limits);
  atEnd(test, () => thread.close());
  const site = { root, files: null, keptFrom: 1, memoryBytes: 1e6, diskBytes: 0 };
  const ask = <Q extends FolderQuestion>(question: Q, folder = join(root, 'box')) =>
    thread.ask({ site, folder, now: systemClock.now(), question });
  return { thread, site, ask };
}

test('many questions at once are all answered, each with its own answer', async (t) => {
  const { ask } = await open(t);
  const answers = await Promise.all(
    Array.from({ length: 100 }, (_, n) =>
      n % 2 === 0 ? ask({ kind: 'locate', ids: [`1000.a,S=${n / 2}`], trust: 'looked' }) : ask({ kind: 'totals' }),
    ),
  );
  for (const [n, answer] of answers.entries()) {
    assert.ok(answer !== null);
    if ('entries' in answer) assert.equal(answer.entries[0]?.id, n === 2 ? '1000.a,S=1' : undefined);
    else assert.equal('total' in answer && answer.total, 1);
  }
});

test('what is no folder below the root is none', async (t) => {
  const { ask, site } = await open(t);
  for (const folder of [join(site.root, 'none'), '/etc', `${site.root}/../..`, site.root.slice(0, -2)]) {
    assert.equal(await ask({ kind: 'totals' }, folder), null);
  }
});

test('questions beyond the limit are refused until others have been answered', async (t) => {
  const { ask } = await open(t, { waiting: 2 });
  const first = [ask({ kind: 'totals' }), ask({ kind: 'totals' })];
  await assert.rejects(ask({ kind: 'totals' }), unavailable);
  assert.equal((await Promise.all(first)).length, 2);
  assert.equal((await ask({ kind: 'totals' }))?.total, 1);
});

test('a thread that takes too long is ended, and its callers are asked to retry', async (t) => {
  const { ask } = await open(t, { timeLimitMs: 1 });
  await assert.rejects(Promise.all([ask({ kind: 'totals' }), ask({ kind: 'totals' })]), unavailable);
});

test('another thread takes the place of one that was ended', async (t) => {
  const { ask, thread, site } = await open(t);
  assert.equal((await ask({ kind: 'totals' }))?.total, 1);
  await thread.release(site);
  assert.equal((await ask({ kind: 'totals' }))?.total, 1);
  const pending = ask({ kind: 'totals' });
  await Promise.all([assert.rejects(pending, unavailable), thread.close()]);
  assert.equal((await ask({ kind: 'totals' }))?.total, 1);
});
