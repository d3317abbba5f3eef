import assert from 'node:assert/strict';
import { readdir, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { test } from 'node:test';
import { openSpool } from '../../../core/spool/file-spool.js';
import { makeFolder } from '../../../core/disk/folder.js';
import { uniqueId } from '../../../core/disk/id.js';
import { isProblem } from '../../../core/problem.js';
import { BodyError } from '../../../core/spool/spool.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { untilTrue } from '../../support/until.js';
import { rememberingLog } from './remembering-log.js';
import { contentOf, largeMessage, message, openFixture, received, returnPath, trace, whole } from './spool-fixture.js';

const bodies = [
  ['small', message],
  ['large', largeMessage],
] as const;

for (const [kind, body] of bodies) {
  const expected = Buffer.concat([returnPath, trace, body]);

  test(`a ${kind} message is linked byte for byte, private, in several folders`, async (t) => {
    const fixture = await openFixture(t);
    const spooled = await received(fixture.spool, body, 777);
    assert.equal(spooled.size, expected.length);
    await spooled.link([{ folder: fixture.inbox, name: 'a' }]);
    await spooled.link([{ folder: fixture.inbox, name: 'b' }]);
    await spooled.release();
    await fixture.spool.settled();
    assert.ok((await contentOf(fixture, 'a')).equals(expected));
    assert.ok((await contentOf(fixture, 'b')).equals(expected));
    assert.equal((await stat(join(fixture.inbox, 'a'))).mode & 0o777, 0o600);
    assert.deepEqual(await readdir(join(fixture.root, 'spool')), []);
    assert.equal(fixture.files.opened.size, 0);
  });

  test(`a ${kind} message can be read from each of its parts before and after it is durable`, async (t) => {
    const { spool, files } = await openFixture(t);
    const spooled = await received(spool, body);
    assert.ok((await buffer(spooled.open())).equals(expected));
    await spooled.prepare();
    assert.ok((await buffer(spooled.open(spooled.traceOffset))).equals(Buffer.concat([trace, body])));
    assert.ok((await buffer(spooled.open(spooled.messageOffset))).equals(body));
    assert.equal(files.opened.size, 0);
  });

  test(`a ${kind} message is in memory only when it is small, and never after its release`, async (t) => {
    const { spool } = await openFixture(t);
    const spooled = await received(spool, body);
    const given = spooled.memory?.(spooled.traceOffset);
    assert.deepEqual(given, kind === 'small' ? Buffer.concat([trace, body]) : undefined);
    await spooled.release();
    assert.equal(spooled.memory?.(), undefined);
  });

  test(`a ${kind} message is fsynced once, before it is linked, and its folder after`, async (t) => {
    const { spool, files, inbox } = await openFixture(t);
    const spooled = await received(spool, body);
    files.calls.length = 0;
    await Promise.all([spooled.prepare(), spooled.prepare()]);
    await spooled.link([{ folder: inbox, name: 'a' }]);
    const steps = files.calls
      .map((line) => line.split(' ', 1)[0])
      .filter((call) => ['fsync', 'link', 'rename'].includes(call ?? ''));
    assert.deepEqual(steps, ['fsync', kind === 'small' ? 'rename' : 'link', 'fsync']);
    assert.equal(files.count('fsync', inbox), 1);
  });

  test(`a discarded ${kind} message leaves nothing`, async (t) => {
    const { spool, files, root } = await openFixture(t);
    const writer = await spool.create(returnPath, trace);
    await writer.write(body);
    await writer.discard();
    await spool.settled();
    assert.deepEqual(await readdir(join(root, 'spool')), []);
    assert.equal(files.opened.size, 0);
  });

  test(`header fields are added to a ${kind} message and removed from it`, async (t) => {
    const fixture = await openFixture(t);
    const spooled = await received(fixture.spool, body);
    const edited = await spooled.rewrite({ add: [['X-Checked', 'yes;\r\n\tby us']], remove: ['SUBJECT'] });
    const text = body.toString('latin1').replace('Subject: hello\r\n', 'X-Checked: yes;\r\n\tby us\r\n');
    const changed = Buffer.from(text, 'latin1');
    assert.equal(edited.size, returnPath.length + trace.length + changed.length);
    assert.ok((await buffer(edited.open(edited.messageOffset))).equals(changed));
    assert.ok(edited.head.equals(changed.subarray(0, edited.head.length)));
    await edited.link([{ folder: fixture.inbox, name: 'a' }]);
    await edited.release();
    await spooled.release();
    await fixture.spool.settled();
    assert.deepEqual(await readdir(join(fixture.root, 'spool')), []);
    assert.equal(fixture.files.opened.size, 0);
  });
}

test('the head is the header block including its empty line, however the bytes arrive', async (t) => {
  const { spool } = await openFixture(t);
  for (const piece of [1, 2, 3, 15, 16, 1000]) {
    const { head } = await received(spool, message, piece);
    assert.equal(head.toString(), 'Subject: hello\r\nFrom: a@example.org\r\n\r\n');
  }
  assert.equal((await received(spool, Buffer.from('\r\nbody\r\n\r\n'))).head.toString(), '\r\n');
  assert.equal((await received(spool, Buffer.from('A: b\r\n'), 3)).head.toString(), 'A: b\r\n');
  assert.equal((await received(spool, Buffer.alloc(0))).head.length, 0);
});

test('of a header block without end only the first bytes are kept', async (t) => {
  const { spool } = await openFixture(t, { headBytes: 1000 });
  for (const piece of [1, 999, 1000, 1001, 100_000]) {
    const { head, size } = await received(spool, Buffer.alloc(5000, 'x'), piece);
    assert.equal(head.length, 1000);
    assert.equal(size, returnPath.length + trace.length + 5000);
  }
});

test('an empty message is delivered with its trace alone', async (t) => {
  const fixture = await openFixture(t);
  const spooled = await received(fixture.spool, Buffer.alloc(0));
  await spooled.link([{ folder: fixture.inbox, name: 'a' }]);
  assert.ok((await contentOf(fixture, 'a')).equals(Buffer.concat([returnPath, trace])));
});

test('a taken name is EEXIST, and its file is left alone', async (t) => {
  const fixture = await openFixture(t);
  await writeFile(join(fixture.inbox, 'a'), 'mine');
  const spooled = await received(fixture.spool);
  await assert.rejects(spooled.link([{ folder: fixture.inbox, name: 'a' }]), { code: 'EEXIST' });
  assert.equal((await contentOf(fixture, 'a')).toString(), 'mine');
});

test('a unique name is not looked up', async (t) => {
  const fixture = await openFixture(t);
  const spooled = await received(fixture.spool);
  await spooled.link([{ folder: fixture.inbox, name: 'a', isUnique: true }]);
  assert.ok((await contentOf(fixture, 'a')).equals(whole));
  assert.equal(fixture.files.count('lstat', fixture.inbox), 0);
});

for (const arrivals of [1, 8]) {
  test(`no message is visible before its bytes are on the disk, with ${arrivals} at once`, async (t) => {
    const fixture = await openFixture(t, { durability: 'file' });
    const release = fixture.files.hold('fsync');
    const names = Array.from({ length: arrivals }, (_, index) => `m${index}`);
    const placed = names.map(async (name) => {
      await (await received(fixture.spool)).link([{ folder: fixture.inbox, name }]);
    });
    await untilTrue('all wait', () => fixture.files.count('fsync', 'spool/') === arrivals);
    assert.deepEqual(await readdir(fixture.inbox), []);
    release();
    await Promise.all(placed);
    assert.deepEqual((await readdir(fixture.inbox)).toSorted(), names);
  });
}

test('a small message whose file was moved to a mailbox can be linked again, also twice at once', async (t) => {
  const fixture = await openFixture(t);
  const spooled = await received(fixture.spool);
  await spooled.prepare();
  await Promise.all(['a', 'b'].map((name) => spooled.link([{ folder: fixture.inbox, name }])));
  await spooled.link([{ folder: fixture.inbox, name: 'c' }]);
  for (const name of ['a', 'b', 'c']) assert.ok((await contentOf(fixture, name)).equals(whole));
  assert.ok((await buffer(spooled.open())).equals(whole));
  await spooled.release();
  await fixture.spool.settled();
  assert.deepEqual(await readdir(join(fixture.root, 'spool')), []);
});

test('a link is rolled back, and a second rollback reports failure', async (t) => {
  const fixture = await openFixture(t);
  const spooled = await received(fixture.spool);
  const placement = { folder: fixture.inbox, name: 'a' };
  await spooled.link([placement]);
  assert.equal(await spooled.rollback([placement]), true);
  assert.deepEqual(await readdir(fixture.inbox), []);
  assert.equal(await spooled.rollback([placement]), false);
});

test('without hard links a copy is renamed, and never onto another file', async (t) => {
  const fixture = await openFixture(t);
  fixture.files.order({ call: 'link', code: 'EPERM' });
  const spooled = await received(fixture.spool, largeMessage);
  await spooled.link([{ folder: fixture.inbox, name: 'a' }]);
  await spooled.link([{ folder: fixture.inbox, name: 'b' }]);
  for (const name of ['a', 'b'])
    assert.ok((await contentOf(fixture, name)).equals(Buffer.concat([returnPath, trace, largeMessage])));
  await assert.rejects(spooled.link([{ folder: fixture.inbox, name: 'b' }]), { code: 'EEXIST' });
  await spooled.release();
  await fixture.spool.settled();
  assert.deepEqual(await readdir(join(fixture.root, 'spool')), []);
  assert.equal(fixture.files.opened.size, 0);
});

test('a released message has no bytes and cannot be linked', async (t) => {
  const { spool, inbox } = await openFixture(t);
  const spooled = await received(spool);
  await spooled.release();
  await assert.rejects(buffer(spooled.open()));
  await assert.rejects(spooled.link([{ folder: inbox, name: 'a' }]));
  assert.deepEqual(await readdir(inbox), []);
});

test('header fields that would break the message are refused', async (t) => {
  const { spool } = await openFixture(t);
  const spooled = await received(spool);
  for (const field of [
    ['X Y', 'z'],
    ['X:', 'z'],
    ['', 'z'],
    ['X', 'a\r\nb'],
    ['X', 'a\nb'],
    ['X', 'a\0'],
  ] as const) {
    await assert.rejects(spooled.rewrite({ add: [field], remove: [] }), isProblem);
  }
  assert.ok((await buffer(spooled.open())).equals(whole));
});

test('a start removes spool files of a dead process, and no unknown files', async (t) => {
  const folder = join(await temporaryFolder(t), 'spool');
  await makeFolder(folder);
  await writeFile(join(folder, uniqueId()), 'half a message');
  await writeFile(join(folder, 'notes.txt'), 'somebody else');
  await openSpool(folder, rememberingLog());
  assert.deepEqual(await readdir(folder), ['notes.txt']);
});

test('a writer waits while the disk is behind, and bytes stay in order', async (t) => {
  const fixture = await openFixture(t, { backlogBytes: 200_000 });
  const release = fixture.files.hold('write');
  const writer = await fixture.spool.create(returnPath, trace);
  let waiting: Promise<void> | void = undefined;
  let sent = 0;
  for (; waiting === undefined; sent += 10_000) waiting = writer.write(largeMessage.subarray(sent, sent + 10_000));
  assert.ok(sent < 400_000);
  release();
  await waiting;
  for (; sent < largeMessage.length; sent += 10_000) await writer.write(largeMessage.subarray(sent, sent + 10_000));
  const spooled = await writer.finish();
  await spooled.link([{ folder: fixture.inbox, name: 'a' }]);
  assert.ok((await contentOf(fixture, 'a')).equals(Buffer.concat([returnPath, trace, largeMessage])));
});

test('a large message is rewritten when no other file may be opened, and takes the place of one all the time', async (t) => {
  const { spool, files } = await openFixture(t, { openWhileReceiving: 1, memoryBytes: 1024 });
  const body = largeMessage.subarray(0, 8192);
  const first = await received(spool, body);
  const waiting = received(spool, body);
  const once = await first.rewrite({ add: [['X-A', 'b']], remove: [] });
  const twice = await once.rewrite({ add: [['X-C', 'd']], remove: [] });
  const text = Buffer.concat([Buffer.from('X-C: d\r\nX-A: b\r\n'), body]);
  assert.ok((await buffer(twice.open(twice.messageOffset))).equals(text));
  assert.equal(files.opened.size, 1, 'the other message waits');
  await twice.release();
  const other = await waiting;
  assert.ok((await buffer(other.open(other.messageOffset))).equals(body));
  await other.release();
  assert.deepEqual([spool.figures()['receiving'], files.opened.size], [0, 0]);
});

test('a large message whose rewriting fails keeps its place', async (t) => {
  const { spool, files } = await openFixture(t, { openWhileReceiving: 1, memoryBytes: 1024 });
  const body = largeMessage.subarray(0, 8192);
  const first = await received(spool, body);
  const waiting = received(spool, body);
  const pieces = (): AsyncIterable<Buffer> => Readable.from([body, { unfit: true }]);
  const edit = { add: [], remove: [], body: { write: pieces, maxBytes: 1e6, limitMs: 5000 } };
  await assert.rejects(first.rewrite(edit), BodyError);
  assert.equal(files.opened.size, 1, 'the other message waits');
  const rewritten = await first.rewrite({ add: [['X-A', 'b']], remove: [] });
  await rewritten.release();
  await (await waiting).release();
  assert.deepEqual([spool.figures()['receiving'], files.opened.size], [0, 0]);
});

test('the number of open files stays below its bounds', async (t) => {
  const fixture = await openFixture(t, { openWhileReceiving: 3, openWhileSyncing: 2 });
  const bodies = Array.from({ length: 40 }, (_, n) => (n % 2 === 0 ? message : largeMessage));
  await Promise.all(
    bodies.map(async (body, n) => {
      const spooled = await received(fixture.spool, body);
      await spooled.link([{ folder: fixture.inbox, name: `m${n}` }]);
      await spooled.release();
    }),
  );
  assert.equal((await readdir(fixture.inbox)).length, 40);
  // One more for the folder.
  assert.ok(fixture.files.mostOpened <= 6, `${fixture.files.mostOpened} were open`);
  assert.equal(fixture.files.opened.size, 0);
});

test('without free space for the reserve no message is accepted', async (t) => {
  const { spool } = await openFixture(t, { reserveBytes: Number.MAX_SAFE_INTEGER });
  await assert.rejects(
    async () => spool.create(returnPath, trace),
    (error) => isProblem(error) && error.problem === 'storage-full',
  );
  assert.equal(spool.report().status, 'degraded');
});
