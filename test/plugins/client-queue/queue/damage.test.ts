import assert from 'node:assert/strict';
import { mkdir, readdir, readFile, rename, rm, symlink, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { isProblem, isStartError } from '../../../../core/problem.js';
import { claiming, settlement } from '../../../kit/relay-queue/entries.js';
import { accept, claimOne, entryOf } from '../../../kit/relay-queue/harness.js';
import { until } from '../../../support/until.js';
import { bodiesOf, fileQueueFixture, type FileQueueFixture } from './queue-fixture.js';

/** Entries of which the first are in a snapshot and the others in the journal. */
async function filled(
  t: Parameters<typeof fileQueueFixture>[0],
): Promise<{ fixture: FileQueueFixture; uids: string[] }> {
  const fixture = await fileQueueFixture(t, { journalBytes: 4000 });
  const uids: string[] = [];
  while ((await snapshotsOf(fixture)).length === 0) uids.push((await accept(fixture)).uid);
  await fixture.reopen({ journalBytes: 1_000_000 });
  for (let n = 0; n < 3; n++) uids.push((await accept(fixture)).uid);
  await fixture.queue.close();
  return { fixture, uids };
}

async function snapshotsOf({ folder }: FileQueueFixture): Promise<readonly string[]> {
  const names = await readdir(folder);
  return names.filter((name) => /^snapshot-[0-9a-z]{20}$/.test(name)).map((name) => join(folder, name));
}

/** No message is lost: each has its entry, or lies in quarantine with a reason. */
async function holdTo(fixture: FileQueueFixture, uids: readonly string[]): Promise<{ kept: number; aside: number }> {
  await fixture.queue.housekeep(fixture.clock.now());
  const quarantined = await fixture.queue.quarantine.list();
  let kept = 0;
  for (const uid of uids) {
    const entry = await fixture.queue.find(uid);
    const aside = quarantined.find(({ name }) => name.endsWith(`${uid}.eml`));
    if (entry === undefined) assert.match(aside?.reason ?? 'lost', /No entry of the queue/);
    else {
      kept += 1;
      await text(await fixture.queue.open(uid));
    }
  }
  return { kept, aside: uids.length - kept };
}

test('nothing is damaged: every entry is there', async (t) => {
  const { fixture, uids } = await filled(t);
  await fixture.afterCrash();
  assert.deepEqual(await holdTo(fixture, uids), { kept: uids.length, aside: 0 });
});

test('attempts that the disk spoils while the queue is open are forgotten, and nothing else suffers', async (t) => {
  const fixture = await fileQueueFixture(t, { journalBytes: 1, segmentBytes: 64 * 1024 });
  const { uid } = await accept(fixture);
  const attempt = async (): Promise<void> => {
    const lease = await claimOne(fixture);
    await fixture.queue.settle(lease, settlement(lease, 'bounced', { at: fixture.clock.now() }));
  };
  await attempt();
  const { path, bytes } = await until('the attempt in a snapshot', async () => {
    await accept(fixture);
    const [found = ''] = await snapshotsOf(fixture);
    const snapshot = await readFile(found).catch(() => Buffer.alloc(0)); // the next one may replace it now
    return snapshot.includes('"destination":"one.example"') ? { path: found, bytes: snapshot } : undefined;
  });
  bytes.fill('X', bytes.indexOf('"destination":"one.example"'));
  await writeFile(path, bytes);
  assert.deepEqual((await entryOf(fixture.queue, uid)).history, []);
  assert.equal((await fixture.queue.notices(9)).length, 1);
  await attempt();
  assert.equal((await fixture.queue.notices(9)).length, 2);
  await fixture.queue.noticed(uid, ['1']);
  assert.equal((await entryOf(await fixture.reopen(), uid)).state, 'bounced');
});

test('a damaged line of the snapshot costs its entry, whose message is set aside', async (t) => {
  const { fixture, uids } = await filled(t);
  const [path = ''] = await snapshotsOf(fixture);
  const bytes = await readFile(path);
  const at = bytes.indexOf(uids[1] ?? '');
  bytes[at + 3] = 88;
  await writeFile(path, bytes);
  await fixture.afterCrash();
  assert.deepEqual(await holdTo(fixture, uids), { kept: uids.length - 1, aside: 1 });
  assert.ok((await fixture.queue.quarantine.list()).some(({ reason }) => /snapshot/.test(reason)));
  await fixture.afterCrash();
  assert.deepEqual(await holdTo(fixture, uids), { kept: uids.length - 1, aside: 1 }, 'the next start finds it whole');
});

test('a snapshot that ends too early, or is gone, costs no message', async (t) => {
  for (const harm of [
    (path: string) => truncate(path, 700),
    (path: string) => rm(path),
    (path: string) => truncate(path),
  ]) {
    const { fixture, uids } = await filled(t);
    const [path = ''] = await snapshotsOf(fixture);
    await harm(path);
    await fixture.afterCrash();
    const { kept } = await holdTo(fixture, uids);
    assert.ok(kept >= 3 && kept < uids.length, 'the journal is still there');
  }
});

/** A copy of the first of two snapshots, with a name that sorts last: it was made while the clock was ahead. */
async function withOlderSnapshot(t: Parameters<typeof fileQueueFixture>[0]) {
  const fixture = await fileQueueFixture(t, { journalBytes: 4000 });
  const { uid: delivered } = await accept(fixture);
  const lease = await claimOne(fixture);
  const uids: string[] = [];
  const acceptUntilNext = async (before?: string): Promise<string> => {
    for (;;) {
      uids.push((await accept(fixture)).uid);
      const [path] = await snapshotsOf(fixture);
      if (path !== undefined && path !== before) return path;
    }
  };
  const first = await acceptUntilNext();
  const bytes = await readFile(first);
  await fixture.queue.settle(lease, settlement(lease, 'delivered', { at: fixture.clock.now() }));
  await acceptUntilNext(first);
  await fixture.queue.close();
  const [newer = ''] = await snapshotsOf(fixture);
  const older = join(fixture.folder, `snapshot-${'z'.repeat(20)}`);
  await writeFile(older, bytes);
  return { fixture, delivered, uids, older, newer };
}

test('an older snapshot that was left is not taken for the newest, whatever its name', async (t) => {
  const { fixture, delivered, uids, newer } = await withOlderSnapshot(t);
  await fixture.afterCrash({ journalBytes: 1_000_000 });
  assert.deepEqual(await holdTo(fixture, uids), { kept: uids.length, aside: 0 });
  assert.equal((await entryOf(fixture.queue, delivered)).state, 'delivered');
  assert.deepEqual(await snapshotsOf(fixture), [newer]);
});

test('an older snapshot does not stand in for the newest one that is gone', async (t) => {
  const { fixture, delivered, uids, older, newer } = await withOlderSnapshot(t);
  await rm(newer);
  await fixture.afterCrash({ journalBytes: 1_000_000 });
  assert.equal(await fixture.queue.find(delivered), undefined, 'it is not sent again');
  assert.ok((await holdTo(fixture, uids)).aside > 0);
  assert.ok(!(await snapshotsOf(fixture)).includes(older));
  assert.ok((await fixture.queue.quarantine.list()).some(({ reason }) => /older snapshot/.test(reason)));
});

test('a snapshot that was finished and not named yet is found behind an older one', async (t) => {
  const { fixture, uids, older, newer } = await withOlderSnapshot(t);
  await rename(newer, join(fixture.folder, `snapshot-${'y'.repeat(20)}`));
  await fixture.afterCrash({ journalBytes: 1_000_000 });
  assert.deepEqual(await holdTo(fixture, uids), { kept: uids.length, aside: 0 });
  assert.ok(!(await snapshotsOf(fixture)).includes(older));
});

test('a journal that is gone, or nonsense, costs no message, and the snapshot is still good', async (t) => {
  const { fixture: first } = await filled(t);
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
    const { fixture, uids } = await filled(t);
    await harm(join(fixture.folder, 'journal'));
    await fixture.afterCrash();
    const { kept, aside } = await holdTo(fixture, uids);
    assert.ok(kept > 0 && aside > 0);
    const { uid } = await accept(fixture);
    await fixture.afterCrash();
    await entryOf(fixture.queue, uid);
  }
});

test('a bit that turned in the middle of the journal costs no message', async (t) => {
  const { fixture, uids } = await filled(t);
  const folder = join(fixture.folder, 'journal');
  for (const name of await readdir(folder)) {
    const bytes = await readFile(join(folder, name));
    const at = bytes.indexOf(uids.at(-2) ?? '');
    if (at >= 0) bytes[at] = 88;
    await writeFile(join(folder, name), bytes);
  }
  await fixture.afterCrash();
  assert.deepEqual(await holdTo(fixture, uids), { kept: uids.length - 1, aside: 1 });
});

test('a message that is missing or damaged holds its entry, and what is left is set aside', async (t) => {
  const fixture = await fileQueueFixture(t);
  const missing = await accept(fixture);
  const empty = await accept(fixture);
  const whole = await accept(fixture);
  const pathOf = async (uid: string) => (await fixture.queue.locate({ folder: '', name: `${uid}.eml` })) ?? '';
  await rm(await pathOf(missing.uid));
  await truncate(await pathOf(empty.uid));
  await fixture.afterCrash();
  await fixture.queue.housekeep(fixture.clock.now());
  await assert.rejects(fixture.queue.open(missing.uid), (error) => isProblem(error) && error.problem === 'not-found');
  assert.match((await entryOf(fixture.queue, missing.uid)).hold ?? '', /missing/);
  assert.match((await entryOf(fixture.queue, empty.uid)).hold ?? '', /damaged/);
  const leases = await fixture.queue.claim(claiming(fixture.clock.now()));
  assert.deepEqual(
    leases.map(({ uid }) => uid),
    [whole.uid],
  );
  assert.equal((await fixture.queue.quarantine.list()).length, 1);
});

test('what is none of our files is set aside with a reason, links unfollowed, and nothing is removed', async (t) => {
  const fixture = await fileQueueFixture(t);
  const { uid } = await accept(fixture);
  await fixture.queue.close();
  const { folder } = fixture;
  await writeFile(join(folder, 'notes.txt'), 'mine');
  await mkdir(join(folder, 'ff', 'deep'), { recursive: true });
  await writeFile(join(folder, 'ff', 'deep', 'file'), 'mine too');
  await symlink('/etc/passwd', join(folder, '0', 'link.eml'));
  await writeFile(join(folder, '1', 'no uid!.eml'), 'x');
  await writeFile(join(folder, '2', 'zero.eml'), '');
  await fixture.afterCrash();
  await fixture.queue.housekeep(fixture.clock.now());
  const found = await fixture.queue.quarantine.list();
  assert.equal(found.length, 5);
  assert.ok(found.every(({ reason, at }) => reason.length > 10 && at > 0));
  const names = await readdir(join(folder, 'quarantine'));
  const deep = names.find((name) => name.endsWith('-ff')) ?? '';
  assert.equal(await readFile(join(folder, 'quarantine', deep, 'deep', 'file'), 'utf8'), 'mine too');
  assert.deepEqual(await bodiesOf(folder), [uid]);
  assert.equal((await fixture.queue.statistics(0)).quarantined, 5);
});

test('a file of a newer version stops the start with a sentence, and stays unchanged', async (t) => {
  const { fixture } = await filled(t);
  const [path = ''] = await snapshotsOf(fixture);
  const { encodeLine } = await import('../../../../plugins/client-queue/queue/snapshots.js');
  const line = encodeLine(JSON.stringify({ form: 99, upTo: 1 }), '[]', '[]').bytes;
  await writeFile(path, line);
  await assert.rejects(fixture.afterCrash(), (error) => isStartError(error) && /newer version/.test(String(error)));
  assert.deepEqual(await readFile(path), line);
});
