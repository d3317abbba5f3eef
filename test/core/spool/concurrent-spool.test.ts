import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { openSpool } from '../../../core/spool/file-spool.js';
import { classOf, isProblem } from '../../../core/problem.js';
import { rememberingLog } from './remembering-log.js';
import { contentOf, message, openGround, returnPath, trace, whole, type SpoolGround } from './spool-fixture.js';

/** As a session does it: the message is let go whatever comes of it. */
async function deliver(ground: SpoolGround, name: string, body = message): Promise<void> {
  const writer = await ground.spool.create(returnPath, trace);
  try {
    for (let at = 0; at < body.length; at += 10_000) await writer.write(body.subarray(at, at + 10_000));
    const spooled = await writer.finish();
    await spooled.sync();
    await spooled.link([{ folder: ground.inbox, name }]);
  } finally {
    await writer.discard();
  }
}

async function assertNothingIsLeft(ground: SpoolGround): Promise<void> {
  await ground.spool.settled();
  assert.deepEqual(await readdir(join(ground.root, 'spool')), []);
  const inSpool = [...ground.files.opened.values()].filter((path) => !path.includes('spool-log'));
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
    const ground = await openGround(t, { durability, segmentBytes });
    ground.files.order({ ...step, code: 'ENOSPC' });
    const results = await Promise.allSettled(names.map((name) => deliver(ground, name)));
    const refused = results.flatMap((result) => (result.status === 'rejected' ? [result.reason as unknown] : []));
    assert.equal(refused.length, 1);
    assert.ok(isProblem(refused[0]) && classOf(refused[0]).smtp[0] === 452, String(refused[0]));
    const taken = names.filter((_, index) => results[index]?.status === 'fulfilled');
    assert.deepEqual(await readdir(ground.inbox), taken);
    for (const name of taken) assert.ok((await contentOf(ground, name)).equals(whole), name);
    await assertNothingIsLeft(ground);
    const next = await openSpool(join(ground.root, 'spool'), {
      log: rememberingLog().log,
      durability,
      reserveBytes: 0,
    });
    await next.recover();
    assert.deepEqual(await readdir(ground.inbox), taken, 'after a crash');
  });
}

for (const bytes of [300_000, 1_000_000]) {
  for (const durability of ['file', 'log'] as const) {
    test(`each write of a message of ${bytes} bytes may fail, and nothing is left (${durability})`, async (t) => {
      const ground = await openGround(t, { durability, segmentBytes });
      const body = Buffer.concat([message, Buffer.alloc(bytes, 'seventeen letters')]);
      await deliver(ground, 'good', body);
      const writes = ground.files.count('write', spool);
      assert.ok(writes >= 1);
      for (let nth = 1; nth <= writes; nth += 1) {
        ground.files.order({ call: 'write', code: nth % 2 === 0 ? 'EIO' : 'ENOSPC', nth, path: spool });
        const refused = await deliver(ground, 'refused', body).catch((error: unknown) => error);
        assert.ok(isProblem(refused) && classOf(refused).smtp[0] < 500, String(refused));
        await assertNothingIsLeft(ground);
      }
      ground.files.order();
      assert.deepEqual(await readdir(ground.inbox), ['good']);
      assert.ok((await contentOf(ground, 'good')).equals(Buffer.concat([returnPath, trace, body])));
    });
  }
}

test('a disk that hangs makes the next messages wait for threads, and all of them come', async (t) => {
  const ground = await openGround(t, { durability: 'file' });
  const release = ground.files.hold('fsync');
  const results: Promise<void>[] = [];
  for (const name of names) {
    results.push(deliver(ground, name));
    while (ground.files.count('fsync', spool) < results.length) await new Promise(setImmediate);
  }
  assert.equal(ground.files.openedNow.filter((path) => path.includes(spool)).length, 2);
  release();
  await Promise.all(results);
  for (const name of names) assert.ok((await contentOf(ground, name)).equals(whole), name);
});

test('a message whose disk hangs takes less than a megabyte before its sender has to wait', async (t) => {
  const ground = await openGround(t);
  const release = ground.files.hold('write');
  const writer = await ground.spool.create(returnPath, trace);
  let waiting: Promise<void> | void = undefined;
  while (waiting === undefined) waiting = writer.write(Buffer.alloc(64 * 1024, 'x'));
  assert.ok(writer.size < 1024 * 1024, `${writer.size} bytes`);
  release();
  await waiting;
  await writer.discard();
  await assertNothingIsLeft(ground);
});
