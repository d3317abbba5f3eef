import assert from 'node:assert/strict';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { type LogSettings, type OpenedLog, openLog } from '../../../core/log/log.js';
import { plantedSecrets } from './planted-secrets.js';

const noon = Date.UTC(2026, 10, 21, 12);

interface Opened extends OpenedLog {
  readonly folder: string;
  files(): readonly string[];
  text(): string;
}

async function open(t: TestContext, settings: Partial<LogSettings> = {}): Promise<Opened> {
  const root = await mkdtemp(join(tmpdir(), 'postern-log-'));
  const folder = settings.folder ?? join(root, 'logs');
  const opened = openLog({
    level: 'trace',
    ringLines: 100,
    maxFileBytes: 1_000_000,
    keepFiles: 5,
    clock: { now: () => noon, monotonic: () => 0 },
    ...settings,
    folder,
  });
  t.after(async () => {
    await opened.close();
    await rm(root, { recursive: true, force: true });
  });
  const files = (): readonly string[] => readdirSync(folder).sort();
  return {
    ...opened,
    folder,
    files,
    text: () =>
      files()
        .map((name) => readFileSync(join(folder, name), 'utf8'))
        .join(''),
  };
}

const parsed = (text: string): Record<string, unknown>[] =>
  text.split('\n').flatMap((line) => (line === '' ? [] : [JSON.parse(line) as Record<string, unknown>]));

test('a line has level, time, fields and sentence, in a file that only its owner can read', async (t) => {
  const log = await open(t);
  log.log.child({ plugin: 'store' }).info({ session: 's1' }, 'opened');
  await log.flush();
  assert.deepEqual(parsed(log.text()), [
    { level: 'info', time: '2026-11-21T12:00:00.000Z', plugin: 'store', session: 's1', msg: 'opened' },
  ]);
  assert.deepEqual(log.files(), ['postern-2026-11-21.log']);
  assert.equal(statSync(join(log.folder, 'postern-2026-11-21.log')).mode & 0o777, 0o600);
});

test('no planted secret reaches a file, the ring or the terminal', async (t) => {
  let shown = '';
  const log = await open(t, { verbose: true, echo: (text) => (shown += text) });
  for (const { fields, text } of plantedSecrets) {
    log.log.warn(fields, text ?? 'planted');
    log.log.child(fields).error({ err: new Error(text ?? JSON.stringify(fields)) }, 'thrown');
  }
  await log.flush();
  const everything = log.text() + log.ring.lines().join('\n') + shown;
  assert.equal(parsed(log.text()).length, plantedSecrets.length * 2);
  for (const { plain } of plantedSecrets) {
    assert.ok(!everything.includes(plain), plain);
    assert.ok(!everything.includes(JSON.stringify(plain).slice(1, -1)), plain);
  }
});

const injections = [
  'a\r\nb',
  '\n{"level":"fatal","msg":"forged"}',
  '\u001b[2J\u001b[31mred',
  'next\u0085line',
  'line\u2028and\u2029paragraph',
  'right\u202eto left\u2066',
  'nul\u0000',
  'lone \ud800 surrogate',
  '\u009b31m',
  '\ufeffmark',
];
for (const hostile of injections) {
  test(`${JSON.stringify(hostile).slice(0, 24)} in a field, a name and a sentence stays on its line`, async (t) => {
    let shown = '';
    const log = await open(t, { verbose: true, echo: (text) => (shown += text) });
    log.log.info({ value: hostile, [hostile]: 1 }, hostile);
    await log.flush();
    const text = log.text();
    assert.equal(parsed(text).length, 1);
    assert.equal(parsed(text)[0]?.['level'], 'info');
    // eslint-disable-next-line no-control-regex
    assert.doesNotMatch(text.slice(0, -1), /[\p{Cc}\u2028-\u202e\u2066-\u2069\ufeff]/u);
    assert.doesNotMatch(shown.slice(0, -1), /[\p{Cc}\u2028-\u202e\u2066-\u2069\ufeff]/u);
  });
}

test('fields cannot override level, time and sentence', async (t) => {
  const log = await open(t);
  log.log.info({ level: 'fatal', time: 'never', msg: 'forged' }, 'true');
  await log.flush();
  const [line] = parsed(log.text());
  assert.deepEqual([line?.['level'], line?.['msg'], line?.['level_']], ['info', 'true', 'fatal']);
});

test('a line of a megabyte is cut to 8 KB with a mark, whatever it is made of', async (t) => {
  const log = await open(t, { maxFileBytes: 10_000_000 });
  log.log.info({ long: 'x'.repeat(1_000_000) }, 'text');
  log.log.info({ many: Array.from({ length: 50_000 }, (_, i) => `item ${i}`) }, 'list');
  log.log.info(
    Object.fromEntries(Array.from({ length: 20_000 }, (_, i) => [`name${i}`, '\u0001'.repeat(50)])),
    'fields',
  );
  log.log.info({}, 'é'.repeat(500_000));
  await log.flush();
  const lines = log.text().trimEnd().split('\n');
  assert.equal(lines.length, 4);
  for (const line of lines) assert.ok(Buffer.byteLength(line) < 8192, `${Buffer.byteLength(line)}`);
  assert.match(lines[0] ?? '', /…\[\+\d+ characters\]/);
  assert.deepEqual(
    parsed(log.text()).map(({ level }) => level),
    ['info', 'info', 'info', 'info'],
  );
});

test('a secret at the cut of a long line does not show in part', async (t) => {
  const log = await open(t, { maxFileBytes: 10_000_000 });
  for (let before = 16_300; before < 16_384; before += 7) {
    log.log.info(
      { text: `${'x '.repeat(before / 2)}postgres://mail:dbuserpw@db.example/ ${'y '.repeat(40_000)}` },
      'long',
    );
  }
  await log.flush();
  assert.doesNotMatch(log.text(), /dbuser/);
});

test('an error is logged with its code and causes, without its other fields', async (t) => {
  const log = await open(t);
  const cause = Object.assign(new Error('no space'), { code: 'ENOSPC' });
  log.log.error({ err: Object.assign(new Error('cannot store', { cause }), { message_: 'body' }) }, 'failed');
  await log.flush();
  const err = parsed(log.text())[0]?.['err'] as Record<string, unknown>;
  assert.deepEqual([err['message'], (err['cause'] as Record<string, unknown>)['code']], ['cannot store', 'ENOSPC']);
  assert.equal(err['message_'], undefined);
});

test('the ring keeps the newest lines and passes on new ones', async (t) => {
  const log = await open(t, { ringLines: 3 });
  const seen: string[] = [];
  const stop = log.ring.subscribe((line) => seen.push(line));
  log.ring.subscribe(() => {
    throw new Error('a careless listener');
  });
  for (const n of [1, 2, 3, 4]) log.log.info({ n }, 'line');
  stop();
  log.log.info({ n: 5 }, 'line');
  assert.deepEqual(
    log.ring.lines().map((line) => parsed(line)[0]?.['n']),
    [3, 4, 5],
  );
  assert.deepEqual(
    seen.map((line) => parsed(line)[0]?.['n']),
    [1, 2, 3, 4],
  );
});
