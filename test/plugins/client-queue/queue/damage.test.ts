import assert from 'node:assert/strict';
import { mkdir, readdir, readFile, rm, symlink, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { isProblem, isStartError } from '../../../../core/problem.js';
import { claiming, settlement } from '../../../support/queue-entries.js';
import { accept, claimOne, entryOf } from '../../../support/relay-queue/ground.js';
import { until } from '../../../support/until.js';
import { bodiesOf, fileQueueGround, type FileQueueGround } from './queue-ground.js';

/** Entries of which the first are in a snapshot and the others in the journal. */
async function filled(t: Parameters<typeof fileQueueGround>[0]): Promise<{ ground: FileQueueGround; uids: string[] }> {
  const ground = await fileQueueGround(t, { journalBytes: 4000 });
  const uids: string[] = [];
  while ((await snapshotsOf(ground)).length === 0) uids.push((await accept(ground)).uid);
  await ground.reopen({ journalBytes: 1_000_000 });
  for (let n = 0; n < 3; n++) uids.push((await accept(ground)).uid);
  await ground.queue.close();
  return { ground, uids };
}

async function snapshotsOf({ folder }: FileQueueGround): Promise<readonly string[]> {
  const names = await readdir(folder);
  return names.filter((name) => /^snapshot-[0-9a-z]{20}$/.test(name)).map((name) => join(folder, name));
}

/** No message is lost: each has its entry, or lies in quarantine with a reason. */
async function holdTo(ground: FileQueueGround, uids: readonly string[]): Promise<{ kept: number; aside: number }> {
  await ground.queue.housekeep(ground.clock.now());
  const quarantined = await ground.queue.quarantined();
  let kept = 0;
  for (const uid of uids) {
    const entry = await ground.queue.find(uid);
    const aside = quarantined.find(({ name }) => name.endsWith(`${uid}.eml`));
    if (entry === undefined) assert.match(aside?.reason ?? 'lost', /No entry of the queue/);
    else {
      kept += 1;
      await text(await ground.queue.open(uid));
    }
  }
  return { kept, aside: uids.length - kept };
}

test('nothing is damaged: every entry is there', async (t) => {
  const { ground, uids } = await filled(t);
  await ground.afterCrash();
  assert.deepEqual(await holdTo(ground, uids), { kept: uids.length, aside: 0 });
});

test('attempts that the disk spoils while the queue is open are forgotten, and nothing else suffers', async (t) => {
  const ground = await fileQueueGround(t, { journalBytes: 1, segmentBytes: 64 * 1024 });
  const { uid } = await accept(ground);
  const attempt = async (): Promise<void> => {
    const lease = await claimOne(ground);
    await ground.queue.settle(lease, settlement(lease, 'bounced', { at: ground.clock.now() }));
  };
  await attempt();
  const path = await until('the attempt in a snapshot', async () => {
    await accept(ground);
    const [found = ''] = await snapshotsOf(ground);
    return found !== '' && (await readFile(found)).includes('"destination":"one.example"') ? found : undefined;
  });
  const bytes = await readFile(path);
  bytes.fill('X', bytes.indexOf('"destination":"one.example"'));
  await writeFile(path, bytes);
  assert.deepEqual((await entryOf(ground.queue, uid)).history, []);
  assert.equal((await ground.queue.notices(9)).length, 1);
  await attempt();
  assert.equal((await ground.queue.notices(9)).length, 2);
  await ground.queue.noticed(uid, ['1']);
  assert.equal((await entryOf(await ground.reopen(), uid)).state, 'bounced');
});

test('a damaged line of the snapshot costs its entry, whose message is set aside', async (t) => {
  const { ground, uids } = await filled(t);
  const [path = ''] = await snapshotsOf(ground);
  const bytes = await readFile(path);
  const at = bytes.indexOf(uids[1] ?? '');
  bytes[at + 3] = 88;
  await writeFile(path, bytes);
  await ground.afterCrash();
  assert.deepEqual(await holdTo(ground, uids), { kept: uids.length - 1, aside: 1 });
  assert.ok((await ground.queue.quarantined()).some(({ reason }) => /snapshot/.test(reason)));
  await ground.afterCrash();
  assert.deepEqual(await holdTo(ground, uids), { kept: uids.length - 1, aside: 1 }, 'the next start finds it whole');
});

test('a snapshot that ends too early, or is gone, costs no message', async (t) => {
  for (const harm of [
    (path: string) => truncate(path, 700),
    (path: string) => rm(path),
    (path: string) => truncate(path),
  ]) {
    const { ground, uids } = await filled(t);
    const [path = ''] = await snapshotsOf(ground);
    await harm(path);
    await ground.afterCrash();
    const { kept } = await holdTo(ground, uids);
    assert.ok(kept >= 3 && kept < uids.length, 'the journal is still there');
  }
});

test('a journal that is gone, or nonsense, costs no message, and the snapshot is still good', async (t) => {
  const { ground: first } = await filled(t);
  const count = (await readdir(join(first.folder, 'journal'))).length;
  assert.ok(count > 0);
  for (const harm of [
    (folder: string) => rm(folder, { recursive: true }),
    async (folder: string) => {
      for (const name of await readdir(folder)) await writeFile(join(folder, name), 'nonsense');
    },
    async (folder: string) => {
      for (const name of await readdir(folder)) await truncate(join(folder, name), 100);
    },
  ]) {
    const { ground, uids } = await filled(t);
    await harm(join(ground.folder, 'journal'));
    await ground.afterCrash();
    const { kept, aside } = await holdTo(ground, uids);
    assert.ok(kept > 0 && aside > 0);
    const { uid } = await accept(ground);
    await ground.afterCrash();
    await entryOf(ground.queue, uid);
  }
});

test('a bit that turned in the middle of the journal costs no message', async (t) => {
  const { ground, uids } = await filled(t);
  const folder = join(ground.folder, 'journal');
  for (const name of await readdir(folder)) {
    const bytes = await readFile(join(folder, name));
    const at = bytes.indexOf(uids.at(-2) ?? '');
    if (at >= 0) bytes[at] = 88;
    await writeFile(join(folder, name), bytes);
  }
  await ground.afterCrash();
  assert.deepEqual(await holdTo(ground, uids), { kept: uids.length - 1, aside: 1 });
});

test('a message that is missing or damaged holds its entry, and what is left is set aside', async (t) => {
  const ground = await fileQueueGround(t);
  const missing = await accept(ground);
  const empty = await accept(ground);
  const whole = await accept(ground);
  const pathOf = async (uid: string) => (await ground.queue.locate({ folder: '', name: `${uid}.eml` })) ?? '';
  await rm(await pathOf(missing.uid));
  await truncate(await pathOf(empty.uid));
  await ground.afterCrash();
  await ground.queue.housekeep(ground.clock.now());
  await assert.rejects(ground.queue.open(missing.uid), (error) => isProblem(error) && error.problem === 'not-found');
  assert.match((await entryOf(ground.queue, missing.uid)).hold ?? '', /missing/);
  assert.match((await entryOf(ground.queue, empty.uid)).hold ?? '', /damaged/);
  const leases = await ground.queue.claim(claiming(ground.clock.now()));
  assert.deepEqual(
    leases.map(({ uid }) => uid),
    [whole.uid],
  );
  assert.equal((await ground.queue.quarantined()).length, 1);
});

test('what is none of our files is set aside with a reason, links unfollowed, and nothing is removed', async (t) => {
  const ground = await fileQueueGround(t);
  const { uid } = await accept(ground);
  await ground.queue.close();
  const { folder } = ground;
  await writeFile(join(folder, 'notes.txt'), 'mine');
  await mkdir(join(folder, 'ff', 'deep'), { recursive: true });
  await writeFile(join(folder, 'ff', 'deep', 'file'), 'mine too');
  await symlink('/etc/passwd', join(folder, '0', 'link.eml'));
  await writeFile(join(folder, '1', 'no uid!.eml'), 'x');
  await writeFile(join(folder, '2', 'zero.eml'), '');
  await ground.afterCrash();
  await ground.queue.housekeep(ground.clock.now());
  const found = await ground.queue.quarantined();
  assert.equal(found.length, 5);
  assert.ok(found.every(({ reason, at }) => reason.length > 10 && at > 0));
  const names = await readdir(join(folder, 'quarantine'));
  const deep = names.find((name) => name.endsWith('-ff')) ?? '';
  assert.equal(await readFile(join(folder, 'quarantine', deep, 'deep', 'file'), 'utf8'), 'mine too');
  assert.deepEqual(await bodiesOf(folder), [uid]);
  assert.equal((await ground.queue.statistics(0)).quarantined, 5);
});

test('what a newer version has written stops the start with a sentence, and is left as it is', async (t) => {
  const { ground } = await filled(t);
  const [path = ''] = await snapshotsOf(ground);
  const { encodeLine } = await import('../../../../plugins/client-queue/queue/snapshots.js');
  const line = encodeLine(JSON.stringify({ form: 99, upTo: 1 }), '[]', '[]').bytes;
  await writeFile(path, line);
  await assert.rejects(ground.afterCrash(), (error) => isStartError(error) && /newer version/.test(String(error)));
  assert.deepEqual(await readFile(path), line);
});
