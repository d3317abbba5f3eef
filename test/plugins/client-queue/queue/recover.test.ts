import assert from 'node:assert/strict';
import { readdir, readFile, rm, truncate, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { shards } from '../../../../plugins/client-queue/queue/bodies.js';
import { accept, claimOne, entryOf, isThe } from '../../../kit/relay-queue/harness.js';
import { settlement } from '../../../kit/relay-queue/entries.js';
import { bodiesOf, fileQueueFixture, type FileQueueFixture } from './queue-fixture.js';

const body = 'Subject: hello\r\n\r\nA line.\r\n';
const large = `Subject: large\r\n\r\n${'x'.repeat(70)}\r\n`.concat(`${'y'.repeat(70)}\r\n`.repeat(5000));

/** The journal is gone, and the queue was looked through. */
async function withoutJournal(fixture: FileQueueFixture): Promise<void> {
  await fixture.spool.probe();
  await fixture.queue.close();
  await rm(join(fixture.folder, 'journal'), { recursive: true });
  await fixture.reopen();
  await fixture.queue.housekeep(fixture.clock.now());
}

for (const [title, durability, message] of [
  ['beside a message that is a file of its own', 'file', body],
  ['in front of a message that the log had', 'log', body],
  ['beside a large message', 'log', large],
] as const) {
  test(`an envelope ${title} makes the entry again, and the message is the same`, async (t) => {
    const fixture = await fileQueueFixture(t, {}, { durability, checkpointMs: 10 });
    const accepted = await accept(fixture, {}, message);
    const before = await text(await fixture.queue.open(accepted.uid));
    // Until the log has brought it to its place.
    while ((await bodiesOf(fixture.folder)).length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    await withoutJournal(fixture);
    const [aside] = await fixture.queue.quarantine.list();
    assert.equal(aside?.uid, accepted.uid);
    const content = await text(await fixture.queue.quarantine.read(aside.name));
    assert.ok(content.startsWith('Return-Path: '), 'the message alone, for whoever downloads it');
    const dry = await fixture.queue.quarantine.recover({ dryRun: true });
    assert.deepEqual([dry.recovered, (await fixture.queue.quarantine.list()).length], [1, 1]);
    assert.deepEqual(await fixture.queue.quarantine.recover({}), { recovered: 1, uids: [accepted.uid], left: [] });
    assert.deepEqual(await fixture.queue.quarantine.list(), []);
    const check = async (): Promise<void> => {
      const entry = await entryOf(fixture.queue, accepted.uid);
      assert.deepEqual(
        [entry.sender, entry.recipients.map(({ address }) => address), entry.state],
        [accepted.sender, accepted.recipients.map(({ address }) => address), 'queued'],
      );
      assert.deepEqual({ ...entry.accepted, nextAttempt: 0, size: 0 }, { ...accepted, nextAttempt: 0, size: 0 });
      assert.equal(await text(await fixture.queue.open(accepted.uid)), before);
    };
    await check();
    await fixture.reopen();
    await fixture.queue.housekeep(fixture.clock.now());
    await check();
    const lease = await claimOne(fixture);
    await fixture.queue.settle(lease, settlement(lease, 'delivered', { at: fixture.clock.now() }));
    await fixture.reopen();
    const left = await Promise.all(shards.map((shard) => readdir(join(fixture.folder, shard))));
    assert.deepEqual(left.flat(), [], 'neither message nor envelope is left');
  });
}

test('what cannot be an entry stays in quarantine, with the reason', async (t) => {
  const fixture = await fileQueueFixture(t);
  const uids: string[] = [];
  for (let n = 0; n < 4; n += 1) uids.push((await accept(fixture)).uid);
  const known = await accept(fixture);
  await withoutJournal(fixture);
  const folder = join(fixture.folder, 'quarantine');
  const nameOf = async (uid: string) => (await readdir(folder)).find((name) => name.endsWith(`${uid}.eml`)) ?? '';
  const [cut = '', changed = '', nameless = ''] = await Promise.all(uids.map(nameOf));
  await truncate(join(folder, cut), 90);
  const bytes = await readFile(join(folder, changed));
  bytes[bytes.length - 4] = 88;
  await writeFile(join(folder, changed), bytes);
  await writeFile(join(folder, `${nameless}.reason`), JSON.stringify({ reason: 'x', at: 1 }));
  await writeFile(join(folder, '01m84a2kjt0000gt06y0-notes.txt'), 'mine');
  await fixture.queue.quarantine.recover({ names: [await nameOf(known.uid)] });
  const { recovered, left } = await fixture.queue.quarantine.recover({});
  assert.equal(recovered, 1);
  const reasons = new Map(left.map(({ name, reason }) => [name, reason]));
  assert.match(reasons.get(cut) ?? '', /damaged/);
  assert.match(reasons.get(changed) ?? '', /damaged/);
  assert.match(reasons.get(nameless) ?? '', /envelope is not known/);
  assert.match(reasons.get('01m84a2kjt0000gt06y0-notes.txt') ?? '', /no message/);
  assert.match((await fixture.queue.quarantine.recover({ names: ['gone'] })).left[0]?.reason ?? '', /no such file/);
  assert.equal((await fixture.queue.quarantine.list()).length, 4);
});

test('a disk that refuses the entry leaves the message in quarantine', async (t) => {
  const fixture = await fileQueueFixture(t);
  await accept(fixture);
  await withoutJournal(fixture);
  fixture.files.order({ call: 'fdatasync', code: 'ENOSPC' });
  const refused = await fixture.queue.quarantine.recover({});
  assert.deepEqual([refused.recovered, refused.left.length], [0, 1]);
  fixture.files.order();
  assert.equal((await fixture.queue.quarantine.list()).length, 1);
});

test('a changed byte is noticed as the message is read; an entry without a checksum, of an older version, is read as it is', async (t) => {
  const fixture = await fileQueueFixture(t);
  const { uid } = await accept(fixture);
  const old = await accept(fixture);
  const big = await accept(fixture, {}, large);
  for (const one of [uid, old.uid, big.uid]) {
    const path = (await fixture.queue.locate({ folder: '', name: `${one}.eml` })) ?? '';
    const bytes = await readFile(path);
    bytes[bytes.length - 5] = 88;
    await writeFile(path, bytes);
  }
  await assert.rejects(async () => text(await fixture.queue.open(uid)), isThe('not-found'));
  await assert.rejects(async () => text(await fixture.queue.open(big.uid)), isThe('not-found'));
  await fixture.queue.close();
  const journal = join(fixture.folder, 'journal');
  await fixture.reopen({ journalBytes: 1 });
  await accept(fixture);
  await fixture.queue.close();
  const [snapshot = ''] = (await readdir(fixture.folder)).filter((name) => name.startsWith('snapshot-'));
  const { crc32 } = await import('node:zlib');
  const lines = (await readFile(join(fixture.folder, snapshot), 'utf8')).split('\n');
  const stripped = lines.map((line) => {
    const rest = line.slice(9).replace(/"checksum":\d+,/, '');
    return line === '' ? '' : `${crc32(rest).toString(16).padStart(8, '0')} ${rest}`;
  });
  await writeFile(join(fixture.folder, snapshot), stripped.join('\n'));
  assert.ok((await readdir(journal)).length > 0);
  await fixture.reopen();
  assert.match(await text(await fixture.queue.open(old.uid)), /A li/);
});

test('what lies in quarantine for too long goes, and the oldest when it is too much; what is young stays', async (t) => {
  const fixture = await fileQueueFixture(t, { quarantineMs: 10 * 86_400_000, quarantineBytes: 150 });
  await fixture.queue.close();
  const folder = join(fixture.folder, 'quarantine');
  const now = fixture.clock.now();
  const day = 86_400_000;
  for (const [index, age] of [20, 5, 3, 0].entries()) {
    await writeFile(join(fixture.folder, `foreign${index}`), 'x'.repeat(100));
    await fixture.reopen();
    const name = (await readdir(folder)).find((one) => one.endsWith(`foreign${index}`)) ?? '';
    await writeFile(join(folder, `${name}.reason`), JSON.stringify({ reason: 'x', at: now - age * day }));
    await utimes(join(folder, name), now / 1000, now / 1000);
    await fixture.queue.close();
  }
  await fixture.reopen();
  fixture.clock.advance(3600);
  for (let n = 0; n < 10; n += 1) {
    fixture.clock.advance(30);
    await fixture.queue.housekeep(fixture.clock.now());
  }
  const left = (await readdir(folder)).filter((name) => !name.endsWith('.reason'));
  assert.deepEqual(
    left.map((name) => name.split('-')[1]),
    ['foreign3'],
  );
  assert.equal(fixture.queue.figures().quarantined, 1);
});
