import assert from 'node:assert/strict';
import { test } from 'node:test';
import { HttpClient } from '../support/http-client.js';
import { ServerProcess, freeListeners } from '../support/server-process.js';
import { temporaryFolder } from '../support/temporary-folder.js';

/** Reads one line, closes its end, and waits as long as the command lives. */
const oneLine = ['bash', '--norc', '-c', 'exec "$@" > >(exec head -n 1)', 'one-line'];

test('a server continues when its output is closed', async (t) => {
  const server = await ServerProcess.start(t, {
    folder: await temporaryFolder(t),
    config: `{ smtp: { listeners: ${freeListeners} } }`,
    launcher: oneLine,
  });
  assert.equal((await HttpClient.admin(server.http).request('/health')).status, 200);
});
