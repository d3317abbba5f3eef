import assert from 'node:assert/strict';
import { test } from 'node:test';
import { definePlugin, messageViewer, next, reject } from '../../core/plugin.js';
import { store } from '../../plugins/store/index.js';
import { drive } from '../kit/index.js';

test('a hook has a message parsed by the thread of the store', async (t) => {
  const doorman = definePlugin({
    name: 'doorman',
    needs: { messageViewer },
    setup({ smtp }, { messageViewer }) {
      smtp.on('message', async ({ message }) => {
        const { parts, subject } = await messageViewer.view(message);
        const bad = parts.find(({ filename }) => filename?.endsWith('.exe'));
        return bad === undefined ? next() : reject(550, '5.7.1', `No programs: ${bad.filename} in ${subject}`);
      });
    },
  });
  const site = await drive(doorman, { test: t, beside: [store] });
  const attachment = (name: string) =>
    `Subject: =?utf-8?q?caf=C3=A9?=\r\nContent-Type: application/octet-stream; name="${name}"\r\n` +
    `Content-Disposition: attachment; filename="${name}"\r\n\r\nMZ\r\n`;
  assert.equal((await site.data({ eml: attachment('a.txt') })).code, 250);
  const answer = await site.data({ eml: attachment('a.exe') });
  assert.deepEqual([answer.code, answer.text], [550, 'No programs: a.exe in caf?']);
});
