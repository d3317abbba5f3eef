import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { readdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { Traffic } from '../../../plugins/monitoring/traffic/traffic.js';
import { isTrafficFile, keptDays, TrafficFiles } from '../../../plugins/monitoring/traffic/traffic-files.js';
import { rememberingLog } from '../../core/spool/remembering-log.js';
import type { Ending } from '../../support/ending.js';
import { HandClock } from '../../support/hand-clock.js';
import { temporaryFolder } from '../../support/temporary-folder.js';

const start = Date.UTC(2026, 10, 21, 10, 30);
const hour = 3600;
const day = 24 * hour;

async function opened(test: Ending, folder?: string, clock = new HandClock(start)) {
  const place = folder ?? (await temporaryFolder(test));
  const { log, sentences } = rememberingLog();
  const files = await TrafficFiles.open(place, log);
  return { folder: place, clock, sentences, files, traffic: new Traffic(files, clock) };
}

suite('counts of mail', () => {
  test('fall into hours and days, and stand beside those before', async (t) => {
    const { traffic, clock } = await opened(t);
    traffic.count('received');
    clock.advance(hour);
    for (let n = 0; n < 3; n += 1) traffic.count('received');
    const report = traffic.report('24h');
    assert.equal(report.counts.received.total, 4);
    assert.deepEqual(report.counts.received.series.slice(-3), [0, 1, 3]);
    assert.equal(report.step, 3600);
    assert.equal(report.since, '2026-11-20T12:00:00.000Z');
    clock.advance(day);
    const next = traffic.report('24h');
    assert.deepEqual([next.counts.received.total, next.counts.received.before], [0, 4]);
    assert.deepEqual(traffic.report('30d').counts.received.series.slice(-2), [4, 0]);
    clock.advance(30 * day);
    assert.equal(traffic.report('30d').counts.received.before, 4);
  });

  test('give the failure rate of what was sent or returned, and none of nothing', async (t) => {
    const { traffic, clock } = await opened(t);
    assert.deepEqual(traffic.report('24h').failureRate, { now: null, before: null });
    for (let n = 0; n < 3; n += 1) traffic.count('sent');
    traffic.count('bounced');
    assert.equal(traffic.report('24h').failureRate.now, 0.25);
    clock.advance(day);
    assert.deepEqual(traffic.report('24h').failureRate, { now: null, before: 0.25 });
  });

  test('name the most frequent first, however many names a client makes up', async (t) => {
    const { traffic } = await opened(t);
    for (let n = 0; n < 5000; n += 1) {
      traffic.name('senders', `${n}${'x'.repeat(500)}@example.org`);
      if (n % 3 === 0) traffic.name('senders', 'newsletter@example.org');
    }
    const { senders } = traffic.report('24h').top;
    assert.equal(senders[0]?.name, 'newsletter@example.org');
    assert.equal(senders[0]?.count, 1667);
    assert.equal(senders.length, 10);
    assert.ok(senders.every(({ name }) => name.length <= 100));
  });

  test('are never lost or doubled by a clock that goes back and forth', async (t) => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.integer({ min: -3, max: 3 }), { maxLength: 40 }), async (steps) => {
        const { traffic, clock } = await opened(t);
        clock.advance(12 * hour);
        for (const step of steps) {
          clock.advance(step * hour);
          traffic.count('received');
        }
        const { received } = traffic.report('30d').counts;
        assert.ok(received.total <= steps.length);
        clock.advance(day);
        assert.equal(traffic.report('30d').counts.received.total, steps.length);
      }),
      { numRuns: 30 },
    );
  });
});

suite('the files of counts', () => {
  test('have the same after a restart, the running hour included', async (t) => {
    const { folder, traffic, clock } = await opened(t);
    traffic.count('sent');
    traffic.name('destinations', 'far.example');
    await traffic.save();
    const again = await opened(t, folder, clock);
    again.traffic.count('sent');
    again.traffic.name('destinations', 'far.example');
    await again.traffic.save();
    const { counts, top } = again.traffic.report('24h');
    assert.equal(counts.sent.total, 2);
    assert.deepEqual(top.destinations, [{ name: 'far.example', count: 2 }]);
    assert.deepEqual(await readdir(folder), ['2026-11-21.json']);
  });

  test('that are damaged are set aside with a warning, and the others count', async (t) => {
    const { folder, traffic, clock } = await opened(t);
    traffic.count('received');
    await traffic.save();
    for (const [name, text] of [
      ['2026-11-18.json', '{'],
      ['2026-11-19.json', '{"format":1,"hours":{"24":{}}}'],
      ['2026-02-31.json', '{"format":1,"hours":{}}'],
    ] as const)
      await writeFile(join(folder, name), text);
    const again = await opened(t, folder, clock);
    assert.equal(again.traffic.report('24h').counts.received.total, 1);
    assert.equal(again.sentences.filter((one) => one.includes('damaged')).length, 3);
    const names = await readdir(folder);
    assert.equal(names.filter((name) => name.endsWith('.damaged')).length, 3);
    assert.ok(names.every((name) => isTrafficFile({ name })));
  });

  test(`of more than ${keptDays} days are removed, the oldest first`, async (t) => {
    const { folder, traffic } = await opened(t);
    const names = Array.from({ length: keptDays + 5 }, (_, n) =>
      new Date(start - (n + 1) * day * 1000).toISOString().slice(0, 10),
    );
    for (const name of names) await writeFile(join(folder, `${name}.json`), '{"format":1,"hours":{}}');
    traffic.count('received');
    await traffic.save();
    const left = (await readdir(folder)).toSorted();
    assert.equal(left.length, keptDays);
    assert.equal(left.at(-1), '2026-11-21.json');
  });

  test('that cannot be written are written later, and the log says it once', async (t) => {
    const { folder, traffic, sentences, clock } = await opened(t);
    traffic.count('received');
    const moved = `${folder}-moved`;
    await rename(folder, moved);
    await traffic.save();
    await traffic.save();
    assert.equal(sentences.filter((one) => one.includes('cannot be written')).length, 1);
    await rename(moved, folder);
    await traffic.save();
    assert.equal((await opened(t, folder, clock)).traffic.report('24h').counts.received.total, 1);
  });

  test('have all that was saved, wherever the process is killed', async (t) => {
    const folder = await temporaryFolder(t);
    const child = fork(fileURLToPath(new URL('counting-process.js', import.meta.url)), [folder], { silent: true });
    let saved = 0;
    child.on('message', (count) => {
      saved = Number(count);
      if (saved === 25) child.kill('SIGKILL');
    });
    await once(child, 'exit');
    const text = await readFile(join(folder, '2026-11-21.json'), 'utf8');
    assert.doesNotThrow(() => JSON.parse(text) as unknown);
    const { traffic, sentences } = await opened(t, folder);
    const { total } = traffic.report('24h').counts.received;
    assert.ok(total >= 25 && total <= saved + 1, `${total} of ${saved}`);
    assert.deepEqual(sentences, []);
  });
});
