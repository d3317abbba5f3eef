import assert from 'node:assert/strict';
import { test } from 'node:test';
import { untilInterrupted, withProgress } from '../../../core/cli/terminal.js';
import { HandClock } from '../../support/hand-clock.js';

/** A terminal of 30 columns, on which each write is kept. */
const screen = (isTTY = true) => {
  const written: string[] = [];
  return { written, isTTY, columns: 30, write: (text: string) => written.push(text) };
};

test('progress is one line that is written anew, and nothing is left of it', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const [output, clock] = [screen(), new HandClock()];
  const pass = (ms: number): void => {
    clock.advance(ms / 1000);
    t.mock.timers.tick(250);
  };
  const result = await withProgress(
    'Deleting',
    async (show) => {
      pass(900);
      assert.deepEqual(output.written, [], 'quick work shows nothing');
      pass(1200);
      show('Deleting: 1,200 of 5,000 entries');
      pass(3000);
      show('Done');
      pass(100);
      show('');
      const before = output.written.length;
      assert.deepEqual(output.written.slice(-2), [`\r${' '.repeat('Done … 5 s'.length)}`, '\r'], 'removed');
      pass(1000);
      assert.equal(output.written.length, before);
      show('Done');
      pass(1000);
      await withProgress('Another', () => Promise.resolve(pass(5000)), { output, clock });
      return 'done';
    },
    { output, clock },
  );
  assert.equal(result, 'done');
  assert.deepEqual(output.written.slice(0, 3), [
    '\rDeleting … 2 s',
    '\rDeleting: 1,200 of 5,000 entr',
    `\rDone … 5 s${' '.repeat(19)}`,
  ]);
  assert.deepEqual(output.written.slice(-2), [`\r${' '.repeat('Done … 12 s'.length)}`, '\r']);
  assert.ok(!output.written.join('').includes('Another'));
  pass(5000);
  assert.equal(output.written.at(-1), '\r');
});

test('progress is removed when the work fails, and is never written to what is no terminal', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  for (const output of [screen(), screen(false)]) {
    const clock = new HandClock();
    const work = withProgress(
      'Checking',
      () => {
        clock.advance(2);
        t.mock.timers.tick(250);
        return Promise.reject(new Error('no'));
      },
      { output, clock },
    );
    await assert.rejects(work, /no/);
    assert.equal(output.written.at(-1), output.isTTY ? '\r' : undefined);
  }
});

test('the first Ctrl-C asks the work to end, the next one ends the process', async () => {
  const before = process.listenerCount('SIGINT');
  await untilInterrupted((interrupted) => {
    process.emit('SIGINT');
    assert.ok(interrupted.aborted);
    assert.equal(process.listenerCount('SIGINT'), before);
    return Promise.resolve();
  });
  await untilInterrupted(() => Promise.resolve());
  assert.equal(process.listenerCount('SIGINT'), before);
});
