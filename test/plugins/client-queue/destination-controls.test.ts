import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { isProblem, isStartError } from '../../../core/problem.js';
import type { StoredDocument } from '../../../core/contracts/cluster.js';
import { fileDocument } from '../../../core/disk/document.js';
import { openDestinationControls } from '../../../plugins/client-queue/delivery/destination-controls.js';
import { HandClock } from '../../support/hand-clock.js';
import { temporaryFolder, type Ending } from '../../support/temporary-folder.js';

async function opened(test: Ending) {
  const file = join(await temporaryFolder(test), 'destinations.json');
  const clock = new HandClock();
  const open = () => openDestinationControls(fileDocument(file), clock);
  return { file, clock, open, controls: await open() };
}

test('the reason of a suspension is kept, with account and time, and survives a restart', async (t) => {
  const { clock, open, controls } = await opened(t);
  const until = clock.now() + 60_000;
  await controls.set('Slow.Example', { suspendedUntil: until, reason: 'they asked' }, 'ann');
  await controls.set('slow.example', { maxConnections: 2 }, 'bob');
  const expected = {
    destination: 'slow.example',
    suspendedUntil: until,
    reason: 'they asked',
    maxConnections: 2,
    ratePerMinute: null,
    by: 'bob',
    at: clock.now(),
  };
  assert.deepEqual(controls.get('slow.example'), expected);
  assert.deepEqual((await open()).list(), [expected]);
});

test('a suspension lapses with its reason, limits stay', async (t) => {
  const { clock, controls } = await opened(t);
  await controls.set('a.example', { suspendedUntil: clock.now() + 1000, reason: 'x', ratePerMinute: 5 }, null);
  await controls.set('b.example', { suspendedUntil: clock.now() + 1000, reason: 'x' }, null);
  clock.advance(1);
  const { suspendedUntil, reason, ratePerMinute } = controls.get('a.example') ?? {};
  assert.deepEqual({ suspendedUntil, reason, ratePerMinute }, { suspendedUntil: null, reason: null, ratePerMinute: 5 });
  assert.equal(controls.get('b.example'), undefined);
  assert.deepEqual(
    controls.list().map(({ destination }) => destination),
    ['a.example'],
  );
});

test('a suspension without an end survives a restart until it is revoked', async (t) => {
  const { clock, open, controls } = await opened(t);
  await controls.set('a.example', { suspendedUntil: Infinity }, null);
  clock.advance(1e9);
  assert.equal((await open()).get('a.example')?.suspendedUntil, Infinity);
  assert.equal(await controls.clear('A.example'), true);
  assert.equal(await controls.clear('a.example'), false);
  assert.equal((await open()).get('a.example'), undefined);
});

test('a listener gets the changed destination until it unsubscribes', async (t) => {
  const { controls } = await opened(t);
  const heard: string[] = [];
  const undo = controls.onChange((destination) => heard.push(destination));
  await controls.set('a.example', { maxConnections: 1 }, null);
  await controls.set('a.example', { maxConnections: null }, null);
  undo();
  await controls.set('b.example', { maxConnections: 1 }, null);
  assert.deepEqual(heard, ['a.example', 'a.example']);
  assert.equal(controls.get('a.example'), undefined);
});

test('names of object members are destinations like any other', async (t) => {
  const { open, controls } = await opened(t);
  assert.equal(controls.get('constructor'), undefined);
  await controls.set('constructor', { maxConnections: 1 }, null);
  assert.equal((await open()).get('constructor')?.maxConnections, 1);
});

test('nonsense is refused and changes nothing', async (t) => {
  const { controls } = await opened(t);
  await assert.rejects(controls.set('a.example', { maxConnections: -1 }, null));
  assert.deepEqual(controls.list(), []);
});

test('a file that cannot be understood stops the start', async (t) => {
  const { file, open } = await opened(t);
  await writeFile(file, '{"destinations": 3}');
  await assert.rejects(open(), (error) => isStartError(error) && !isProblem(error));
});

test('what another server has set is in force, and listeners learn of it', async () => {
  let current: { readonly text: string; readonly version: number } | undefined;
  const watchers: (() => void)[] = [];
  const document: StoredDocument = {
    place: 'shared',
    read: () => Promise.resolve(current),
    replace: (text, version) => {
      current = { text, version: (version ?? 0) + 1 };
      return Promise.resolve(current.version);
    },
    watch: (watcher) => {
      watchers.push(watcher);
      return () => undefined;
    },
  };
  const clock = new HandClock();
  const here = await openDestinationControls(document, clock);
  const elsewhere = await openDestinationControls(document, clock);
  const heard = new Promise<string>((resolve) => here.onChange(resolve));
  await elsewhere.set('a.example', { maxConnections: 3 }, 'ann');
  for (const watcher of watchers) watcher();
  assert.equal(await heard, 'a.example');
  assert.equal(here.get('a.example')?.maxConnections, 3);
});
