import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { definePlugin } from '../../core/plugin.js';
import { drive } from '../kit/index.js';
import { temporaryFolder } from '../support/temporary-folder.js';

/** Notes in a file of its own what it was told. */
const remembering = definePlugin({
  name: 'remembering',
  async setup({ smtp, folder, onClose }) {
    const file = join(await folder('remembering'), 'told.txt');
    const told = [await readFile(file, 'utf8').catch(() => 'new')];
    smtp.watch('outcome', ({ status, recipient, target }) => told.push(`${status} ${recipient.address} ${target}`));
    onClose(() => writeFile(file, told.join('\n')));
  },
});

test('what a plugin has written is there after a restart when the test names the data folder', async (t) => {
  const data = join(await temporaryFolder(t), 'data');
  const first = await drive(remembering, { data });
  assert.equal(first.folder, data);
  await first.emit('outcome', { to: 'bob@example.net', status: 'bounced' });
  await first.close();
  const second = await drive(remembering, { data });
  await second.close();
  assert.equal(await readFile(join(data, 'remembering', 'told.txt'), 'utf8'), 'new\nbounced bob@example.net relay');
});
