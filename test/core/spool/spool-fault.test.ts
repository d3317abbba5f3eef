import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { classOf, isProblem } from '../../../core/problem.js';
import { asStorageProblem } from '../../../core/disk/fault.js';
import type { SpoolWriter } from '../../../core/spool/spool.js';
import type { Fault } from './faulty-files.js';
import { contentOf, largeMessage, message, openFixture, received, returnPath, trace, whole } from './spool-fixture.js';

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
        const fixture = await openFixture(t);
        fixture.files.order({ ...step, code });
        const error = await deliver(Promise.resolve(fixture.spool.create(returnPath, trace)), body, fixture.inbox).then(
          () => assert.fail('it was acknowledged'),
          (error: unknown) => error,
        );
        assert.ok(isProblem(error), `${code} is no problem: ${String(error)}`);
        assert.equal(classOf(error).smtp[0], replies[code]);
        assert.ok(!`${error.message} ${error.details.detail ?? ''}`.includes('/'), error.message);
        await fixture.spool.settled();
        assert.deepEqual(await readdir(fixture.inbox), []);
        assert.deepEqual(await readdir(join(fixture.root, 'spool')), []);
        assert.equal(fixture.files.opened.size, 0);
        fixture.files.order();
        await (await received(fixture.spool)).link([{ folder: fixture.inbox, name: 'next' }]);
        assert.ok((await contentOf(fixture, 'next')).equals(whole), 'the next message is taken without a restart');
      }
    });
  }
}

/** As a session does: releases the writer or the message in any case. */
async function deliver(created: Promise<SpoolWriter>, body: Buffer, folder: string): Promise<void> {
  const writer = await created;
  try {
    for (let at = 0; at < body.length; at += 10_000) await writer.write(body.subarray(at, at + 10_000));
    const spooled = await writer.finish();
    await spooled.prepare();
    await spooled.link([{ folder, name: 'a' }]);
  } finally {
    await writer.discard();
  }
}

test('a failed fsync is not tried again on the same file', async (t) => {
  const { spool, files } = await openFixture(t);
  files.order({ call: 'fsync', code: 'EIO', nth: 1 });
  const spooled = await received(spool);
  await assert.rejects(spooled.prepare());
  await assert.rejects(spooled.prepare());
  assert.equal(files.count('fsync', 'spool/'), 1);
});

test('a message that is neither durable nor removable is logged as a possible duplicate', async (t) => {
  const { spool, files, inbox, sentences } = await openFixture(t);
  files.order({ call: 'fsync', code: 'EIO', path: 'new' }, { call: 'unlink', code: 'EIO', path: 'new' });
  const spooled = await received(spool);
  await assert.rejects(spooled.link([{ folder: inbox, name: 'a' }]), isProblem);
  assert.ok(sentences.some((sentence) => sentence.startsWith('possible duplicate')));
});

test('all messages that share a failed fsync of a folder are unlinked', async (t) => {
  const { spool, files, inbox } = await openFixture(t);
  const spooled = await Promise.all(Array.from({ length: 8 }, () => received(spool)));
  await Promise.all(spooled.map((one) => one.prepare()));
  files.order({ call: 'fsync', code: 'EIO', path: 'new' });
  const placed = await Promise.allSettled(spooled.map((one, n) => one.link([{ folder: inbox, name: `m${n}` }])));
  assert.ok(placed.every(({ status }) => status === 'rejected'));
  assert.deepEqual(await readdir(inbox), []);
});

test('a failed rewrite leaves the message as it was, and nothing beside it', async (t) => {
  const fixture = await openFixture(t);
  const spooled = await received(fixture.spool, largeMessage);
  fixture.files.order({ call: 'write', code: 'ENOSPC' });
  await assert.rejects(spooled.rewrite({ add: [['X-A', 'b']], remove: [] }), isProblem);
  fixture.files.order();
  await spooled.link([{ folder: fixture.inbox, name: 'a' }]);
  assert.ok((await contentOf(fixture, 'a')).equals(Buffer.concat([returnPath, trace, largeMessage])));
  await spooled.release();
  await fixture.spool.settled();
  assert.deepEqual(await readdir(join(fixture.root, 'spool')), []);
});

test('after a fault of the disk the spool is degraded, and recovers by itself', async (t) => {
  const { spool, files } = await openFixture(t);
  assert.equal(spool.report().status, 'up');
  files.order({ call: 'fsync', code: 'ENOSPC', nth: 1 });
  await assert.rejects((await received(spool)).prepare());
  assert.equal(spool.report().status, 'degraded');
  while (spool.report().status !== 'up') await new Promise(setImmediate);
});

test('a degraded spool recovers by its own probe', async (t) => {
  const { spool, files } = await openFixture(t);
  files.order({ call: 'fsync', code: 'EIO', nth: 1 });
  await assert.rejects((await received(spool)).prepare());
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
