import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { UnknownEntries } from '../../../core/disk/unknown-entries.js';
import { HandClock } from '../../support/hand-clock.js';

test('a look that takes long is made seldom, and never beside another', async () => {
  const clock = new HandClock();
  let looks = 0;
  let end: (names: readonly string[]) => void = () => undefined;
  const find = () => {
    looks += 1;
    return new Promise<readonly string[]>((resolve) => (end = resolve));
  };
  const foreign = new UnknownEntries({
    what: { one: 'entry', several: 'entries' },
    find,
    clock,
    log: pino({ level: 'silent' }),
  });
  const first = foreign.look();
  clock.advance(2);
  end(['notes']);
  await first;
  clock.advance(199);
  foreign.report();
  assert.equal(looks, 1);
  clock.advance(1);
  foreign.report();
  clock.advance(1000);
  foreign.report();
  assert.equal(looks, 2);
});
