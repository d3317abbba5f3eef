import assert from 'node:assert/strict';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { MainWatch, type FromThread } from '../../../core/watchdog/main-watch.js';
import { thresholdsOf, WatchdogOptions } from '../../../core/watchdog/options.js';
import { closeOpenStalls, readStalls, stallFile, type StallRecord } from '../../../core/watchdog/stall-record.js';
import { HandClock } from '../../support/hand-clock.js';
import { temporaryFolder } from '../../support/temporary-folder.js';

const loop = 'check (file:///srv/looper/index.js:7:9)';

interface Watched {
  readonly watch: MainWatch;
  readonly folder: string;
  readonly clock: HandClock;
  readonly beat: Int32Array;
  readonly running: Int32Array;
  readonly told: FromThread[];
  readonly kills: number[];
  /** So many looks, one after each `everyMs`; the main thread stands still meanwhile. */
  readonly stand: (looks: number) => void;
  readonly turn: () => void;
  /** What is in the file, once it says so of its first stall. */
  readonly written: (outcome: StallRecord['outcome']) => Promise<StallRecord>;
}

async function watched(t: TestContext, options: object, seen: readonly string[] = [loop]): Promise<Watched> {
  const folder = await temporaryFolder(t);
  const clock = new HandClock();
  const [beat, running] = [new Int32Array(1), new Int32Array(1)];
  const told: FromThread[] = [];
  const kills: number[] = [];
  const thresholds = thresholdsOf(WatchdogOptions.parse(options), []);
  const watch = new MainWatch(
    {
      beat,
      running,
      file: join(folder, stallFile),
      codeOf: (mark) => (mark === 7 ? { plugin: 'looper', doing: 'hook rcptTo' } : undefined),
      locations: () => [{ plugin: 'sleeper', url: 'file:///srv/looper/' }],
      send: (message) => void told.push(message),
      openStacks: () => ({
        stacks: seen.length === 0 ? [] : [seen],
        sample: () => Promise.resolve(),
        close: () => undefined,
      }),
      kill: () => void kills.push(clock.now()),
      clock,
    },
    thresholds,
    [],
  );
  const look = (): void => {
    clock.advance(thresholds.intervalMs / 1000);
    watch.check();
  };
  return {
    watch,
    folder,
    clock,
    beat,
    running,
    told,
    kills,
    stand: (looks) => {
      for (let n = 0; n < looks; n += 1) look();
    },
    turn: () => {
      Atomics.add(beat, 0, 1);
      look();
    },
    written: async (outcome) => {
      for (;;) {
        const [first] = await readStalls(folder);
        if (first?.outcome === outcome) return first;
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
    },
  };
}

test('a stall is recorded while it lasts, with the plugin whose hook runs, and closed when it is over', async (t) => {
  const { clock, running, told, stand, turn, written } = await watched(t, { stallSeconds: 2 });
  turn();
  const began = clock.now();
  running[0] = 7;
  stand(1);
  assert.equal(told.length, 0);
  stand(3);
  const lasting = await written('lasts');
  assert.deepEqual(
    [lasting.pid, lasting.plugin, lasting.doing, lasting.until, lasting.frames],
    [process.pid, 'looper', 'hook rcptTo', null, [loop]],
  );
  assert.equal(Date.parse(lasting.since), began);
  running[0] = 0;
  turn();
  const over = await written('over');
  assert.equal(over.until, new Date(clock.now()).toISOString());
  assert.equal(over.plugin, 'looper');
  const heard = told.map((message) =>
    'stall' in message ? [message.stall.ms, message.stall.plugin, message.record?.outcome] : message,
  );
  assert.deepEqual(heard, [[3330, 'looper', 'over']]);
});

test('after an await the files in the stack name the plugin', async (t) => {
  const { stand, turn, written } = await watched(t, { stallSeconds: 1 });
  turn();
  stand(4);
  const { plugin, doing } = await written('lasts');
  assert.deepEqual([plugin, doing], ['sleeper', null]);
});

test('a stall without a stack is recorded, too', async (t) => {
  const { running, stand, turn, written } = await watched(t, { stallSeconds: 1 }, []);
  turn();
  running[0] = 7;
  stand(6);
  const { plugin, frames } = await written('lasts');
  assert.deepEqual([plugin, frames], ['looper', []]);
});

test('time in which the machine slept is no stall', async (t) => {
  const { watch, clock, told, kills, stand, turn } = await watched(t, { stallSeconds: 5, restartAfterSeconds: 10 });
  turn();
  clock.advance(3600);
  watch.check();
  stand(2);
  turn();
  assert.deepEqual([told, kills], [[], []]);
});

test('the process is killed when configured, after the cause is recorded', async (t) => {
  const { running, kills, stand, turn, written } = await watched(t, { stallSeconds: 2, restartAfterSeconds: 4 });
  turn();
  running[0] = 7;
  stand(4);
  await written('lasts');
  assert.deepEqual(kills, []);
  stand(3);
  const { plugin } = await written('killed');
  assert.equal(plugin, 'looper');
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.equal(kills.length, 1);
});

test('a loop that turns again in the last moment is not killed', async (t) => {
  const { beat, kills, stand, turn, written } = await watched(t, { stallSeconds: 1, restartAfterSeconds: 2 });
  turn();
  stand(7);
  Atomics.add(beat, 0, 1);
  await written('killed');
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.deepEqual(kills, []);
});

test('a stop after a stall waits until its end is recorded', async (t) => {
  const { watch, folder, clock, running, told, stand, turn, written } = await watched(t, { stallSeconds: 2 });
  turn();
  running[0] = 7;
  stand(5);
  await written('lasts');
  await watch.end();
  const [stall] = await readStalls(folder);
  assert.deepEqual([stall?.outcome, stall?.until], ['over', new Date(clock.now()).toISOString()]);
  assert.equal(told.length, 1);
});

test('deliberate blocking is no stall; a stall right after it is one', async (t) => {
  const { watch, told, kills, stand, turn, written } = await watched(t, { stallSeconds: 2, restartAfterSeconds: 4 });
  turn();
  watch.setDeliberate(true);
  stand(100);
  watch.setDeliberate(false);
  turn();
  assert.deepEqual([told, kills], [[], []]);
  stand(4);
  const { since } = await written('lasts');
  turn();
  assert.deepEqual(
    told.map((message) => ('stall' in message ? message.stall.at : message)),
    [since],
  );
});

test('a failed write of the record is reported, and the process is still killed', async (t) => {
  const { folder, told, kills, stand, turn } = await watched(t, { stallSeconds: 1, restartAfterSeconds: 2 });
  await mkdir(join(folder, stallFile));
  turn();
  stand(7);
  while (kills.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  assert.ok(told.some((message) => 'unwritten' in message));
});

test('the file holds a bounded number of stalls, the newest first', async (t) => {
  const { folder, stand, turn, written } = await watched(t, { stallSeconds: 1 });
  for (let n = 0; n < 25; n += 1) {
    turn();
    stand(4);
  }
  turn();
  await written('over');
  const stalls = await readStalls(folder);
  assert.equal(stalls.length, 20);
  const times = stalls.map(({ since }) => since);
  assert.deepEqual(times, times.toSorted().toReversed());
});

test('an invalid file counts as none, and open stalls of an earlier run are closed', async (t) => {
  const folder = await temporaryFolder(t);
  assert.deepEqual(await readStalls(folder), []);
  for (const text of ['', '{', '[]', '{"stalls":[{"pid":0}]}', `{"stalls":[${' '.repeat(600_000)}]}`]) {
    await writeFile(join(folder, stallFile), text);
    assert.deepEqual(await readStalls(folder), [], text.slice(0, 30));
  }
  const lasting: StallRecord = {
    pid: 4711,
    since: '2026-11-21T10:00:00.000Z',
    until: null,
    outcome: 'lasts',
    plugin: 'looper',
    doing: 'hook rcptTo',
    frames: [loop],
  };
  const killed: StallRecord = { ...lasting, outcome: 'killed' };
  const text = `${JSON.stringify({ stalls: [lasting, killed] })}\n`;
  await writeFile(join(folder, stallFile), text);
  const until = '2026-11-21T11:00:00.000Z';
  assert.deepEqual(closeOpenStalls(await readStalls(folder), Date.parse(until)), [
    { ...lasting, until, outcome: 'ended' },
    { ...killed, until },
  ]);
  assert.equal(await readFile(join(folder, stallFile), 'utf8'), text);
});
