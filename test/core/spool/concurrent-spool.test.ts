import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { classOf, isProblem } from '../../../core/problem.js';
import {
  contentOf,
  message,
  nextLife,
  openFixture,
  returnPath,
  trace,
  whole,
  type SpoolFixture,
} from './spool-fixture.js';

/** As a session does: releases the message in any case. */
async function deliver(fixture: SpoolFixture, name: string, body = message): Promise<void> {
  const writer = await fixture.spool.create(returnPath, trace);
  try {
    for (let at = 0; at < body.length; at += 10_000) await writer.write(body.subarray(at, at + 10_000));
    const spooled = await writer.finish();
    await spooled.prepare();
    await spooled.link([{ folder: fixture.inbox, name }]);
  } finally {
    await writer.discard();
  }
}

async function assertNothingIsLeft(fixture: SpoolFixture): Promise<void> {
  await fixture.spool.settled();
  assert.deepEqual(await readdir(join(fixture.root, 'spool')), []);
  const inSpool = [...fixture.files.opened.values()].filter((path) => !path.includes('spool-log'));
  assert.deepEqual(inSpool, []);
}

const names = Array.from({ length: 8 }, (_, number) => `m${number}`);
const segmentBytes = 1024 * 1024;
const spool = 'spool/';
const steps = [
  { durability: 'file', call: 'open', path: spool },
  { durability: 'file', call: 'write', path: spool },
  { durability: 'file', call: 'fsync', path: spool },
  { durability: 'file', call: 'close', path: spool },
  { durability: 'file', call: 'rename', path: 'new/' },
  { durability: 'log', call: 'open', path: spool },
  { durability: 'log', call: 'write', path: spool },
  { durability: 'log', call: 'close', path: spool },
  { durability: 'log', call: 'rename', path: 'new/' },
] as const;
const faults = steps.flatMap((step) => [1, names.length].map((nth) => ({ ...step, nth })));

for (const { durability, ...step } of faults) {
  test(`among many, ${step.call} ${step.nth} on ${step.path} fails one message alone (${durability})`, async (t) => {
    const fixture = await openFixture(t, { durability, segmentBytes });
    fixture.files.order({ ...step, code: 'ENOSPC' });
    const results = await Promise.allSettled(names.map((name) => deliver(fixture, name)));
    const refused = results.flatMap((result) => (result.status === 'rejected' ? [result.reason as unknown] : []));
    assert.equal(refused.length, 1);
    assert.ok(isProblem(refused[0]) && classOf(refused[0]).smtp[0] === 452, String(refused[0]));
    const taken = names.filter((_, index) => results[index]?.status === 'fulfilled');
    assert.deepEqual(await readdir(fixture.inbox), taken);
    for (const name of taken) assert.ok((await contentOf(fixture, name)).equals(whole), name);
    await assertNothingIsLeft(fixture);
    await nextLife(fixture, { durability });
    assert.deepEqual(await readdir(fixture.inbox), taken, 'after a crash');
  });
}

for (const bytes of [300_000, 1_000_000]) {
  for (const durability of ['file', 'log'] as const) {
    test(`each write of a message of ${bytes} bytes may fail, and nothing is left (${durability})`, async (t) => {
      const fixture = await openFixture(t, { durability, segmentBytes });
      const body = Buffer.concat([message, Buffer.alloc(bytes, 'seventeen letters')]);
      await deliver(fixture, 'good', body);
      const writes = fixture.files.count('write', spool);
      assert.ok(writes >= 1);
      for (let nth = 1; nth <= writes; nth += 1) {
        fixture.files.order({ call: 'write', code: nth % 2 === 0 ? 'EIO' : 'ENOSPC', nth, path: spool });
        const refused = await deliver(fixture, 'refused', body).catch((error: unknown) => error);
        assert.ok(isProblem(refused) && classOf(refused).smtp[0] < 500, String(refused));
        await assertNothingIsLeft(fixture);
      }
      fixture.files.order();
      assert.deepEqual(await readdir(fixture.inbox), ['good']);
      assert.ok((await contentOf(fixture, 'good')).equals(Buffer.concat([returnPath, trace, body])));
    });
  }
}

test('while the disk hangs, messages wait for threads, and all of them arrive', async (t) => {
  const fixture = await openFixture(t, { durability: 'file' });
  const release = fixture.files.hold('fsync');
  const results: Promise<void>[] = [];
  for (const name of names) {
    results.push(deliver(fixture, name));
    while (fixture.files.count('fsync', spool) < results.length) await new Promise(setImmediate);
  }
  assert.equal(fixture.files.openedNow.filter((path) => path.includes(spool)).length, 2);
  release();
  await Promise.all(results);
  for (const name of names) assert.ok((await contentOf(fixture, name)).equals(whole), name);
});

test('while the disk hangs, a message takes less than a megabyte before its sender has to wait', async (t) => {
  const fixture = await openFixture(t);
  const release = fixture.files.hold('write');
  const writer = await fixture.spool.create(returnPath, trace);
  let waiting: Promise<void> | void = undefined;
  while (waiting === undefined) waiting = writer.write(Buffer.alloc(64 * 1024, 'x'));
  assert.ok(writer.size < 1024 * 1024, `${writer.size} bytes`);
  release();
  await waiting;
  await writer.discard();
  await assertNothingIsLeft(fixture);
});
