import assert from 'node:assert/strict';
import { readFile, stat, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { TimeSlice } from '../../../../core/concurrency.js';
import type { Summary } from '../../../../plugins/store/mime/summary.js';
import { logHeadBytes, SummaryLog } from '../../../../plugins/store/cache/summary-log.js';
import { idOfRecord, readRecord, recordLength, writeRecord } from '../../../../plugins/store/cache/summary-record.js';
import { temporaryFolder } from '../../../support/temporary-folder.js';

const summary: Summary = {
  from: { name: 'Ann', address: 'ann@example.org' },
  to: [{ name: '', address: 'bob@example.org' }],
  subject: 'Grüße',
  date: null,
  internetMessageId: '<1@example.org>',
  hasAttachments: false,
  snippet: 'Hello',
};
const timeSlice = new TimeSlice();

function record(id: string, subject = summary.subject): Buffer {
  return writeRecord(id, { summary: { ...summary, subject }, size: 12 }) ?? Buffer.alloc(0);
}

async function idsIn(log: SummaryLog): Promise<readonly string[]> {
  const ids: string[] = [];
  const isWhole = await log.scan(
    logHeadBytes,
    (slice) => {
      for (let at = 0; at < slice.length; at += recordLength(slice, at) ?? slice.length) {
        ids.push(idOfRecord(slice.subarray(at)));
      }
    },
    timeSlice,
  );
  return isWhole ? ids : [...ids, 'and then something else'];
}

test('a record is read as it was written, and only for its own message', () => {
  const log = SummaryLog.begin({ path: undefined, folder: 'a' });
  const offset = log.append(record('1000.a'));
  const read = log.read(offset) ?? Buffer.alloc(0);
  assert.deepEqual(readRecord(read, '1000.a'), { summary, size: 12 });
  assert.equal(readRecord(read, '1000.b'), undefined);
  assert.equal(log.read(offset + 1), undefined);
  assert.equal(log.read(5000), undefined);
});

test('a summary that is far too long is not kept', () => {
  assert.equal(writeRecord('1000.a', { summary: { ...summary, subject: 'x'.repeat(300_000) }, size: 1 }), undefined);
});

test('what has gathered is written when it is much, and all of it can be read meanwhile', async (t) => {
  const path = join(await temporaryFolder(t), 'a.summaries');
  const log = SummaryLog.begin({ path, folder: 'a' });
  const offsets: number[] = [];
  for (let n = 0; n < 3000; n++) offsets.push(log.append(record(`1000.M${n}`, 'x'.repeat(n % 700))));
  const { size } = await stat(path);
  assert.ok(size > 500_000 && size < log.end, `${size} of ${log.end} bytes are written`);
  for (const [n, offset] of offsets.entries()) {
    assert.equal(idOfRecord(log.read(offset) ?? Buffer.alloc(30)), `1000.M${n}`);
  }
  assert.equal((await idsIn(log)).length, 3000);
  log.flush();
  assert.equal((await stat(path)).size, log.end);
  log.close();
});

test('a log found at the start continues after its last whole record', async (t) => {
  const path = join(await temporaryFolder(t), 'a.summaries');
  const log = SummaryLog.begin({ path, folder: 'a' });
  for (const id of ['1', '2', '3']) log.append(record(id));
  log.flush();
  const { end } = log;
  log.close();
  for (const lost of [1, 17, record('3').length - 1]) {
    await truncate(path, end);
    await truncate(path, end - lost);
    const found = SummaryLog.open({ path, folder: 'a' });
    assert.ok(found !== undefined);
    assert.deepEqual([...(await found.adopt(logHeadBytes, 0, timeSlice)).keys()], ['1', '2']);
    found.append(record('3'));
    found.flush();
    assert.deepEqual([await idsIn(found), found.records, found.end], [['1', '2', '3'], 3, end]);
    found.close();
  }
});

test('a byte that was changed is noticed, wherever it is', async (t) => {
  const path = join(await temporaryFolder(t), 'a.summaries');
  const log = SummaryLog.begin({ path, folder: 'a' });
  const offsets = ['1', '2', '3'].map((id) => log.append(record(id)));
  log.flush();
  log.close();
  const whole = await readFile(path);
  const [, second = 0, third = 0] = offsets;
  for (let at = 0; at < whole.length; at++) {
    const changed = Buffer.from(whole);
    changed[at] = (changed[at] ?? 0) ^ 0x10;
    await writeFile(path, changed);
    const found = SummaryLog.open({ path, folder: 'a' });
    if (at < 16) assert.equal(found, undefined);
    if (found === undefined || at < logHeadBytes) continue;
    assert.equal((await idsIn(found)).at(-1), 'and then something else', `byte ${at}`);
    const intact = offsets.filter((offset) => found.read(offset) !== undefined);
    assert.deepEqual(
      intact,
      offsets.filter((_, n) => n !== (at < second ? 0 : at < third ? 1 : 2)),
      `byte ${at}`,
    );
    found.close();
  }
});

test('while nothing can be written, what there is stays in memory, and then no more is taken', () => {
  const log = SummaryLog.begin({ path: '/nowhere/at/all.summaries', folder: 'a' });
  const long = record('1', 'x'.repeat(50_000));
  let kept = 0;
  for (; log.append(long) !== 0; kept++) assert.ok(kept < 1000);
  assert.ok(log.isFull && kept > 100);
  assert.ok(log.memory <= 17 * 2 ** 20);
  assert.throws(() => log.flush());
});
