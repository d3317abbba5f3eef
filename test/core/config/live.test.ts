import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LiveConfiguration } from '../../../core/config/live.js';
import { loadConfiguration } from '../../../core/config/load.js';
import { availablePlugins } from '../../../core/host/plugin-set.js';
import { isThe } from '../../kit/relay-queue/harness.js';
import { recordingLog, type LogLine } from '../smtp/server/test-engine.js';
import { temporaryFolder } from '../../support/temporary-folder.js';

test('a watcher that never finishes fails a reload after a time limit, and does not block the rollback', async (t) => {
  const plugins = () => Promise.resolve(availablePlugins([], { modules: [], unloaded: [] }));
  const loaded = await loadConfiguration({ overrides: {}, cwd: await temporaryFolder(t), env: {}, plugins });
  const lines: LogLine[] = [];
  const live = new LiveConfiguration(loaded, recordingLog(lines));
  const told: string[] = [];
  live.watch(() => new Promise<void>(() => undefined));
  live.watch(() => void told.push('the other'));
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const telling = live.notify();
  t.mock.timers.tick(60_000);
  await assert.rejects(telling, /a watcher of the configuration has not finished after 60 s/);
  const back = live.notifyRollback();
  t.mock.timers.tick(60_000);
  await back;
  assert.deepEqual(told, ['the other']);
  assert.match(lines.map(({ message }) => message).join(), /could not be rolled back/);
});

test('a text that may become a layer is shown without secrets, and names those in clear text', async (t) => {
  const plugins = () => Promise.resolve(availablePlugins([], { modules: [], unloaded: [] }));
  const loaded = await loadConfiguration({ overrides: {}, cwd: await temporaryFolder(t), env: {}, plugins });
  const live = new LiveConfiguration(loaded, recordingLog([]));
  const { text, secrets, keys } = live.review(
    'base.json5',
    `{
      hostname: 'mx.example.org', http: { accounts: [
        { username: 'a', password: 'hunter2', role: 'read' },
        { username: 'b', password: { file: '/etc/b' }, role: 'read' },
        { username: 'c', password: { env: 'C' }, role: 'read' },
        { username: 'd', password: { file: 'hunter3', more: 1 }, role: 'read' },
      ] },
      plugins: { x: { url: 'https://me:hunter4@example.org/', token: null, tokenSeconds: 5, apiKeys: ['hunter5'] } },
    }`,
  );
  assert.deepEqual(secrets, [
    'http.accounts.0.password',
    'http.accounts.3.password.file',
    'plugins.x.url',
    'plugins.x.apiKeys.0',
  ]);
  assert.doesNotMatch(text, /hunter/);
  assert.deepEqual(keys, ['hostname', 'http', 'plugins', 'plugins.x']);
  for (const wrong of ['{', '[]', "{ data: 'x' }", '{ hostname: 1, hostname: 2 }'])
    assert.throws(() => live.review('base.json5', wrong), isThe('invalid'));
});
