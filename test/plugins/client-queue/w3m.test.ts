import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { startInProcess } from '../../support/in-process-server.js';
import { findPeer, skipWithout } from '../../support/peers.js';
import { adminPassword, freeListeners } from '../../support/server-process.js';
import { temporaryFolder } from '../../support/temporary-folder.js';

const routes = { dead: { mx: ['127.0.0.1'], port: 1, domains: ['dead.example'] } };
const config = `{ plugins: { 'client-queue': ${JSON.stringify({ routes })} }, smtp: { listeners: ${freeListeners} } }`;
const enter = '\r';
const tab = '\t';
/** The name, the password and the button of the sign-in page. */
const signIn = ['/User name', enter, tab, enter, 'admin', enter, tab, enter, adminPassword, enter, tab, enter];

test('the buttons of the queue do in w3m what they say', { skip: skipWithout('w3m') }, async (t) => {
  const server = await startInProcess(t, config);
  await server.admin.json('/client/destinations/route:dead', { method: 'PUT', json: { suspendFor: 3600 } });
  const envelopes = [{ mail: 'ann@dead.example', rcpt: ['bob@dead.example'], text: 'Hi' }];
  const { uid } = (await server.admin.json('/client/queue', { json: { envelopes } }, 202)) as { uid: string };
  const state = async () => ((await server.admin.json(`/client/queue/${uid}`)) as { state: string }).state;

  /** Presses keys on the list: `/word` looks for a word from the cursor on. */
  async function press(keys: readonly string[], wanted: string): Promise<void> {
    const home = await temporaryFolder(t);
    const page = `${server.base}/sign-in?next=/client/queue/list`;
    const command = `'${findPeer('w3m') ?? ''}' -cookie '${page}'`;
    const w3m = spawn('script', ['-qec', `stty rows 60 cols 200; ${command}`, '/dev/null'], {
      env: { ...process.env, HOME: home, TERM: 'xterm', LANG: 'C.UTF-8' },
      stdio: ['pipe', 'pipe', 'ignore'],
    });
    let screen = '';
    w3m.stdout.setEncoding('utf8').on('data', (text: string) => (screen += text));
    const ended = once(w3m, 'exit');
    try {
      await pause(1500);
      for (const key of [...signIn, ...keys]) {
        w3m.stdin.write(key);
        await pause(400);
      }
      for (let waits = 0; waits < 50 && (await state()) !== wanted; waits += 1) await pause(100);
      assert.equal(await state(), wanted, screen.slice(-3000));
    } finally {
      w3m.stdin.end();
      w3m.kill();
      await ended;
    }
  }

  // The second box is that of the entry; the first one chooses all by JavaScript.
  const tick = ['/\\[ \\]', enter, 'n', 'l', enter];
  await press([...tick, '?Hold', enter, enter], 'held');
  await press([...tick, '?Release', enter, enter], 'queued');
  await press([...tick, '?Delete', enter, enter, '/Delete *Cancel', enter, enter], 'deleted');
});
