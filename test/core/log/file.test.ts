import assert from 'node:assert/strict';
import { appendFileSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { listLogFiles, LogFile, type LogFileOptions } from '../../../core/log/file.js';

const noon = Date.UTC(2026, 10, 21, 12);
const day = 24 * 60 * 60 * 1000;

async function temporary(t: TestContext): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'postern-logfile-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

function open(t: TestContext, folder: string, options: Partial<LogFileOptions> = {}): LogFile {
  const clock = { now: () => noon, monotonic: () => 0 };
  const file = new LogFile({ folder, maxFileBytes: 100, keepFiles: 10, clock, retryMs: 3_600_000, ...options });
  t.after(() => file.close());
  return file;
}

const read = (folder: string, name: string): string => readFileSync(join(folder, name), 'utf8');
const failure = (code: string): Error => Object.assign(new Error(code), { code });

test('a full file is followed by the next number, and no line is split or lost', async (t) => {
  const folder = await temporary(t);
  const file = open(t, folder);
  const lines = Array.from({ length: 20 }, (_, i) => `{"line":${String(i).padStart(10, '0')},"x":"yyyy"}\n`);
  for (const line of lines) {
    file.append(line);
    await file.flush();
  }
  const names = await listLogFiles(folder);
  assert.deepEqual(names.slice(0, 2), ['postern-2026-11-21.log', 'postern-2026-11-21.1.log']);
  assert.equal(names.map((name) => read(folder, name)).join(''), lines.join(''));
});

test('a flush ends while lines keep coming, and has those that came before it', async (t) => {
  const folder = await temporary(t);
  const file = open(t, folder, { maxFileBytes: 1_000_000 });
  const stop = new AbortController();
  const writing = (async () => {
    for (let number = 0; !stop.signal.aborted; number += 1) {
      file.append(`${number}\n`);
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  })();
  file.append('before\n');
  const ended = await Promise.race([
    file.flush().then(() => true),
    new Promise<false>((resolve) => setTimeout(() => resolve(false), 3000)),
  ]);
  assert.match(read(folder, 'postern-2026-11-21.log'), /before/);
  stop.abort();
  await writing;
  assert.equal(ended, true);
});

test('lines that come at once are spread over files the same way', async (t) => {
  const folder = await temporary(t);
  const file = open(t, folder);
  const lines = Array.from({ length: 50 }, (_, i) => `${i}${'.'.repeat(30)}\n`);
  for (const line of lines) file.append(line);
  await file.flush();
  const names = await listLogFiles(folder);
  assert.equal(names.length, 10);
  for (const name of names) assert.ok(read(folder, name).length <= 200);
});

test('lines that come while others are written wait for the next write, which is not at once', async (t) => {
  const folder = await temporary(t);
  const steps: string[] = [];
  const file = open(t, folder, {
    write: async (handle, bytes) => {
      const text = bytes.toString();
      steps.push(text);
      if (text === 'one\n') {
        file.append('two\n');
        setTimeout(() => {
          steps.push('some milliseconds');
          file.append('three\n');
        }, 5);
      }
      return handle.write(bytes);
    },
  });
  file.append('one\n');
  await file.flush();
  assert.deepEqual(steps, ['one\n', 'some milliseconds', 'two\nthree\n']);
});

test('a new day begins a new file', async (t) => {
  const folder = await temporary(t);
  let now = noon;
  const file = open(t, folder, { clock: { now: () => now, monotonic: () => 0 } });
  file.append('first\n');
  await file.flush();
  now += day;
  file.append('second\n');
  await file.flush();
  assert.equal(read(folder, 'postern-2026-11-21.log'), 'first\n');
  assert.equal(read(folder, 'postern-2026-11-22.log'), 'second\n');
});

test('a restart continues the newest file of the day', async (t) => {
  const folder = await temporary(t);
  writeFileSync(join(folder, 'postern-2026-11-21.log'), `${'x'.repeat(120)}\n`);
  writeFileSync(join(folder, 'postern-2026-11-21.9.log'), `${'x'.repeat(120)}\n`);
  writeFileSync(join(folder, 'postern-2026-11-21.10.log'), 'before\n');
  const file = open(t, folder);
  file.append('after\n');
  await file.flush();
  assert.equal(read(folder, 'postern-2026-11-21.10.log'), 'before\nafter\n');
});

test('a restart after a full file begins the next one, and after a partial line a new line', async (t) => {
  const folder = await temporary(t);
  writeFileSync(join(folder, 'postern-2026-11-21.log'), 'x'.repeat(120));
  const first = open(t, folder);
  first.append('whole\n');
  await first.close();
  appendFileSync(join(folder, 'postern-2026-11-21.1.log'), '{"torn":');
  const second = open(t, folder);
  second.append('next\n');
  await second.close();
  assert.equal(read(folder, 'postern-2026-11-21.1.log'), 'whole\n{"torn":\nnext\n');
});

test('only the newest files are kept, and files that are not the log stay', async (t) => {
  const folder = await temporary(t);
  for (const name of [
    'postern-2026-10-01.log',
    'postern-2026-10-02.log',
    'postern-2026-10-02.1.log',
    'postern-2026-10-02.10.log',
    'audit.log',
    'postern-notes.log',
  ])
    writeFileSync(join(folder, name), 'x\n');
  const file = open(t, folder, { keepFiles: 3 });
  file.append('now\n');
  await file.flush();
  assert.deepEqual(await listLogFiles(folder), [
    'postern-2026-10-02.1.log',
    'postern-2026-10-02.10.log',
    'postern-2026-11-21.log',
  ]);
  assert.ok(readdirSync(folder).includes('audit.log') && readdirSync(folder).includes('postern-notes.log'));
});

test('a full disk degrades health, loses nothing within the bound, and writing resumes', async (t) => {
  const folder = await temporary(t);
  let full = true;
  const file = open(t, folder, {
    write: (handle, bytes) => (full ? Promise.reject(failure('ENOSPC')) : handle.write(bytes)),
  });
  file.append('one\n');
  await file.flush();
  file.append('two\n');
  await file.flush();
  assert.equal(file.health().status, 'degraded');
  assert.match(file.health().why ?? '', /ENOSPC/);
  full = false;
  await file.flush();
  assert.equal(file.health().status, 'up');
  assert.equal(read(folder, 'postern-2026-11-21.log'), 'one\ntwo\n');
});

test('a write that stops in the middle of a line leaves every whole line once', async (t) => {
  const folder = await temporary(t);
  let room = 7;
  const file = open(t, folder, {
    write: async (handle, bytes) => {
      if (room === 0) throw failure('ENOSPC');
      const part = await handle.write(bytes.subarray(0, room));
      room -= part.bytesWritten;
      return part;
    },
  });
  for (const line of ['aaaa\n', 'bbbb\n', 'cccc\n']) file.append(line);
  await file.flush();
  assert.equal(file.health().status, 'degraded');
  room = 1000;
  await file.flush();
  assert.equal(read(folder, 'postern-2026-11-21.log'), 'aaaa\nbb\nbbbb\ncccc\n');
});

test('a single dropped line is reported in the singular', async (t) => {
  const file = open(t, await temporary(t), { maxPendingBytes: 10, write: () => Promise.reject(failure('EIO')) });
  for (const line of ['aaaa\n', 'bbbb\n', 'cccc\n']) file.append(line);
  await file.flush();
  assert.match(file.health().why ?? '', /, 1 line was dropped;/);
});

test('beyond the bound lines are dropped, and their number is logged', async (t) => {
  const folder = await temporary(t);
  let full = true;
  const file = open(t, folder, {
    maxFileBytes: 10_000,
    maxPendingBytes: 10,
    write: (handle, bytes) => (full ? Promise.reject(failure('EIO')) : handle.write(bytes)),
  });
  for (const line of ['aaaa\n', 'bbbb\n', 'cccc\n', 'dddd\n']) file.append(line);
  await file.flush();
  assert.match(file.health().why ?? '', /, 2 lines were dropped;/);
  full = false;
  await file.flush();
  const [first, second, third] = read(folder, 'postern-2026-11-21.log').split('\n');
  assert.deepEqual([first, second], ['aaaa', 'bbbb']);
  assert.match(third ?? '', /"dropped":2/);
});

test('a folder that cannot be created never throws into the caller', async (t) => {
  const folder = await temporary(t);
  writeFileSync(join(folder, 'logs'), 'a file stands in the way');
  const file = open(t, join(folder, 'logs', 'deeper'));
  file.append('line\n');
  await file.flush();
  assert.equal(file.health().status, 'degraded');
  await rm(join(folder, 'logs'));
  mkdirSync(join(folder, 'logs'));
  await file.flush();
  assert.equal(read(join(folder, 'logs', 'deeper'), 'postern-2026-11-21.log'), 'line\n');
});

test('other entries with the name of a log file are skipped, never read and never removed', async (t) => {
  const folder = await temporary(t);
  for (const name of ['postern-2026-01-02.log', 'postern-2026-11-21.3.log']) mkdirSync(join(folder, name));
  writeFileSync(join(folder, 'postern-2026-11-20.log'), 'yesterday\n');
  const file = open(t, folder, { keepFiles: 1 });
  file.append('today\n');
  await file.flush();
  assert.equal(file.health().status, 'up');
  assert.deepEqual(await listLogFiles(folder), ['postern-2026-11-21.4.log']);
  assert.deepEqual(readdirSync(folder).toSorted(), [
    'postern-2026-01-02.log',
    'postern-2026-11-21.3.log',
    'postern-2026-11-21.4.log',
  ]);
});
