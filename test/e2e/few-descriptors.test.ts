import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { runPostern, ServerProcess } from '../support/server-process.js';
import { temporaryFolder } from '../support/temporary-folder.js';

for (const limit of [64, 128]) {
  test(`F-R26 with ${limit} descriptors, idle clients leave some for health, and those beyond are told 421`, async (t) => {
    const launcher = ['sh', '-c', `ulimit -n ${limit}; exec "$@"`, 'sh'];
    const server = await ServerProcess.start(t, { folder: await temporaryFolder(t), launcher });
    const said: string[] = [];
    const sockets = Array.from({ length: limit }, () => connect({ host: '127.0.0.1', port: server.smtpPort }));
    for (const socket of sockets) {
      socket.on('error', () => undefined).on('data', (bytes: Buffer) => said.push(bytes.toString().slice(0, 3)));
    }
    t.after(() => sockets.forEach((socket) => socket.destroy()));
    await Promise.all(sockets.map((socket) => once(socket, 'connect').catch(() => undefined)));
    const { status } = await fetch(`${server.http}/health`, { signal: AbortSignal.timeout(5000) });
    assert.equal(status, 200);
    await pause(200);
    assert.ok(said.includes('220'), 'some are served');
    assert.ok(said.includes('421'), `others are told: ${JSON.stringify(said)}`);
    for (const socket of sockets) socket.destroy();
    await pause(200);
    const later = connect({ host: '127.0.0.1', port: server.smtpPort });
    const [greeting] = (await once(later, 'data')) as [Buffer];
    assert.match(greeting.toString(), /^220 /);
    later.destroy();
  });
}

test('F-R26 with too few descriptors for a start, it says so', async (t) => {
  const folder = await temporaryFolder(t);
  const launcher = ['sh', '-c', 'ulimit -n 21; exec "$@"', 'sh'];
  const { code, stderr } = await runPostern(['start', '--http-port', '0', '--smtp-port', '0'], {
    cwd: folder,
    launcher,
  });
  assert.notEqual(code, 0);
  assert.match(stderr, /EMFILE|open files/);
});
