import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { isProblem } from '../../core/problem.js';
import { type JobLimits, WorkerJobs } from '../../core/worker-jobs.js';
import type { CountingJob } from './counting-thread.js';

function jobs(t: TestContext, limits: Partial<JobLimits> = {}): WorkerJobs<CountingJob, string> {
  const made = new WorkerJobs<CountingJob, string>(new URL('./counting-thread.js', import.meta.url), limits);
  t.after(() => made.close());
  return made;
}

const echo = (text: string): CountingJob => ({ work: 'echo', text });
const spin = (ms: number): CountingJob => ({ work: 'spin', ms });
const isRefused = (error: unknown): boolean => isProblem(error) && error.problem === 'unavailable';

describe('a job in a thread', () => {
  test('has a result, or the reason why there is none', async (t) => {
    const { run } = jobs(t, { workers: 1 });
    assert.deepEqual(await run(echo('a')), { result: 'a' });
    assert.deepEqual(await run({ work: 'throw' }), { failure: 'failed', reason: 'as asked' });
    assert.deepEqual(await run(echo('b')), { result: 'b' });
  });

  test('that takes too long is ended, and so is one that takes too much memory or ends its thread', async (t) => {
    const long = jobs(t, { workers: 1, timeLimitMs: 300 });
    const [slow, next] = await Promise.all([long.run(spin(600_000)), long.run(echo('next'))]);
    assert.ok('failure' in slow && slow.failure === 'took too long');
    assert.deepEqual(next, { result: 'next' });
    const large = jobs(t, { workers: 1, timeLimitMs: 60_000, memoryMb: 16 });
    for (const work of ['fill', 'exit'] as const) {
      const outcome = await large.run({ work });
      assert.ok('failure' in outcome && outcome.failure === 'failed', work);
    }
    assert.deepEqual(await large.run(echo('next')), { result: 'next' });
  });

  test('is refused when too many wait', async (t) => {
    const { run } = jobs(t, { workers: 1, queue: 2 });
    const first = run(echo('1'));
    const waiting = [run(echo('2')), run(echo('3'))];
    await assert.rejects(run(echo('4')), isRefused);
    assert.deepEqual(await Promise.all([first, ...waiting]), [{ result: '1' }, { result: '2' }, { result: '3' }]);
  });
});

describe('jobs for strangers', () => {
  test('are one at a time, so that hundreds of slow ones do not keep a page waiting', async (t) => {
    const all = jobs(t, { workers: 2, timeLimitMs: 5000 });
    await Promise.all([all.run(spin(50)), all.run(spin(50))]);
    let ended = 0;
    const strangers = Array.from({ length: 500 }, (_, n) =>
      all
        .forStranger(`10.${n % 250}.0.${n % 200}`, (run) => run(spin(100)))
        .then(() => (ended += 1))
        .catch((error: unknown) => assert.ok(isRefused(error))),
    );
    for (let page = 0; page < 20; page += 1) assert.deepEqual(await all.run(echo('page')), { result: 'page' });
    // Each would have waited for many of them; now they ran beside some.
    assert.ok(ended < 20, `${ended} slow jobs were done first`);
    await all.close();
    await Promise.all(strangers);
  });

  test('wait for those of pages, and take turns by network', async (t) => {
    const all = jobs(t, { workers: 1 });
    const order: string[] = [];
    const stranger = (address: string, name: string) =>
      all.forStranger(address, async (run) => {
        await run(echo(name));
        order.push(name);
      });
    const work = [
      all.run(spin(50)),
      stranger('10.1.0.1', 'a1'),
      stranger('10.1.0.1', 'a2'),
      stranger('10.1.0.2', 'a3'),
      stranger('10.2.0.1', 'b1'),
      all.run(echo('page')).then(() => order.push('page')),
    ];
    await Promise.all(work);
    assert.deepEqual(order, ['page', 'a1', 'a2', 'b1', 'a3']);
  });

  test('are refused when too many of one client wait, and another is not', async (t) => {
    const all = jobs(t);
    const many = Array.from({ length: 60 }, () => all.forStranger('10.1.0.1', (run) => run(echo('a'))));
    const other = all.forStranger('10.2.0.1', (run) => run(echo('b')));
    const outcomes = await Promise.allSettled(many);
    assert.deepEqual(await other, { result: 'b' });
    const refused = outcomes.filter((one) => one.status === 'rejected');
    assert.ok(refused.length > 20 && refused.every(({ reason }) => isRefused(reason)));
    await assert.rejects(
      all.forStranger('10.1.0.1', () => Promise.reject(new Error('its own'))),
      /its own/,
    );
  });
});
