import assert from 'node:assert/strict';
import { chmod, chown, mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { DiskTrial, fileSystemFinding } from '../../../../plugins/doctor/data-checks.js';
import { type FileLayer, nodeFiles } from '../../../../core/disk/file-layer.js';
import { systemClock } from '../../../../core/clock.js';
import { temporaryFolder } from '../../../support/temporary-folder.js';
import { Examined } from '../examined.js';

const config = `{ http: { port: 0 }, smtp: { listeners: [{ port: 0 }] } }`;
const isRoot = process.getuid?.() === 0;

describe('what the doctor finds in the data folder', () => {
  test('nothing is made where there is none', async (t) => {
    const folder = await temporaryFolder(t);
    const examined = await Examined.of(t, config, { folder });
    assert.match(examined.of('data-folder').join(), /^ok: .*is not there yet; the first start makes it/);
    assert.deepEqual(await readdir(folder), ['postern.json5']);
  });

  test('a file in its place', async (t) => {
    const folder = await temporaryFolder(t);
    await writeFile(join(folder, 'data'), '');
    assert.match(
      (await Examined.of(t, config, { folder })).of('data-folder').join(),
      /^problem: .*data is not a folder/,
    );
  });

  test('rights that are too wide, and no probe file is left', async (t) => {
    const folder = await temporaryFolder(t);
    const data = join(folder, 'data');
    await mkdir(join(data, 'spool'), { recursive: true });
    await mkdir(join(data, 'mail'), { mode: 0o755 });
    await writeFile(join(data, 'users.json'), '{"users":[]}', { mode: 0o600 });
    await chmod(data, 0o700);
    await chmod(join(data, 'spool'), 0o700);
    const tidy = await Examined.of(t, config, { folder });
    assert.deepEqual(tidy.states('rights'), ['ok'], tidy.of('rights').join());
    assert.deepEqual(tidy.states('disk-trial').length, 2);
    assert.deepEqual((await readdir(data)).toSorted(), ['mail', 'spool', 'users.json']);
    await chmod(data, 0o755);
    await chmod(join(data, 'users.json'), 0o644);
    const wide = (await Examined.of(t, config, { folder })).of('rights');
    assert.match(wide[0] ?? '', /^problem: Other users may look into .*\(mode 0755\)\. → chmod 700/);
    assert.match(wide[1] ?? '', /^advice: Other users may look at .*users\.json \(mode 0644\)/);
  });

  test('what belongs to another program', { skip: !isRoot && 'only root gives files away' }, async (t) => {
    const folder = await temporaryFolder(t);
    const data = join(folder, 'data');
    await mkdir(data, { mode: 0o700 });
    await writeFile(join(data, 'users.json'), '{"users":[]}', { mode: 0o600 });
    await mkdir(join(data, 'lost+found'));
    await chown(join(data, 'lost+found'), 4711, 4711);
    assert.match((await Examined.of(t, config, { folder })).of('rights').join(), /^ok: /);
    await chown(join(data, 'users.json'), 4711, 4711);
    assert.match(
      (await Examined.of(t, config, { folder })).of('rights').join(),
      /^problem: .*users\.json belongs to user 4711/,
    );
    await chown(data, 4711, 4711);
    const examined = await Examined.of(t, config, { folder });
    assert.match(examined.of('user').join(), /^advice: This runs as user 0, .*belongs to user 4711.*sudo -u '#4711'/);
    assert.match(examined.of('disk-trial').join(), /^skipped: .*not tried as root/);
  });

  test('file systems that promise more than they keep', () => {
    assert.deepEqual(
      [0xef53, 0x6969, 0x794c7630, 0x1021994, 0x12345678].map((type) => fileSystemFinding('/srv/mail', type).state),
      ['ok', 'advice', 'advice', 'advice', 'ok'],
    );
  });

  test('a disk that refuses, without links, or slow: each said, and nothing left', async (t) => {
    const folder = await temporaryFolder(t);
    const failing = (code: string): Promise<never> => Promise.reject(Object.assign(new Error(code), { code }));
    const trial = async (changed: Partial<FileLayer>) => {
      const findings = await new DiskTrial(folder, { ...nodeFiles, ...changed }, systemClock).run();
      assert.deepEqual(await readdir(folder), []);
      return findings.map(({ state, is }) => `${state}: ${is}`).join('\n');
    };
    assert.match(await trial({}), /^\w+: 4 KB are written durably in .*\nok: Hard links and renames work/);
    assert.match(
      await trial({ fdatasync: () => failing('ENOSPC') }),
      /^problem: .*cannot be written: the disk is full/,
    );
    assert.match(await trial({ open: () => failing('EROFS') }), /^problem: .*the file system is read-only/);
    assert.match(await trial({ rename: () => failing('EIO') }), /^problem: .*the disk reported an error/);
    assert.match(
      await trial({ link: () => failing('EPERM') }),
      /\nadvice: The file system makes no hard links \(EPERM\)/,
    );
    const slow: FileLayer['fdatasync'] = () => new Promise((resolve) => setTimeout(resolve, 60));
    assert.match(await trial({ fdatasync: slow }), /^advice: 4 KB are written durably in \d+ ms/);
  });
});
