import assert from 'node:assert/strict';
import { appendFile, mkdir, readdir, readFile, stat, symlink, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { FramedInput } from '../../../../plugins/cluster/mailboxes/framed-input.js';
import { packedMailbox, unpackMailbox } from '../../../../plugins/cluster/mailboxes/mailbox-copy.js';
import type { Ending } from '../../../support/ending.js';
import { temporaryFolder } from '../../../support/temporary-folder.js';

async function mailbox(t: Ending): Promise<string> {
  const root = join(await temporaryFolder(t), 'ann');
  for (const path of ['new', 'cur', 'tmp', '.Work/new', '.Work/cur', '.Work/tmp'])
    await mkdir(join(root, path), { recursive: true });
  await writeFile(join(root, 'cur', '1.M1P1.host,S=5:2,S'), 'hello');
  await writeFile(join(root, '.Work', 'new', '2.M1P1.host'), Buffer.alloc(700_000, 'x'));
  await writeFile(join(root, 'subscriptions'), '');
  await utimes(join(root, 'cur', '1.M1P1.host,S=5:2,S'), 1_700_000_000, 1_700_000_000);
  return root;
}

async function bytesOf(stream: AsyncIterable<Buffer>): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** In pieces that end anywhere. */
async function* inPieces(bytes: Buffer, size: number): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += size) yield await Promise.resolve(bytes.subarray(at, at + size));
}

describe('a packed mailbox', () => {
  test('is unpacked with its folders, contents and times, however it is cut', async (t) => {
    const root = await mailbox(t);
    const packed = await bytesOf(packedMailbox(root));
    for (const size of [packed.length, 4096, 7]) {
      const copy = await temporaryFolder(t);
      await unpackMailbox(new FramedInput(inPieces(packed, size)), copy);
      assert.deepEqual(
        (await readdir(copy, { recursive: true })).toSorted(),
        (await readdir(root, { recursive: true })).toSorted(),
      );
      const path = join('cur', '1.M1P1.host,S=5:2,S');
      assert.equal(await readFile(join(copy, path), 'utf8'), 'hello');
      assert.equal((await stat(join(copy, path))).mtimeMs, 1_700_000_000_000);
      assert.equal((await stat(join(copy, '.Work', 'new', '2.M1P1.host'))).size, 700_000);
    }
  });

  test('of a mailbox that is not there is empty', async (t) => {
    const folder = await temporaryFolder(t);
    const copy = await temporaryFolder(t);
    await unpackMailbox(new FramedInput(packedMailbox(join(folder, 'none'))), copy);
    assert.deepEqual(await readdir(copy), []);
  });

  test('is refused when it is cut off or altered anywhere', async (t) => {
    const packed = await bytesOf(packedMailbox(await mailbox(t)));
    const broken = [packed.length - 1, packed.length >> 1, 10, 0].map((end) => packed.subarray(0, end));
    for (const at of [packed.indexOf('hello'), packed.indexOf('"sha256":"') + 12, packed.indexOf('.Work')]) {
      const altered = Buffer.from(packed);
      altered[at] = altered[at] === 0x61 ? 0x62 : 0x61;
      broken.push(altered);
    }
    for (const bytes of broken)
      await assert.rejects(unpackMailbox(new FramedInput(inPieces(bytes, 4096)), await temporaryFolder(t)));
  });

  test('ends without its hash when the mailbox changes meanwhile, or has a link', async (t) => {
    const root = await mailbox(t);
    const changing = (async () => {
      for await (const chunk of packedMailbox(root))
        if (chunk.includes('"folder":"tmp"')) await appendFile(join(root, 'subscriptions'), 'Work\n');
    })();
    await assert.rejects(changing, /changed while it was copied/);
    await symlink('/etc/passwd', join(root, 'cur', '3.M1P1.host'));
    await assert.rejects(bytesOf(packedMailbox(root)), /neither a file nor a folder/);
  });

  test('is refused when a name is not UTF-8, and says where', async (t) => {
    const root = await mailbox(t);
    await mkdir(Buffer.concat([Buffer.from(`${root}/.Work/.B`), Buffer.from([0xfc])]));
    await assert.rejects(bytesOf(packedMailbox(root)), /the name \.Work\/\.B\ufffd is not UTF-8/);
  });
});
