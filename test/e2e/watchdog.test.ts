import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import { readStalls, type StallRecord } from '../../core/watchdog/stall-record.js';
import { HttpClient } from '../support/http-client.js';
import { freeListeners, ServerProcess } from '../support/server-process.js';
import { SmtpClient } from '../support/smtp-client.js';
import { temporaryFolder } from '../support/temporary-folder.js';

/** Loops for ever in a hook, behind an await, in an endpoint, a watcher or a timer, as the mail or the request says; else for a while. */
const looper = `
import { defineEndpoint, definePlugin, next } from 'postern/plugin';

function loop(ms = Infinity) {
  const until = performance.now() + ms;
  while (performance.now() < until) Math.sqrt(2);
}
let timed = false;

export const looper = definePlugin({
  name: 'looper',
  setup({ smtp, http, every }) {
    smtp.on('rcptTo', ({ address }) => {
      if (address.address === 'hook@localhost') loop();
      if (address.address === 'while@localhost') loop(4000);
      if (address.address === 'longer@localhost') loop(7000);
      if (address.address === 'timer@localhost') timed = true;
      return next();
    });
    smtp.on('rcptTo', async ({ address }) => {
      await new Promise((resolve) => setTimeout(resolve, 1));
      if (address.address === 'await@localhost') loop();
      return next();
    });
    smtp.watch('closed', ({ session }) => {
      if (session.hello?.name === 'watcher.example') loop();
    });
    every(1, () => {
      if (timed) loop();
    });
    http.mount([
      defineEndpoint({ method: 'GET', path: '/loop', summary: 'Loops', group: 'Site', access: 'read', handle: () => loop() }),
    ]);
  },
});
`;

async function prepared(t: TestContext, watchdog = '{ stallSeconds: 1 }'): Promise<string> {
  const folder = await temporaryFolder(t);
  await mkdir(join(folder, 'looper'));
  await writeFile(join(folder, 'looper', 'index.js'), looper);
  const config = `{ sitePlugins: ['./looper'], watchdog: ${watchdog}, smtp: { listeners: ${freeListeners} } }`;
  await writeFile(join(folder, 'postern.json5'), config);
  return folder;
}

const started = (t: TestContext, folder: string) => ServerProcess.start(t, { folder, config: null });

async function recipient(server: ServerProcess, localPart: string, hello = 'client.example'): Promise<SmtpClient> {
  const client = await SmtpClient.greeted({ port: server.smtpPort, timeoutMs: 30_000 }, `EHLO ${hello}`);
  await client.command('MAIL FROM:<anna@example.org>');
  client.write(`RCPT TO:<${localPart}@localhost>\r\n`);
  return client;
}

/** The newest stall that is not only that of a busy machine, once it is there with what ran. */
async function newest(folder: string, outcome: StallRecord['outcome'] = 'lasts'): Promise<StallRecord> {
  for (let tries = 0; tries < 600; tries += 1) {
    const stalls = await readStalls(join(folder, 'data'));
    const stall = stalls.find(({ frames }) => frames.some((frame) => frame.includes('looper/index.js')));
    if (stall?.outcome === outcome) return stall;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`no stall that ${outcome}`);
}

async function watchdogHealth(
  server: ServerProcess,
): Promise<{ readonly status: string; readonly why: string | null }> {
  const { components } = (await HttpClient.admin(server.http).json('/health/extended')) as {
    components: Record<string, { status: string; why: string | null }>;
  };
  return components['watchdog'] ?? { status: 'absent', why: null };
}

const causes: readonly (readonly [
  title: string,
  doing: string | null,
  cause: (server: ServerProcess) => Promise<void>,
])[] = [
  ['a hook', 'hook rcptTo', async (server) => void (await recipient(server, 'hook'))],
  ['a hook, behind an await', null, async (server) => void (await recipient(server, 'await'))],
  [
    'an endpoint',
    'GET /loop',
    (server) => {
      HttpClient.admin(server.http)
        .request('/loop')
        .catch(() => undefined);
      return Promise.resolve();
    },
  ],
  [
    'a watcher',
    'watcher of closed',
    async (server) => {
      const client = await recipient(server, 'postmaster', 'watcher.example');
      await client.readReply();
      client.close();
    },
  ],
  ['a timer', 'timer of 1 s', async (server) => void (await (await recipient(server, 'timer')).readReply())],
];

describe('an endless loop in a plugin', { concurrency: 2 }, () => {
  for (const [title, doing, cause] of causes) {
    test(`${title}: it is on record whose it is while nothing answers, and health tells after the restart`, async (t) => {
      const folder = await prepared(t);
      const server = await started(t, folder);
      await cause(server);
      const stall = await newest(folder);
      assert.deepEqual([stall.pid, stall.plugin, stall.doing, stall.until], [server.pid, 'looper', doing, null]);
      await assert.rejects(fetch(`${server.http}/health`, { signal: AbortSignal.timeout(500) }));

      await server.kill('SIGKILL');
      const again = await started(t, folder);
      const { status, why } = await watchdogHealth(again);
      assert.equal(status, 'degraded');
      assert.match(why ?? '', /^The run before this one ended while nothing was answered, since 20.*plugin looper/);
      assert.equal((await newest(folder, 'ended')).pid, stall.pid);
    });
  }

  test('after a clean end nothing is reported of earlier runs', async (t) => {
    const folder = await prepared(t);
    const server = await started(t, folder);
    await recipient(server, 'hook');
    await newest(folder);
    await server.kill('SIGKILL');
    await (await started(t, folder)).kill('SIGTERM');
    const { why } = await watchdogHealth(await started(t, folder));
    assert.doesNotMatch(why ?? '', /run before/);
  });

  test('one that ends is reported by health, log and metrics of the same run', async (t) => {
    const folder = await prepared(t);
    const server = await started(t, folder);
    const client = await recipient(server, 'while');
    assert.equal((await client.readReply()).code, 550);
    const over = await newest(folder, 'over');
    assert.equal(over.plugin, 'looper');
    const admin = HttpClient.admin(server.http);
    const { status, why } = await watchdogHealth(server);
    assert.deepEqual([status, /hook rcptTo of the plugin looper/.test(why ?? '')], ['degraded', true]);
    assert.match(
      (await admin.request('/logs?q="stood still"')).text,
      /looper: the event loop stood still.*hook rcptTo/,
    );
    assert.match((await admin.request('/metrics/prometheus')).text, /^postern_event_loop_stalls_total [1-9]/m);
    assert.match((await admin.request('/system/threads?format=text')).text, /stood still .*plugin looper, hook rcptTo/);
  });

  test('one that ends while the server stops has not ended the run', async (t) => {
    const folder = await prepared(t, '{ stallSeconds: 3 }');
    const server = await started(t, folder);
    const client = await recipient(server, 'longer');
    await newest(folder);
    // Nobody is left to be waited for: the stop takes less time than the thread needs to look again.
    client.close();
    assert.deepEqual(await server.kill('SIGTERM'), { code: 0, signal: null });
    assert.notEqual((await newest(folder, 'over')).until, null);
    assert.equal((await watchdogHealth(await started(t, folder))).status, 'up');
  });

  test('the process ends itself where configured, and the next run says so', async (t) => {
    const folder = await prepared(t, '{ stallSeconds: 1, restartAfterSeconds: 2 }');
    const server = await started(t, folder);
    await recipient(server, 'hook');
    assert.deepEqual(await server.exit, { code: null, signal: 'SIGKILL' });
    const again = await started(t, folder);
    assert.match((await watchdogHealth(again)).why ?? '', /was ended by the watchdog.*plugin looper/);
  });
});
