import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdir, readdir, readFile, rename, unlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { type FileLayer, nodeFiles } from '../../../core/disk/file-layer.js';
import { type FileSpool, openSpool } from '../../../core/spool/file-spool.js';
import { placedMessageFinder } from '../../../plugins/store/delivery/message-finder.js';
import { ForgetfulFiles } from '../../core/spool/forgetful-files.js';
import { rememberingLog } from '../../core/spool/remembering-log.js';
import { received, whole } from '../../core/spool/spool-fixture.js';
import { temporaryFolder } from '../../support/temporary-folder.js';

describe('where a message that was placed is after a crash', () => {
  it('is where its bytes are, when a reader has given it another name', async (t) => {
    const { mail, inbox, placement, content } = await mailboxOf(t, 30);
    await mkdir(join(inbox, '../.Kept/cur'), { recursive: true });
    const there = join(inbox, '../.Kept/cur/1800000000.M1P1.reader,S=2000:2,S');
    await rename(join(inbox, placement(7).name), there);
    assert.equal(await placedMessageFinder(mail)(placement(7), content(7)), there);
  });

  it('is found with each message of its size read once, however many have gone', async (t) => {
    const { mail, inbox, placement, content } = await mailboxOf(t, 60);
    for (let number = 40; number < 60; number += 1) await unlink(join(inbox, placement(number).name));
    const opened: string[] = [];
    const find = placedMessageFinder(mail, {
      ...nodeFiles,
      open: (...given: Parameters<FileLayer['open']>) => {
        opened.push(given[0]);
        return nodeFiles.open(...given);
      },
    });
    for (let number = 40; number < 60; number += 1) {
      assert.equal(await find(placement(number), content(number)), undefined);
    }
    assert.equal(new Set(opened).size, opened.length, 'no file is read twice');
    assert.equal(opened.length, 40);
  });

  it('is not what only begins like it', async (t) => {
    const { mail, inbox, placement } = await mailboxOf(t, 1);
    const [one, other] = ['a', 'b'].map((last) => Buffer.from(`${'x'.repeat(1999)}${last}`)) as [Buffer, Buffer];
    await writeFile(join(inbox, '1800000000.M1P1.reader,S=2000'), one);
    const find = placedMessageFinder(mail);
    assert.equal(await find(placement(99), other), undefined);
    assert.equal(await find(placement(99), one), join(inbox, '1800000000.M1P1.reader,S=2000'));
  });

  it('is not held up by what is no file, or goes meanwhile', async (t) => {
    const { mail, inbox, placement, content } = await mailboxOf(t, 3);
    execFileSync('mkfifo', [join(inbox, '1800000000.M1P1.fifo,S=2000')]);
    await mkdir(join(inbox, '1800000000.M2P1.folder,S=2000'));
    const find = placedMessageFinder(mail, {
      ...nodeFiles,
      readdir: async (path) => [...(await nodeFiles.readdir(path)), '1800000000.M3P1.gone,S=2000'],
    });
    assert.equal(await find(placement(99), content(99)), undefined);
  });
});

describe('a message that a reader moves before the log has made it durable', () => {
  const flushes: Readonly<Record<string, () => Promise<boolean>>> = {
    'that cannot be flushed': () => Promise.resolve(false),
    'whose flush reports a fault': () => Promise.reject(new Error('EIO')),
  };
  for (const [what, flush] of Object.entries(flushes)) {
    it(`is whole after a power cut, on a file system ${what}`, async (t) => {
      const { mail, inbox } = await mailboxOf(t, 0);
      const seen = join(inbox, '../cur');
      await mkdir(seen);
      const options = { durability: 'log', checkpointMs: 1e9, checkpointBytes: 1e9, reserveBytes: 0 } as const;
      const live = async (): Promise<{ spool: FileSpool; files: ForgetfulFiles }> => {
        const files = new ForgetfulFiles();
        const given = { ...options, files, log: rememberingLog().log, flush: { flush } };
        const spool = await openSpool(join(mail, '../spool'), given);
        await spool.recover(() => placedMessageFinder(mail, files));
        return { spool, files };
      };
      const deliver = async ({ spool, files }: Awaited<ReturnType<typeof live>>, name: string): Promise<void> => {
        const message = await received(spool);
        await message.link([{ folder: inbox, name }]);
        await message.release();
        await files.rename(join(inbox, name), join(seen, `${name}:2,S`));
      };
      // The second start looks for this one.
      await deliver(await live(), '1800000000.M1P1.host');
      const second = await live();
      await deliver(second, '1800000000.M2P1.host');
      await second.spool.close();
      await second.files.cutPower();
      await live();
      assert.deepEqual(await readdir(inbox), []);
      assert.ok((await readFile(join(seen, '1800000000.M2P1.host:2,S'))).equals(whole));
    });
  }
});

/** So many messages of 2000 bytes each in the inbox of ann, and what is known of each. */
async function mailboxOf(t: TestContext, count: number) {
  const mail = join(await temporaryFolder(t), 'mail');
  const inbox = join(mail, 'example.org/ann/new');
  const content = (number: number) => Buffer.from(`Subject: ${number}\r\n`.padEnd(2000, 'x'));
  const placement = (number: number) => ({ folder: inbox, name: `1700000000.M${number}P1.host,S=2000` });
  await mkdir(inbox, { recursive: true });
  for (let number = 0; number < count; number += 1) {
    await writeFile(join(inbox, placement(number).name), content(number));
  }
  return { mail, inbox, placement, content };
}
