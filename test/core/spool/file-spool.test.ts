import assert from 'node:assert/strict';
import { readdir, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { test } from 'node:test';
import { openSpool } from '../../../core/spool/file-spool.js';
import { makeFolder } from '../../../core/disk/folder.js';
import { uniqueId } from '../../../core/disk/id.js';
import { isProblem } from '../../../core/problem.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { until } from '../../support/until.js';
import { rememberingLog } from './remembering-log.js';
import { contentOf, largeMessage, message, openGround, received, returnPath, trace, whole } from './spool-fixture.js';

const bodies = [
  ['small', message],
  ['large', largeMessage],
] as const;

for (const [kind, body] of bodies) {
  const expected = Buffer.concat([returnPath, trace, body]);

  test(`a ${kind} message is placed byte for byte, private, in as many folders as asked`, async (t) => {
    const ground = await openGround(t);
    const spooled = await received(ground.spool, body, 777);
    assert.equal(spooled.size, expected.length);
    await spooled.link([{ folder: ground.inbox, name: 'a' }]);
    await spooled.link([{ folder: ground.inbox, name: 'b' }]);
    await spooled.release();
    await ground.spool.settled();
    assert.ok((await contentOf(ground, 'a')).equals(expected));
    assert.ok((await contentOf(ground, 'b')).equals(expected));
    assert.equal((await stat(join(ground.inbox, 'a'))).mode & 0o777, 0o600);
    assert.deepEqual(await readdir(join(ground.root, 'spool')), []);
    assert.equal(ground.files.opened.size, 0);
  });

  test(`a ${kind} message can be read from each of its parts before and after it is durable`, async (t) => {
    const { spool, files } = await openGround(t);
    const spooled = await received(spool, body);
    assert.ok((await buffer(spooled.open())).equals(expected));
    await spooled.sync();
    assert.ok((await buffer(spooled.open(spooled.traceOffset))).equals(Buffer.concat([trace, body])));
    assert.ok((await buffer(spooled.open(spooled.messageOffset))).equals(body));
    assert.equal(files.opened.size, 0);
  });

  test(`a ${kind} message is given whole from memory only where all of it is there, and never after its release`, async (t) => {
    const { spool } = await openGround(t);
    const spooled = await received(spool, body);
    const given = spooled.memory?.(spooled.traceOffset);
    assert.deepEqual(given, kind === 'small' ? Buffer.concat([trace, body]) : undefined);
    await spooled.release();
    assert.equal(spooled.memory?.(), undefined);
  });

  test(`a ${kind} message is fsynced once, before it is placed, and its folder after`, async (t) => {
    const { spool, files, inbox } = await openGround(t);
    const spooled = await received(spool, body);
    files.calls.length = 0;
    await Promise.all([spooled.sync(), spooled.sync()]);
    await spooled.link([{ folder: inbox, name: 'a' }]);
    const steps = files.calls
      .map((line) => line.split(' ', 1)[0])
      .filter((call) => ['fsync', 'link', 'rename'].includes(call ?? ''));
    assert.deepEqual(steps, ['fsync', kind === 'small' ? 'rename' : 'link', 'fsync']);
    assert.equal(files.count('fsync', inbox), 1);
  });

  test(`a discarded ${kind} message leaves nothing`, async (t) => {
    const { spool, files, root } = await openGround(t);
    const writer = await spool.create(returnPath, trace);
    await writer.write(body);
    await writer.discard();
    await spool.settled();
    assert.deepEqual(await readdir(join(root, 'spool')), []);
    assert.equal(files.opened.size, 0);
  });

  test(`header fields are put in front of a ${kind} message and taken out of it`, async (t) => {
    const ground = await openGround(t);
    const spooled = await received(ground.spool, body);
    const edited = await spooled.rewrite({ add: [['X-Checked', 'yes;\r\n\tby us']], remove: ['SUBJECT'] });
    const text = body.toString('latin1').replace('Subject: hello\r\n', 'X-Checked: yes;\r\n\tby us\r\n');
    const changed = Buffer.from(text, 'latin1');
    assert.equal(edited.size, returnPath.length + trace.length + changed.length);
    assert.ok((await buffer(edited.open(edited.messageOffset))).equals(changed));
    assert.ok(edited.head.equals(changed.subarray(0, edited.head.length)));
    await edited.link([{ folder: ground.inbox, name: 'a' }]);
    await edited.release();
    await spooled.release();
    await ground.spool.settled();
    assert.deepEqual(await readdir(join(ground.root, 'spool')), []);
    assert.equal(ground.files.opened.size, 0);
  });
}

test('the head is the header block through its empty line, however the bytes arrive', async (t) => {
  const { spool } = await openGround(t);
  for (const piece of [1, 2, 3, 15, 16, 1000]) {
    const { head } = await received(spool, message, piece);
    assert.equal(head.toString(), 'Subject: hello\r\nFrom: a@example.org\r\n\r\n');
  }
  assert.equal((await received(spool, Buffer.from('\r\nbody\r\n\r\n'))).head.toString(), '\r\n');
  assert.equal((await received(spool, Buffer.from('A: b\r\n'), 3)).head.toString(), 'A: b\r\n');
  assert.equal((await received(spool, Buffer.alloc(0))).head.length, 0);
});

test('of a header block without end only the first bytes are kept', async (t) => {
  const { spool } = await openGround(t, { headBytes: 1000 });
  for (const piece of [1, 999, 1000, 1001, 100_000]) {
    const { head, size } = await received(spool, Buffer.alloc(5000, 'x'), piece);
    assert.equal(head.length, 1000);
    assert.equal(size, returnPath.length + trace.length + 5000);
  }
});

test('a message of nothing is delivered with its trace alone', async (t) => {
  const ground = await openGround(t);
  const spooled = await received(ground.spool, Buffer.alloc(0));
  await spooled.link([{ folder: ground.inbox, name: 'a' }]);
  assert.ok((await contentOf(ground, 'a')).equals(Buffer.concat([returnPath, trace])));
});

test('a name that is taken is told as EEXIST and the file there is left alone', async (t) => {
  const ground = await openGround(t);
  await writeFile(join(ground.inbox, 'a'), 'mine');
  const spooled = await received(ground.spool);
  await assert.rejects(spooled.link([{ folder: ground.inbox, name: 'a' }]), { code: 'EEXIST' });
  assert.equal((await contentOf(ground, 'a')).toString(), 'mine');
});

test('a name that nobody else can have is not looked for', async (t) => {
  const ground = await openGround(t);
  const spooled = await received(ground.spool);
  await spooled.link([{ folder: ground.inbox, name: 'a', isUnique: true }]);
  assert.ok((await contentOf(ground, 'a')).equals(whole));
  assert.equal(ground.files.count('lstat', ground.inbox), 0);
});

for (const arrivals of [1, 8]) {
  test(`no message is visible before its bytes are on the disk, with ${arrivals} on their way`, async (t) => {
    const ground = await openGround(t, { durability: 'file' });
    const letGo = ground.files.hold('fsync');
    const names = Array.from({ length: arrivals }, (_, index) => `m${index}`);
    const placed = names.map(async (name) => {
      await (await received(ground.spool)).link([{ folder: ground.inbox, name }]);
    });
    await until('all wait', () => ground.files.count('fsync', 'spool/') === arrivals || undefined);
    assert.deepEqual(await readdir(ground.inbox), []);
    letGo();
    await Promise.all(placed);
    assert.deepEqual((await readdir(ground.inbox)).toSorted(), names);
  });
}

test('a small message whose file went to a mailbox is placed again all the same, by two at once as well', async (t) => {
  const ground = await openGround(t);
  const spooled = await received(ground.spool);
  await spooled.sync();
  await Promise.all(['a', 'b'].map((name) => spooled.link([{ folder: ground.inbox, name }])));
  await spooled.link([{ folder: ground.inbox, name: 'c' }]);
  for (const name of ['a', 'b', 'c']) assert.ok((await contentOf(ground, name)).equals(whole));
  assert.ok((await buffer(spooled.open())).equals(whole));
  await spooled.release();
  await ground.spool.settled();
  assert.deepEqual(await readdir(join(ground.root, 'spool')), []);
});

test('a placement is withdrawn, and withdrawing it again says that it could not', async (t) => {
  const ground = await openGround(t);
  const spooled = await received(ground.spool);
  const placement = { folder: ground.inbox, name: 'a' };
  await spooled.link([placement]);
  assert.equal(await spooled.rollback([placement]), true);
  assert.deepEqual(await readdir(ground.inbox), []);
  assert.equal(await spooled.rollback([placement]), false);
});

test('where there are no links a copy is renamed into place, and never onto another file', async (t) => {
  const ground = await openGround(t);
  ground.files.order({ call: 'link', code: 'EPERM' });
  const spooled = await received(ground.spool, largeMessage);
  await spooled.link([{ folder: ground.inbox, name: 'a' }]);
  await spooled.link([{ folder: ground.inbox, name: 'b' }]);
  for (const name of ['a', 'b'])
    assert.ok((await contentOf(ground, name)).equals(Buffer.concat([returnPath, trace, largeMessage])));
  await assert.rejects(spooled.link([{ folder: ground.inbox, name: 'b' }]), { code: 'EEXIST' });
  await spooled.release();
  await ground.spool.settled();
  assert.deepEqual(await readdir(join(ground.root, 'spool')), []);
  assert.equal(ground.files.opened.size, 0);
});

test('a released message gives no bytes and becomes nothing', async (t) => {
  const { spool, inbox } = await openGround(t);
  const spooled = await received(spool);
  await spooled.release();
  await assert.rejects(buffer(spooled.open()));
  await assert.rejects(spooled.link([{ folder: inbox, name: 'a' }]));
  assert.deepEqual(await readdir(inbox), []);
});

test('header fields that would break the message are refused', async (t) => {
  const { spool } = await openGround(t);
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

test('what a dead process left in the spool is removed at start, and foreign files are not', async (t) => {
  const folder = join(await temporaryFolder(t), 'spool');
  await makeFolder(folder);
  await writeFile(join(folder, uniqueId()), 'half a message');
  await writeFile(join(folder, 'notes.txt'), 'somebody else');
  await openSpool(folder, rememberingLog());
  assert.deepEqual(await readdir(folder), ['notes.txt']);
});

test('a writer waits while the disk is behind, and bytes stay in order', async (t) => {
  const ground = await openGround(t, { backlogBytes: 200_000 });
  const release = ground.files.hold('write');
  const writer = await ground.spool.create(returnPath, trace);
  let waiting: Promise<void> | void = undefined;
  let sent = 0;
  for (; waiting === undefined; sent += 10_000) waiting = writer.write(largeMessage.subarray(sent, sent + 10_000));
  assert.ok(sent < 400_000);
  release();
  await waiting;
  for (; sent < largeMessage.length; sent += 10_000) await writer.write(largeMessage.subarray(sent, sent + 10_000));
  const spooled = await writer.finish();
  await spooled.link([{ folder: ground.inbox, name: 'a' }]);
  assert.ok((await contentOf(ground, 'a')).equals(Buffer.concat([returnPath, trace, largeMessage])));
});

test('the number of open files stays below its bounds', async (t) => {
  const ground = await openGround(t, { openWhileReceiving: 3, openWhileSyncing: 2 });
  const bodies = Array.from({ length: 40 }, (_, n) => (n % 2 === 0 ? message : largeMessage));
  await Promise.all(
    bodies.map(async (body, n) => {
      const spooled = await received(ground.spool, body);
      await spooled.link([{ folder: ground.inbox, name: `m${n}` }]);
      await spooled.release();
    }),
  );
  assert.equal((await readdir(ground.inbox)).length, 40);
  // One more for the folder.
  assert.ok(ground.files.mostOpened <= 6, `${ground.files.mostOpened} were open`);
  assert.equal(ground.files.opened.size, 0);
});

test('without room for the reserve no message is begun', async (t) => {
  const { spool } = await openGround(t, { reserveBytes: Number.MAX_SAFE_INTEGER });
  await assert.rejects(
    async () => spool.create(returnPath, trace),
    (error) => isProblem(error) && error.problem === 'storage-full',
  );
  assert.equal(spool.report().status, 'degraded');
});
