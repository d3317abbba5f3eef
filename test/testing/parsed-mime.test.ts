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

test('a hook sees that a message is of a stranger, whose client takes turns', async (t) => {
  const seen: (string | undefined)[] = [];
  const watcher = definePlugin({
    name: 'watcher',
    setup({ smtp }) {
      smtp.on('message', ({ message }) => {
        seen.push(message.strangerAddress);
        return next();
      });
    },
  });
  const site = await drive(watcher, { test: t });
  await site.data({ ip: '192.0.2.1' });
  await site.data({ user: 'anna@example.org', from: 'anna@example.org', tls: true });
  assert.deepEqual(seen, ['192.0.2.1', undefined]);
});
