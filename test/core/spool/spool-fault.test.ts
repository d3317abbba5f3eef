import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { classOf, isProblem } from '../../../core/problem.js';
import { asStorageProblem } from '../../../core/disk/fault.js';
import type { SpoolWriter } from '../../../core/spool/spool.js';
import type { Fault } from './faulty-files.js';
import { contentOf, largeMessage, message, openGround, received, returnPath, trace, whole } from './spool-fixture.js';

const replies = { ENOSPC: 452, EDQUOT: 452, EROFS: 452, EIO: 451, EMFILE: 451 } as const;
const codes = Object.keys(replies) as (keyof typeof replies)[];
const bodies = [
  ['small', message],
  ['large', largeMessage],
] as const;
const steps: readonly Omit<Fault, 'code'>[] = [
  { call: 'open', nth: 1, path: 'spool' },
  { call: 'write', nth: 1 },
  { call: 'write', nth: 2 },
  { call: 'fsync', nth: 1, path: 'spool' },
  { call: 'close', nth: 1, path: 'spool' },
  { call: 'link', nth: 1 },
  { call: 'rename', nth: 1 },
  { call: 'open', nth: 1, path: 'new' },
  { call: 'fsync', nth: 1, path: 'new' },
  { call: 'close', nth: 1, path: 'new' },
];

for (const [kind, body] of bodies) {
  for (const step of steps) {
    if (step.call === (kind === 'small' ? 'link' : 'rename')) continue;
    if (kind === 'small' && step.call === 'write' && step.nth === 2) continue;
    test(`when ${step.call} ${step.nth} on ${step.path ?? 'anything'} fails, nothing is left of a ${kind} message`, async (t) => {
      for (const code of codes) {
        const ground = await openGround(t);
        ground.files.order({ ...step, code });
        const error = await deliver(Promise.resolve(ground.spool.create(returnPath, trace)), body, ground.inbox).then(
          () => assert.fail('it was acknowledged'),
          (error: unknown) => error,
        );
        assert.ok(isProblem(error), `${code} is no problem: ${String(error)}`);
        assert.equal(classOf(error).smtp[0], replies[code]);
        assert.ok(!`${error.message} ${error.details.detail ?? ''}`.includes('/'), error.message);
        await ground.spool.settled();
        assert.deepEqual(await readdir(ground.inbox), []);
        assert.deepEqual(await readdir(join(ground.root, 'spool')), []);
        assert.equal(ground.files.opened.size, 0);
        ground.files.order();
        await (await received(ground.spool)).link([{ folder: ground.inbox, name: 'next' }]);
        assert.ok((await contentOf(ground, 'next')).equals(whole), 'the next message is taken without a restart');
      }
    });
  }
}

/** As a session does it: whatever fails, the writer or the message is let go. */
async function deliver(created: Promise<SpoolWriter>, body: Buffer, folder: string): Promise<void> {
  const writer = await created;
  try {
    for (let at = 0; at < body.length; at += 10_000) await writer.write(body.subarray(at, at + 10_000));
    const spooled = await writer.finish();
    await spooled.sync();
    await spooled.link([{ folder, name: 'a' }]);
  } finally {
    await writer.discard();
  }
}

test('a failed fsync is not tried again on the same file', async (t) => {
  const { spool, files } = await openGround(t);
  files.order({ call: 'fsync', code: 'EIO', nth: 1 });
  const spooled = await received(spool);
  await assert.rejects(spooled.sync());
  await assert.rejects(spooled.sync());
  assert.equal(files.count('fsync', 'spool/'), 1);
});

test('a message that is neither durable nor removable is logged as a possible duplicate', async (t) => {
  const { spool, files, inbox, sentences } = await openGround(t);
  files.order({ call: 'fsync', code: 'EIO', path: 'new' }, { call: 'unlink', code: 'EIO', path: 'new' });
  const spooled = await received(spool);
  await assert.rejects(spooled.link([{ folder: inbox, name: 'a' }]), isProblem);
  assert.ok(sentences.some((sentence) => sentence.startsWith('possible duplicate')));
});

test('all who share the failed fsync of a folder take their message back', async (t) => {
  const { spool, files, inbox } = await openGround(t);
  const spooled = await Promise.all(Array.from({ length: 8 }, () => received(spool)));
  await Promise.all(spooled.map((one) => one.sync()));
  files.order({ call: 'fsync', code: 'EIO', path: 'new' });
  const placed = await Promise.allSettled(spooled.map((one, n) => one.link([{ folder: inbox, name: `m${n}` }])));
  assert.ok(placed.every(({ status }) => status === 'rejected'));
  assert.deepEqual(await readdir(inbox), []);
});

test('a failed rewrite leaves the message as it was, and nothing beside it', async (t) => {
  const ground = await openGround(t);
  const spooled = await received(ground.spool, largeMessage);
  ground.files.order({ call: 'write', code: 'ENOSPC' });
  await assert.rejects(spooled.rewrite({ add: [['X-A', 'b']], remove: [] }), isProblem);
  ground.files.order();
  await spooled.link([{ folder: ground.inbox, name: 'a' }]);
  assert.ok((await contentOf(ground, 'a')).equals(Buffer.concat([returnPath, trace, largeMessage])));
  await spooled.release();
  await ground.spool.settled();
  assert.deepEqual(await readdir(join(ground.root, 'spool')), []);
});

test('after a fault of the disk the spool is degraded, and recovers by itself', async (t) => {
  const { spool, files } = await openGround(t);
  assert.equal(spool.report().status, 'up');
  files.order({ call: 'fsync', code: 'ENOSPC', nth: 1 });
  await assert.rejects((await received(spool)).sync());
  assert.equal(spool.report().status, 'degraded');
  while (spool.report().status !== 'up') await new Promise(setImmediate);
});

test('a degraded spool that nobody looks at recovers by its own probe', async (t) => {
  const { spool, files } = await openGround(t);
  files.order({ call: 'fsync', code: 'EIO', nth: 1 });
  await assert.rejects((await received(spool)).sync());
  files.order({ call: 'write', code: 'ENOSPC' });
  await spool.probe();
  assert.equal(spool.report().status, 'degraded');
  files.order();
  await spool.probe();
  assert.deepEqual(spool.report(), { status: 'up' });
});

test('an unknown fault is temporary, whatever it is', () => {
  for (const error of [new Error('x'), 'text', undefined, Object.assign(new Error('y'), { code: 'EWHATEVER' })]) {
    assert.equal(classOf(asStorageProblem(error)).smtp[0], 451);
  }
});
