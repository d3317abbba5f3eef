import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startInProcess } from '../support/in-process-server.js';

test('addresses above pages lead to them, and a missing entry leads back to the list', async (t) => {
  const { admin } = await startInProcess(t);
  const asPerson = { headers: { Accept: 'text/html' } };
  for (const [path, target] of [
    ['/client', '/client/queue/list'],
    ['/client/', '/client/queue/list'],
    ['/client/queue', '/client/queue/list'],
    ['/client/queue/', '/client/queue'],
    ['/system', '/system/props'],
    ['/config/sync', '/config/sync/status'],
    ['/users/', '/users'],
  ] as const) {
    const { status, headers } = await admin.request(path, asPerson);
    assert.deepEqual([path, headers.get('location')], [path, target]);
    assert.equal(status, path.endsWith('/') && path !== '/client/' ? 308 : 303);
  }
  assert.equal((await admin.request('/client/queue')).status, 405);
  assert.equal((await admin.request('/system')).status, 404);
  const missing = await admin.request('/client/queue/0000-none', asPerson);
  assert.ok([400, 404].includes(missing.status));
  assert.match(missing.text, /href="\/client\/queue\/list">Go back</);
});
