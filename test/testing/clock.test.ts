import assert from 'node:assert/strict';
import { setImmediate as turn, setTimeout as pause } from 'node:timers/promises';
import { describe, test } from 'node:test';
import { definePlugin, dns } from '../../core/plugin.js';
import { drive, FakeClock, FakeDns } from '../kit/index.js';

describe('a fake clock', () => {
  test('stops until it is advanced, and starts at the same time in each run', async () => {
    const clock = new FakeClock();
    assert.equal(new Date(clock.now()).toISOString(), '2030-01-01T12:00:00.000Z');
    await pause(5);
    assert.equal(clock.monotonic(), 0);
    await clock.advance({ days: 1, hours: 1, minutes: 1, seconds: 1, ms: 1 });
    assert.equal(clock.monotonic(), 90_061_001);
    assert.equal(new Date(clock.now()).toISOString(), '2030-01-02T13:01:01.001Z');
    assert.equal(new FakeClock('2026-02-28T00:00:00Z').now(), Date.UTC(2026, 1, 28));
  });

  test('runs what is due at its own time, in order, and waits for it', async () => {
    const clock = new FakeClock();
    const ran: string[] = [];
    const at = (ms: number, name: string) => {
      clock.after(ms, async () => {
        await pause(3);
        ran.push(`${name} ${clock.monotonic()}`);
      });
    };
    at(300, 'late');
    at(100, 'early');
    at(300, 'as late');
    at(1001, 'too late');
    await clock.advance({ seconds: 1 });
    assert.deepEqual(ran, ['early 100', 'late 300', 'as late 300']);
    await clock.advance({ ms: 1 });
    assert.equal(ran.at(-1), 'too late 1001');
  });

  test('does not run a cancelled timer', async () => {
    const clock = new FakeClock();
    let ran = false;
    clock.after(100, () => void (ran = true))();
    await clock.advance({ seconds: 1 });
    assert.equal(ran, false);
  });

  test('leaves a task waiting for a later time, and continues it then', async () => {
    const clock = new FakeClock();
    const ran: string[] = [];
    clock.after(1000, async () => {
      await new Promise<void>((resolve) => clock.after(5000, resolve));
      ran.push(`slow ${clock.monotonic()}`);
    });
    clock.after(2000, () => void ran.push(`quick ${clock.monotonic()}`));
    await clock.advance({ seconds: 3 });
    assert.deepEqual(ran, ['quick 2000']);
    await clock.advance({ seconds: 10 });
    assert.deepEqual(ran, ['quick 2000', 'slow 6000']);
  });

  test('is turned forward only, and begins at a time', async () => {
    const clock = new FakeClock();
    await assert.rejects(clock.advance({ seconds: -1 }), /turned forward only/);
    await assert.rejects(clock.advance({ seconds: Number.NaN }), /turned forward only/);
    assert.throws(() => new FakeClock('tomorrow'), /tomorrow is no time/);
  });
});

describe('timers of a plugin', () => {
  test('run with the clock, one after the other, and no more once the plugin has stopped', async (t) => {
    const ran: string[] = [];
    const ticking = definePlugin({
      name: 'ticking',
      setup({ every, clock }) {
        every(60, async () => {
          await turn();
          ran.push(`minute ${clock.monotonic() / 1000}`);
        });
        every(90, () => void ran.push(`other ${clock.monotonic() / 1000}`));
      },
    });
    const site = await drive(ticking, { test: t });
    await site.clock.advance({ minutes: 3 });
    assert.deepEqual(ran, ['minute 60', 'other 90', 'minute 120', 'other 180', 'minute 180']);
    await site.close();
    await site.clock.advance({ hours: 1 });
    assert.equal(ran.length, 5);
  });

  test('continue after a failure, which is logged', async (t) => {
    let runs = 0;
    const failing = definePlugin({
      name: 'failing',
      setup({ every }) {
        every(1, () => {
          runs += 1;
          throw new Error('no luck');
        });
      },
    });
    const site = await drive(failing, { test: t });
    await site.clock.advance({ seconds: 3 });
    assert.equal(runs, 3);
    assert.equal(site.log.filter(({ msg }) => msg === 'a timed task failed').length, 3);
  });

  test('wait for the DNS as long as the clock says', async (t) => {
    const answers: unknown[] = [];
    const asking = definePlugin({
      name: 'asking',
      needs: { dns },
      setup({ every }, { dns }) {
        every(10, async () => void answers.push(await dns.lookup('slow.example', 'A')));
      },
    });
    const site = await drive(asking, {
      test: t,
      dns: { 'slow.example A': FakeDns.slow(['192.0.2.1'], { seconds: 3 }) },
    });
    await site.clock.advance({ seconds: 12 });
    assert.deepEqual(answers, []);
    await site.clock.advance({ seconds: 1 });
    assert.deepEqual(answers, [{ status: 'found', records: ['192.0.2.1'] }]);
    site.dns.set('slow.example A', FakeDns.slow(['192.0.2.1'], { seconds: 30 }));
    await site.clock.advance({ seconds: 14 });
    assert.equal(answers.length, 1);
    await site.clock.advance({ seconds: 1 });
    assert.deepEqual(answers[1], { status: 'failed', records: [], reason: 'timeout' });
  });

  test('without a pause between two runs are refused at the start', async () => {
    const restless = definePlugin({ name: 'restless', setup: ({ every }) => every(0, () => undefined) });
    await assert.rejects(drive(restless), { message: /^Plugin restless could not start: every\(0, …\): the pause/ });
  });
});
