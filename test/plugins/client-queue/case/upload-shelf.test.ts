import assert from 'node:assert/strict';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { test } from 'node:test';
import { type KeptUpload, UploadStore } from '../../../../plugins/client-queue/case/upload-store.js';

const small = Buffer.from('Subject: small\r\n\r\nHello\r\n');
const large = Buffer.from(`Subject: large\r\n\r\n${'0123456789abcdef\r\n'.repeat(20_000)}`);

async function read(upload: KeptUpload): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of upload.open()) chunks.push(chunk);
  return Buffer.concat(chunks);
}

const streamOf = (bytes: Buffer, piece: number): Readable =>
  Readable.from(
    Array.from({ length: Math.ceil(bytes.length / piece) }, (_, n) => bytes.subarray(n * piece, (n + 1) * piece)),
  );

test('a small message is kept without a file', async () => {
  const upload = await new UploadStore('/nowhere/at/all').keep(streamOf(small, 7));
  assert.equal(upload.size, small.length);
  assert.deepEqual(upload.head, small);
  assert.deepEqual(await read(upload), small);
  assert.deepEqual(await read(upload), small);
  await upload.release();
});

test('a large message is read whole each time, and its file has no name', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'postern-shelf-'));
  t.after(() => rm(folder, { recursive: true }));
  const upload = await new UploadStore(folder).keep(streamOf(large, 10_000));
  t.after(() => upload.release());
  assert.equal(upload.size, large.length);
  assert.deepEqual(await readdir(folder), []);
  assert.deepEqual(await read(upload), large);
  assert.deepEqual(await read(upload), large);
  assert.deepEqual(upload.head, large.subarray(0, 256 * 1024));
});

test('a large message for which there is no folder is refused, and its stream let go', async () => {
  const stream = streamOf(large, 10_000);
  await assert.rejects(new UploadStore('/nowhere/at/all').keep(stream), { problem: 'internal' });
  assert.equal(stream.destroyed, true);
});

test('an empty message is refused', async () => {
  await assert.rejects(new UploadStore('/nowhere/at/all').keep(Readable.from([])), { problem: 'invalid' });
});

test('a stream that fails midway fails the upload with its error', async () => {
  const stream = Readable.from(
    (function* () {
      yield small;
      throw new Error('the client is gone');
    })(),
  );
  await assert.rejects(new UploadStore('/nowhere/at/all').keep(stream), { message: 'the client is gone' });
});
