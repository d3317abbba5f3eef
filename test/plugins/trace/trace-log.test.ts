import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { appendFile, mkdir, readdir, rename, rm, truncate } from 'node:fs/promises';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { latestTraces } from '../../../plugins/trace/timeline.js';
import { isTraceFile, TraceLog } from '../../../plugins/trace/trace-log.js';
import { rememberingLog } from '../../core/spool/remembering-log.js';
import { atEnd, type Ending } from '../../support/ending.js';
import { HandClock } from '../../support/hand-clock.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { acceptedRecord, idOf } from './records.js';

const day = 86_400;

async function opened(test: Ending, folder?: string, given: { days?: number; bytes?: number; clock?: HandClock } = {}) {
  const { days = 14, bytes = 1e9, clock = new HandClock() } = given;
  const place = folder ?? (await temporaryFolder(test));
  const { log, sentences } = rememberingLog();
  const traces = await TraceLog.open(place, { days, bytes }, clock, log);
  atEnd(test, () => traces.close());
  return { folder: place, clock, sentences, traces };
}

suite('the log of traces', () => {
  test('finds a message by its id, Message-ID, session and addresses, in any case', async (t) => {
    const { traces } = await opened(t);
    for (let n = 0; n < 50; n += 1) traces.add(acceptedRecord(n));
    for (const key of [idOf(7), '7@far.example', 's7', 'user7@example.org'])
      assert.deepEqual(await traces.find(key, { limit: 10 }), [acceptedRecord(7)], key);
    const latest = await traces.find('anna@far.example', { limit: 3 });
    assert.deepEqual(latest, [acceptedRecord(49), acceptedRecord(48), acceptedRecord(47)]);
    const older = await traces.find('anna@far.example', { limit: 2, before: acceptedRecord(48).at });
    assert.deepEqual(older, [acceptedRecord(47), acceptedRecord(46)]);
    assert.deepEqual(await traces.find('nobody@example.org', { limit: 10 }), []);
    const all = await traces.latest();
    assert.deepEqual([all.length, all[0], all[49]], [50, acceptedRecord(49), acceptedRecord(0)]);
  });

  test('has pages of the newest messages', async (t) => {
    const { traces } = await opened(t);
    for (let n = 0; n < 50; n += 1) traces.add(acceptedRecord(n));
    const page = async (bounds: { readonly before?: number; readonly limit: number }) =>
      (await latestTraces(traces, bounds)).map(({ id }) => id);
    assert.deepEqual(await page({ limit: 2 }), [idOf(49), idOf(48)]);
    assert.deepEqual(await page({ limit: 2, before: acceptedRecord(48).at }), [idOf(47), idOf(46)]);
    assert.deepEqual(await page({ limit: 2, before: acceptedRecord(0).at }), []);
  });

  test('finds all of it after restarts, whatever is written between them', async (t) => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.integer({ min: 1, max: 200 }), { minLength: 1, maxLength: 4 }), async (batches) => {
        const { folder, clock, traces } = await opened(t);
        let log = traces;
        let count = 0;
        for (const batch of batches) {
          for (let n = 0; n < batch; n += 1) log.add(acceptedRecord((count += 1)));
          await log.close();
          ({ traces: log } = await opened(t, folder, { clock }));
        }
        assert.equal((await log.find('anna@far.example', { limit: 1000 })).length, count);
        for (const one of [1, Math.ceil(count / 2), count])
          assert.deepEqual(await log.find(`user${one}@example.org`, { limit: 9 }), [acceptedRecord(one)]);
      }),
      { numRuns: 10 },
    );
  });

  test('has many segments when there is much, and finds in all of them', async (t) => {
    const { folder, traces, clock } = await opened(t);
    const count = 60_000;
    for (let n = 0; n < count; n += 1) {
      traces.add(acceptedRecord(n));
      if (n % 5000 === 0) await traces.flush();
    }
    await traces.flush();
    assert.ok((await readdir(folder)).filter((name) => name.endsWith('.index')).length >= 2);
    const latest = await traces.latest();
    assert.deepEqual(latest.slice(0, 3), [
      acceptedRecord(count - 1),
      acceptedRecord(count - 2),
      acceptedRecord(count - 3),
    ]);
    assert.ok(latest.length < 5000, `${latest.length}`);
    for (const one of [0, 1234, count - 1])
      assert.deepEqual(await traces.find(idOf(one), { limit: 9 }), [acceptedRecord(one)]);
    await traces.close();
    const again = await opened(t, folder, { clock });
    assert.deepEqual(await again.traces.find(idOf(31_415), { limit: 9 }), [acceptedRecord(31_415)]);
    assert.ok((await readdir(folder)).every((name) => isTraceFile({ name })));
  });

  test('keeps no index of a full segment in memory: its file answers', async (t) => {
    const { folder, traces } = await opened(t);
    const indexes = async () => (await readdir(folder)).filter((name) => name.endsWith('.index'));
    let count = 0;
    while ((await indexes()).length === 0) {
      for (const end = count + 5000; count < end; count += 1) traces.add(acceptedRecord(count));
      await traces.flush();
    }
    assert.equal((await traces.find(idOf(0), { limit: 9 })).length, 1);
    for (const name of await indexes()) await rm(join(folder, name));
    assert.equal((await traces.find(idOf(0), { limit: 9 })).length, 0);
    assert.equal((await traces.find(idOf(count - 1), { limit: 9 })).length, 1);
  });

  test('is kept for its days and bytes, the newest longest', async (t) => {
    const { folder, traces, clock } = await opened(t);
    for (let n = 0; n < 4; n += 1) {
      traces.add(acceptedRecord(n, clock.now()));
      await traces.close();
      clock.advance(5 * day);
    }
    const byAge = await opened(t, folder, { clock, days: 14 });
    assert.deepEqual(await byAge.traces.find(idOf(0), { limit: 1 }), []);
    assert.equal((await byAge.traces.find(idOf(1), { limit: 1 })).length, 1);
    const bySize = await opened(t, folder, { clock, bytes: 500 });
    assert.deepEqual(await bySize.traces.find(idOf(2), { limit: 1 }), []);
    assert.equal((await bySize.traces.find(idOf(3), { limit: 1 })).length, 1);
  });

  test('skips a line that a kill has cut, and what is no record', async (t) => {
    const { folder, traces, clock } = await opened(t);
    for (let n = 0; n < 3; n += 1) traces.add(acceptedRecord(n));
    await traces.flush();
    const [name = ''] = await readdir(folder);
    await truncate(join(folder, name), JSON.stringify(acceptedRecord(0)).length * 2 + 20);
    await appendFile(join(folder, name), '\n{"kind":"odd"}\nnull\n');
    const again = await opened(t, folder, { clock });
    assert.equal((await again.traces.find('anna@far.example', { limit: 9 })).length, 2);
  });

  test('drops what the disk refuses, says so, and goes on when it can', async (t) => {
    const { folder, traces, sentences } = await opened(t);
    const moved = `${folder}-moved`;
    await rename(folder, moved);
    for (let n = 0; n < 3; n += 1) {
      traces.add(acceptedRecord(n));
      await traces.flush();
    }
    assert.equal(traces.health().status, 'degraded');
    assert.match(traces.health().why ?? '', /ENOENT/);
    assert.equal(sentences.length, 1);
    await rename(moved, folder);
    traces.add(acceptedRecord(4));
    await traces.flush();
    assert.equal(traces.health().status, 'up');
    assert.deepEqual(await traces.find(idOf(4), { limit: 9 }), [acceptedRecord(4)]);
    assert.deepEqual(await traces.find(idOf(1), { limit: 9 }), []);
  });

  test('opens over a folder in which nothing can be written, and says so', async (t) => {
    const { folder, traces, clock } = await opened(t);
    traces.add(acceptedRecord(1));
    await traces.flush();
    // A folder in the place of the index stands for a disk that refuses.
    const [name = ''] = await readdir(folder);
    await mkdir(join(folder, name.replace('ndjson', 'index'), 'x'), { recursive: true });
    const again = await TraceLog.open(folder, { days: 0, bytes: 0 }, clock, rememberingLog().log);
    await again.flush();
    assert.equal(again.health().status, 'degraded');
    again.add(acceptedRecord(2));
    await again.flush();
    assert.equal((await again.find(idOf(2), { limit: 1 })).length, 1);
    await again.close();
  });

  test('answers when files have been removed meanwhile', async (t) => {
    const { folder, traces } = await opened(t);
    traces.add(acceptedRecord(1));
    await traces.flush();
    for (const name of await readdir(folder)) await rm(join(folder, name));
    assert.deepEqual(await traces.find(idOf(1), { limit: 9 }), []);
  });

  test('has all that was written, wherever the process is killed', async (t) => {
    const folder = await temporaryFolder(t);
    const child = fork(fileURLToPath(new URL('tracing-process.js', import.meta.url)), [folder], { silent: true });
    let written = 0;
    child.on('message', (count) => {
      written = Number(count);
      if (written === 100) child.kill('SIGKILL');
    });
    await once(child, 'exit');
    const { traces } = await opened(t, folder);
    for (let n = 1; n <= written; n += 1) assert.equal((await traces.find(idOf(n), { limit: 1 })).length, 1, `${n}`);
  });
});
