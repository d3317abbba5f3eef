import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate, setTimeout as pause } from 'node:timers/promises';
import { LookupLanes, quickLookupMs } from '../../../plugins/client-queue/delivery/sites.js';

/** Lanes whose lookups end when the test says so. */
function hangingLanes() {
  const ends = new Map<string, () => void>();
  const begun: string[] = [];
  let most = 0;
  const lanes = new LookupLanes(
    (destination) => {
      begun.push(destination);
      const ended = new Promise<void>((resolve) => ends.set(destination, resolve));
      most = Math.max(most, ends.size);
      return ended;
    },
    () => undefined,
  );
  const end = async (destination: string): Promise<void> => {
    ends.get(destination)?.();
    ends.delete(destination);
    await setImmediate();
  };
  return { lanes, begun, end, most: () => most, open: () => [...ends.keys()] };
}

const names = (what: string, count: number): readonly string[] =>
  Array.from({ length: count }, (_, n) => `${what}${n}`);

test('lookups that hang leave their places to others, and are bounded themselves', async () => {
  const { lanes, begun, end, most, open } = hangingLanes();
  for (const name of names('dead', 3000)) lanes.add(name, false);
  assert.equal(begun.length, 200);
  await pause(quickLookupMs + 200);
  assert.equal(begun.length, 400);
  await pause(7 * quickLookupMs);
  assert.equal(begun.length, 1200, 'the places of both are taken');
  assert.equal(most(), 1200);
  const [first = ''] = open();
  await end(first);
  assert.equal(begun.length, 1201, 'who ends makes room');
  for (const name of open()) await end(name);
  while (open().length > 0) for (const name of open()) await end(name);
  assert.equal(begun.length, 3000);
  assert.equal(lanes.isCrowded, false);
});

test('the oldest and the newest are looked up in turn', async () => {
  const { lanes, begun, end } = hangingLanes();
  for (const name of names('first', 200)) lanes.add(name, false);
  for (const name of names('next', 4)) lanes.add(name, false);
  for (const name of names('first', 4)) await end(name);
  assert.deepEqual(begun.slice(200), ['next0', 'next3', 'next1', 'next2']);
});

test('those who hung the last time have places of their own', async () => {
  const { lanes, begun, end } = hangingLanes();
  for (const name of names('suspect', 500)) lanes.add(name, true);
  assert.equal(begun.length, 100);
  lanes.add('alive', false);
  assert.equal(begun.at(-1), 'alive');
  await end('suspect0');
  assert.equal(begun.length, 102);
});

test('no destination is looked up twice at a time', async () => {
  const { lanes, begun, end } = hangingLanes();
  lanes.add('a', false);
  lanes.add('a', true);
  assert.deepEqual(begun, ['a']);
  assert.equal(lanes.has('a'), true);
  await end('a');
  assert.equal(lanes.has('a'), false);
  lanes.add('a', false);
  assert.deepEqual(begun, ['a', 'a']);
});
