import assert from 'node:assert/strict';
import { test } from 'node:test';
import { processLimits } from '../../../core/net/process-limits.js';

const table = [
  'Limit                     Soft Limit           Hard Limit           Units     ',
  'Max stack size            8388608              unlimited            bytes     ',
  'Max open files            1024                 20000                files     ',
  'Max nice priority         0                    0                              ',
  '',
].join('\n');

test('limits are read by column', () => {
  assert.deepEqual(processLimits(table), {
    'stack.size.soft': '8388608 bytes',
    'stack.size.hard': 'unlimited',
    'open.files.soft': '1024 files',
    'open.files.hard': '20000 files',
    'nice.priority.soft': '0',
    'nice.priority.hard': '0',
  });
});

test('without the table there are no limits', () => {
  assert.deepEqual(processLimits(''), {});
  assert.deepEqual(processLimits('something else\nentirely'), {});
});
