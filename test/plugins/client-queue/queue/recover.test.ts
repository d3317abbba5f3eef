import assert from 'node:assert/strict';
import { readdir, readFile, rm, truncate, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { shards } from '../../../../plugins/client-queue/queue/bodies.js';
import { accept, claimOne, entryOf, isThe } from '../../../support/relay-queue/ground.js';
import { settlement } from '../../../support/queue-entries.js';
import { bodiesOf, fileQueueGround, type FileQueueGround } from './queue-ground.js';

const body = 'Subject: hello\r\n\r\nA line.\r\n';
const large = `Subject: large\r\n\r\n${'x'.repeat(70)}\r\n`.concat(`${'y'.repeat(70)}\r\n`.repeat(5000));

/** The journal is gone, and the queue was looked through. */
async function withoutJournal(ground: FileQueueGround): Promise<void> {
  await ground.spool.probe();
  await ground.queue.close();
  await rm(join(ground.folder, 'journal'), { recursive: true });
  await ground.reopen();
  await ground.queue.housekeep(ground.clock.now());
}

for (const [title, durability, message] of [
  ['beside a message that is a file of its own', 'file', body],
  ['in front of a message that the log had', 'log', body],
  ['beside a large message', 'log', large],
] as const) {
  test(`an envelope ${title} makes the entry again, and the message is the same`, async (t) => {
    const ground = await fileQueueGround(t, {}, { durability, checkpointMs: 10 });
    const accepted = await accept(ground, {}, message);
    const before = await text(await ground.queue.open(accepted.uid));
    // Until the log has brought it to its place.
    while ((await bodiesOf(ground.folder)).length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    await withoutJournal(ground);
    const [aside] = await ground.queue.quarantined();
    assert.equal(aside?.uid, accepted.uid);
    const content = await text(await ground.queue.openQuarantined(aside.name));
    assert.ok(content.startsWith('Return-Path: '), 'the message alone, for whoever downloads it');
    const dry = await ground.queue.recover({ dryRun: true });
    assert.deepEqual([dry.recovered, (await ground.queue.quarantined()).length], [1, 1]);
    assert.deepEqual(await ground.queue.recover({}), { recovered: 1, uids: [accepted.uid], left: [] });
    assert.deepEqual(await ground.queue.quarantined(), []);
    const check = async (): Promise<void> => {
      const entry = await entryOf(ground.queue, accepted.uid);
      assert.deepEqual(
        [entry.sender, entry.recipients.map(({ address }) => address), entry.state],
        [accepted.sender, accepted.recipients.map(({ address }) => address), 'queued'],
      );
      assert.deepEqual({ ...entry.accepted, nextAttempt: 0, size: 0 }, { ...accepted, nextAttempt: 0, size: 0 });
      assert.equal(await text(await ground.queue.open(accepted.uid)), before);
    };
    await check();
    await ground.reopen();
    await ground.queue.housekeep(ground.clock.now());
    await check();
    const lease = await claimOne(ground);
    await ground.queue.settle(lease, settlement(lease, 'delivered', { at: ground.clock.now() }));
    await ground.reopen();
    const left = await Promise.all(shards.map((shard) => readdir(join(ground.folder, shard))));
    assert.deepEqual(left.flat(), [], 'neither message nor envelope is left');
  });
}

test('what cannot be an entry stays in quarantine, with the reason', async (t) => {
  const ground = await fileQueueGround(t);
  const uids: string[] = [];
  for (let n = 0; n < 4; n += 1) uids.push((await accept(ground)).uid);
  const known = await accept(ground);
  await withoutJournal(ground);
  const folder = join(ground.folder, 'quarantine');
  const nameOf = async (uid: string) => (await readdir(folder)).find((name) => name.endsWith(`${uid}.eml`)) ?? '';
  const [cut = '', changed = '', nameless = ''] = await Promise.all(uids.map(nameOf));
  await truncate(join(folder, cut), 90);
  const bytes = await readFile(join(folder, changed));
  bytes[bytes.length - 4] = 88;
  await writeFile(join(folder, changed), bytes);
  await writeFile(join(folder, `${nameless}.reason`), JSON.stringify({ reason: 'x', at: 1 }));
  await writeFile(join(folder, '01m84a2kjt0000gt06y0-notes.txt'), 'mine');
  await ground.queue.recover({ names: [await nameOf(known.uid)] });
  const { recovered, left } = await ground.queue.recover({});
  assert.equal(recovered, 1);
  const reasons = new Map(left.map(({ name, reason }) => [name, reason]));
  assert.match(reasons.get(cut) ?? '', /damaged/);
  assert.match(reasons.get(changed) ?? '', /damaged/);
  assert.match(reasons.get(nameless) ?? '', /envelope is not known/);
  assert.match(reasons.get('01m84a2kjt0000gt06y0-notes.txt') ?? '', /no message/);
  assert.match((await ground.queue.recover({ names: ['gone'] })).left[0]?.reason ?? '', /no such file/);
  assert.equal((await ground.queue.quarantined()).length, 4);
});

test('a disk that refuses the entry leaves the message in quarantine', async (t) => {
  const ground = await fileQueueGround(t);
  await accept(ground);
  await withoutJournal(ground);
  ground.files.order({ call: 'fdatasync', code: 'ENOSPC' });
  const refused = await ground.queue.recover({});
  assert.deepEqual([refused.recovered, refused.left.length], [0, 1]);
  ground.files.order();
  assert.equal((await ground.queue.quarantined()).length, 1);
});

test('a changed byte is noticed as the message is read; an entry without a checksum, of an older version, is read as it is', async (t) => {
  const ground = await fileQueueGround(t);
  const { uid } = await accept(ground);
  const old = await accept(ground);
  const big = await accept(ground, {}, large);
  for (const one of [uid, old.uid, big.uid]) {
    const path = (await ground.queue.locate({ folder: '', name: `${one}.eml` })) ?? '';
    const bytes = await readFile(path);
    bytes[bytes.length - 5] = 88;
    await writeFile(path, bytes);
  }
  await assert.rejects(async () => text(await ground.queue.open(uid)), isThe('not-found'));
  await assert.rejects(async () => text(await ground.queue.open(big.uid)), isThe('not-found'));
  await ground.queue.close();
  const journal = join(ground.folder, 'journal');
  await ground.reopen({ journalBytes: 1 });
  await accept(ground);
  await ground.queue.close();
  const [snapshot = ''] = (await readdir(ground.folder)).filter((name) => name.startsWith('snapshot-'));
  const { crc32 } = await import('node:zlib');
  const lines = (await readFile(join(ground.folder, snapshot), 'utf8')).split('\n');
  const stripped = lines.map((line) => {
    const rest = line.slice(9).replace(/"checksum":\d+,/, '');
    return line === '' ? '' : `${crc32(rest).toString(16).padStart(8, '0')} ${rest}`;
  });
  await writeFile(join(ground.folder, snapshot), stripped.join('\n'));
  assert.ok((await readdir(journal)).length > 0);
  await ground.reopen();
  assert.match(await text(await ground.queue.open(old.uid)), /A li/);
});

test('what lies in quarantine for too long goes, and the oldest when it is too much; what is young stays', async (t) => {
  const ground = await fileQueueGround(t, { quarantineMs: 10 * 86_400_000, quarantineBytes: 150 });
  await ground.queue.close();
  const folder = join(ground.folder, 'quarantine');
  const now = ground.clock.now();
  const day = 86_400_000;
  for (const [index, age] of [20, 5, 3, 0].entries()) {
    await writeFile(join(ground.folder, `foreign${index}`), 'x'.repeat(100));
    await ground.reopen();
    const name = (await readdir(folder)).find((one) => one.endsWith(`foreign${index}`)) ?? '';
    await writeFile(join(folder, `${name}.reason`), JSON.stringify({ reason: 'x', at: now - age * day }));
    await utimes(join(folder, name), now / 1000, now / 1000);
    await ground.queue.close();
  }
  await ground.reopen();
  ground.clock.advance(3600);
  for (let n = 0; n < 10; n += 1) {
    ground.clock.advance(30);
    await ground.queue.housekeep(ground.clock.now());
  }
  const left = (await readdir(folder)).filter((name) => !name.endsWith('.reason'));
  assert.deepEqual(
    left.map((name) => name.split('-')[1]),
    ['foreign3'],
  );
  assert.equal(ground.queue.figures().quarantined, 1);
});
