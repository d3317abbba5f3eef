import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { runInNewContext } from 'node:vm';
import { safeUrl } from '../../../core/http/views.js';
import * as format from '../../../core/text/format.js';

test('a link target cannot run anything', () => {
  const bad = [
    'javascript:alert(1)',
    ' JavaScript:alert(1)',
    'java\nscript:alert(1)',
    '\u0001javascript:x',
    'data:text/html,x',
    'vbscript:x',
    '//evil.example',
    '/\\evil.example',
    'blob:x',
  ];
  for (const url of bad) assert.equal(safeUrl(url), '#', url);
  for (const url of ['/store/a', '?tab=raw', '#x', 'https://example.org/', 'mailto:a@b.example'])
    assert.equal(safeUrl(url), url);
});

test('sizes, counts and times are read at a glance', () => {
  assert.deepEqual([0, 999, 1023, 1024, 1_234_567, 104_857_600].map(format.formatBytes), [
    '0 B',
    '999 B',
    '1.0 KB',
    '1.0 KB',
    '1.2 MB',
    '100 MB',
  ]);
  assert.deepEqual([0, 999, 1234567, Number.NaN].map(format.formatNumber), ['0', '999', '1,234,567', '–']);
  assert.deepEqual([0, 59, 3600, 11_520, 90_061].map(format.formatDuration), [
    '0 s',
    '59 s',
    '1 h',
    '3 h 12 min',
    '1 d 1 h',
  ]);
  assert.deepEqual(
    [0, 1, 1234].map((count) => format.pluralize(count, 'time')),
    ['0 times', '1 time', '1,234 times'],
  );
  assert.equal(format.pluralize(1, 'line matches', 'lines match'), '1 line matches');
  const now = Date.parse('2026-11-21T12:00:00Z');
  assert.equal(format.formatAgo('2026-11-21T11:55:00Z', now), '5 min ago');
  assert.equal(format.formatAgo('2026-11-21T15:00:00Z', now), 'in 3 h');
  assert.equal(format.formatAgo('2026-01-02T03:04:05Z', now), '2026-01-02');
  assert.equal(format.formatAgo('no time', now), 'no time');
  assert.deepEqual(
    [
      format.formatValue('count', 12_345),
      format.formatValue('rate', 0.0123),
      format.formatValue('seconds', 7200),
      format.formatValue('bytes', 5e6),
    ],
    ['12,345', '0.012/s', '2 h', '4.8 MB'],
  );
  assert.deepEqual([format.formatClock(now), format.formatClock(now, 'seconds')], ['12:00', '12:00:00']);
});

test('scripts in the browser write them in the same way', async () => {
  const script = await readFile(new URL('../../../../public/vendor/format.js', import.meta.url), 'utf8');
  const shared = runInNewContext(`${script}; format`) as typeof format;
  assert.equal(shared.formatNumber(1_234_567), '1,234,567');
  assert.equal(shared.formatValue('bytes', 5e6), '4.8 MB');
});
