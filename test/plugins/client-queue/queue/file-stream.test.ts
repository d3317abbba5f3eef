import assert from 'node:assert/strict';
import { once } from 'node:events';
import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { test, type TestContext } from 'node:test';
import { FileStream } from '../../../../plugins/client-queue/queue/bodies.js';
import { FaultyFiles } from '../../../core/spool/faulty-files.js';
import { temporaryFolder } from '../../../support/temporary-folder.js';

const bytes = randomBytes(200_000);

async function opened(
  t: TestContext,
  part: { readonly from?: number; readonly to?: number; readonly damaged?: () => Error },
) {
  const path = join(await temporaryFolder(t), 'file');
  await writeFile(path, bytes);
  const files = new FaultyFiles();
  const fd = await files.open(path, 'r');
  const stream = new FileStream(files, { fd, from: 0, to: bytes.length, ...part });
  return { files, stream };
}

test('a part of a file is read, and the file closed', async (t) => {
  const { files, stream } = await opened(t, { from: 7, to: 150_001 });
  assert.ok((await buffer(stream)).equals(bytes.subarray(7, 150_001)));
  if (!stream.closed) await once(stream, 'close');
  assert.equal(files.opened.size, 0);
});

test('a stream that is not read, or not to its end, is closed once', async (t) => {
  const unread = await opened(t, {});
  unread.stream.destroy();
  await once(unread.stream, 'close');
  const left = await opened(t, {});
  for await (const chunk of left.stream as AsyncIterable<Buffer>) if (chunk.length > 0) break;
  const halted = await opened(t, {});
  const release = halted.files.hold('read');
  halted.stream.resume();
  halted.stream.destroy();
  assert.equal(halted.files.count('close'), 0, 'not under a read');
  release();
  await once(halted.stream, 'close');
  for (const { files } of [unread, left, halted]) {
    assert.deepEqual([files.opened.size, files.count('close')], [0, 1]);
  }
});

test('a file that is shorter than it should be is a failure, or just ends', async (t) => {
  const short = await opened(t, { to: bytes.length + 1, damaged: () => new Error('too short') });
  await assert.rejects(buffer(short.stream), /too short/);
  const ends = await opened(t, { to: bytes.length + 1 });
  assert.equal((await buffer(ends.stream)).length, bytes.length);
  const broken = await opened(t, {});
  broken.files.order({ call: 'read', code: 'EIO' });
  await assert.rejects(buffer(broken.stream), { code: 'EIO' });
});
