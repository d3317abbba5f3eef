import assert from 'node:assert/strict';
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { LogOnlyMessage } from '../../../core/spool/message-log.js';
import type { LoggedMessage } from '../../../core/spool/spool.js';
import {
  contentOf,
  inLog,
  largeMessage,
  nextLife,
  openFixture,
  received,
  segmentsListed,
  whole,
  type SpoolFixture,
} from './spool-fixture.js';

const log = { ...inLog, maxSegments: 2 } as const;

/** A message that is only in the log, with a count of its links. */
async function kept(fixture: SpoolFixture, name: string) {
  const message = await received(fixture.spool);
  const counted = { stored: 0 };
  const placement = { folder: fixture.inbox, name };
  const found = await message.keepInLog?.(placement, () => (counted.stored += 1));
  return { message, counted, placement, kept: found };
}

async function surely(fixture: SpoolFixture, name: string): Promise<LoggedMessage> {
  const { message, kept: found } = await kept(fixture, name);
  await message.release();
  assert.ok(found !== undefined);
  return found;
}

const inbox = (fixture: SpoolFixture) => readdir(fixture.inbox);

test('a message is durable without a file, by one fdatasync, and its bytes are in memory', async (t) => {
  const fixture = await openFixture(t, { ...log, maxSegments: 1 });
  await surely(fixture, 'first');
  await segmentsListed(fixture.files);
  fixture.files.calls.length = 0;
  const message = await surely(fixture, 'a');
  assert.ok(message.content?.equals(whole));
  assert.deepEqual(
    [fixture.files.count('fdatasync'), fixture.files.count('open'), fixture.files.count('lstat')],
    [1, 0, 0],
  );
  assert.deepEqual(await inbox(fixture), []);
});

test('after a crash the complete message is linked', async (t) => {
  const fixture = await openFixture(t, log);
  await surely(fixture, 'a');
  await nextLife(fixture);
  assert.ok((await contentOf(fixture, 'a')).equals(whole));
});

test('a dropped message never becomes a file, not even after a crash', async (t) => {
  const fixture = await openFixture(t, log);
  const message = await surely(fixture, 'a');
  assert.equal(message.drop(), true);
  assert.equal(message.content, undefined);
  const spool = await nextLife(fixture, { finder: () => () => Promise.resolve(null) });
  assert.deepEqual(await inbox(fixture), []);
  await spool.close();
  assert.deepEqual(await inbox(fixture), []);
  assert.equal(fixture.files.count('open', 'new/a'), 0);
});

test('a message that is still needed is linked before its record is released', async (t) => {
  const fixture = await openFixture(t, { ...log, checkpointMs: 5 });
  const { message, counted, kept: found } = await kept(fixture, 'a');
  await message.release();
  while (counted.stored === 0) await pause(2);
  assert.ok((await contentOf(fixture, 'a')).equals(whole));
  assert.deepEqual([found?.content, found?.drop()], [undefined, false]);
  while (fixture.files.count('fdatasync') < 2) await pause(2);
  await nextLife(fixture);
  assert.deepEqual(await inbox(fixture), ['a']);
});

test('a stop links all messages that are only in the log', async (t) => {
  const fixture = await openFixture(t, log);
  await surely(fixture, 'a');
  (await surely(fixture, 'b')).drop();
  await fixture.spool.close();
  assert.deepEqual(await inbox(fixture), ['a']);
});

test('a checkpoint without new files flushes no file system', async (t) => {
  let flushed = 0;
  const flush = { flush: () => Promise.resolve((flushed += 1) > 0) };
  const fixture = await openFixture(t, { ...log, flush });
  const before = flushed;
  (await surely(fixture, 'a')).drop();
  await fixture.spool.close();
  assert.equal(flushed, before);
});

test('a message dropped while its file is written leaves no file', async (t) => {
  const fixture = await openFixture(t, log);
  const message = await surely(fixture, 'a');
  const release = fixture.files.hold('rename');
  const closing = fixture.spool.close();
  while (fixture.files.count('rename', 'new/a') === 0) await pause(2);
  assert.equal(message.drop(), true);
  release();
  await closing;
  assert.deepEqual(await inbox(fixture), []);
  assert.deepEqual(await readdir(join(fixture.root, 'spool')), []);
});

test('a message dropped while its file is written is settled, even when that file cannot be removed', async (t) => {
  const fixture = await openFixture(t);
  const target = { folder: fixture.inbox, name: 'a' };
  let settled = 0;
  const input = { target, content: whole, number: 1, onSettled: () => (settled += 1), onLinked: () => undefined };
  const message = new LogOnlyMessage(input);
  fixture.files.order({ call: 'unlink', code: 'EIO' });
  const release = fixture.files.hold('rename');
  const stored = message.link(fixture.files, join(fixture.root, 'spool', 'b'));
  while (fixture.files.count('rename') === 0) await pause(2);
  assert.equal(message.drop(), true);
  release();
  await assert.rejects(stored, { code: 'EIO' });
  assert.equal(settled, 1);
});

test('a message that was rolled back is not restored, whether its file was written or not', async (t) => {
  const fixture = await openFixture(t, { ...log, checkpointMs: 5 });
  const one = await kept(fixture, 'a');
  assert.equal(await one.message.rollback([one.placement]), true);
  const other = await kept(fixture, 'b');
  while (other.counted.stored === 0) await pause(2);
  assert.equal(await other.message.rollback([other.placement]), true);
  assert.deepEqual(await inbox(fixture), []);
  await nextLife(fixture);
  assert.deepEqual(await inbox(fixture), []);
});

test('a record that cannot be written makes no message durable', async (t) => {
  const fixture = await openFixture(t, log);
  await surely(fixture, 'first');
  fixture.files.order({ call: 'fdatasync', code: 'EIO' });
  const message = await received(fixture.spool);
  await assert.rejects(async () => message.keepInLog?.({ folder: fixture.inbox, name: 'a' }, () => undefined));
  fixture.files.order();
  await nextLife(fixture, {
    finder: () => (placement) => Promise.resolve(placement.name === 'first' ? null : undefined),
  });
  assert.deepEqual(await inbox(fixture), []);
});

test('while the disk refuses files the record stays, and the message is linked later', async (t) => {
  const fixture = await openFixture(t, { ...log, checkpointMs: 5 });
  fixture.files.order({ call: 'open', code: 'ENOSPC', path: `${join(fixture.root, 'spool')}/` });
  const { message, counted, kept: found } = await kept(fixture, 'a');
  await message.release();
  while (!fixture.sentences.some((sentence) => sentence.includes('could not be made durable'))) await pause(2);
  assert.ok(found?.content?.equals(whole));
  const next = await received(fixture.spool);
  assert.equal(
    await next.keepInLog?.({ folder: fixture.inbox, name: 'b' }, () => undefined),
    undefined,
    'to be placed',
  );
  fixture.files.order();
  while (counted.stored === 0) await pause(2);
  assert.deepEqual(await inbox(fixture), ['a']);
});

test('large messages, and all messages without the log, have to be linked', async (t) => {
  const fixture = await openFixture(t, log);
  const large = await received(fixture.spool, largeMessage);
  assert.equal(await large.keepInLog?.({ folder: fixture.inbox, name: 'a' }, () => undefined), undefined);
  const files = await openFixture(t, { durability: 'file' });
  assert.equal((await kept(files, 'a')).kept, undefined);
  await rm(fixture.inbox, { recursive: true });
});
