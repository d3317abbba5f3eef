import assert from 'node:assert/strict';
import { readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { z } from 'zod';
import { systemClock } from '../../../core/clock.js';
import type { RelayQueueStore } from '../../../core/contracts/relay-queue-store.js';
import { problem } from '../../../core/problem.js';
import { openRelayQueue } from '../../../plugins/client-queue/queue/open-relay-queue.js';
import { rememberingLog } from '../../core/spool/remembering-log.js';
import { startInProcess } from '../../support/in-process-server.js';
import { freeListeners } from '../../support/server-process.js';
import { SmtpSink } from '../../support/smtp-sink.js';
import { temporaryFolder } from '../../support/temporary-folder.js';

const Entry = z.object({
  state: z.string(),
  queuedAt: z.string(),
  lastAttempt: z.string().nullable(),
  nextAttempt: z.string().nullable(),
  expiresAt: z.string(),
});

/** What a plugin provides that has another store. */
const plugin = `
  import { definePlugin, service } from 'postern/plugin';
  export const otherStore = definePlugin({
    name: 'other-store',
    provides: { relayQueueStore: service('postern.relay-queue-store') },
    reload: 'restart',
    setup: () => ({ relayQueueStore: globalThis.storeUnderTest }),
  });
`;

const hourMs = 3_600_000;

for (const aheadMs of [-10 * hourMs, 10 * hourMs]) {
  test(`a store that a plugin provides has the queue, and its clock the times (${aheadMs} ms)`, async (t) => {
    const folder = join(await temporaryFolder(t), 'elsewhere');
    const clock = { now: () => Date.now() + aheadMs, monotonic: () => systemClock.monotonic() };
    const { log } = rememberingLog();
    const store: RelayQueueStore = {
      clock,
      open: ({ bounds, owner, ready }) => openRelayQueue({ folder, clock, log, owner, ready, ...bounds }),
    };
    Object.assign(globalThis, { storeUnderTest: store });
    const sink = await SmtpSink.start(t, { steps: { rcpt: '450 4.2.0 Later' } });
    const routes = { out: { mx: ['127.0.0.1'], port: sink.port, tls: 'never', domains: ['out.example'] } };
    const plugins = JSON.stringify({ 'client-queue': { routes, keepFinished: 60 } });
    const config = `{ sitePlugins: ['./store.mjs'], plugins: ${plugins}, smtp: { listeners: ${freeListeners} } }`;
    const { admin, folder: home } = await startInProcess(t, config, {}, (place) =>
      writeFile(join(place, 'store.mjs'), plugin),
    );
    const envelopes = [{ mail: 'ann@elsewhere.example', rcpt: ['bob@out.example'], text: 'Hi' }];
    const { uid } = z
      .object({ uid: z.string() })
      .parse(await admin.json('/client/queue', { json: { envelopes } }, 202));
    const entry = async () => Entry.parse(await admin.json(`/client/queue/${uid}`));
    while ((await entry()).state !== 'deferred') await pause(10);
    const { queuedAt, lastAttempt, nextAttempt, expiresAt } = await entry();
    const hours = (time: string | null): number => Math.floor((Date.parse(time ?? '') - clock.now()) / hourMs);
    assert.deepEqual([queuedAt, lastAttempt, nextAttempt, expiresAt].map(hours), [-1, -1, 0, 119]);
    sink.script = {};
    await admin.json('/client/queue/retry', { json: { uid } });
    while ((await entry()).state !== 'delivered') await pause(10);
    assert.ok(!(await readdir(join(home, 'data'))).includes('queue'), 'no queue in files');
  });
}

test('a retry by LMTP to a server of a target ends only while its lease holds', async (t) => {
  const folder = join(await temporaryFolder(t), 'elsewhere');
  const { log } = rememberingLog();
  let claims = 0;
  const store: RelayQueueStore = {
    open: async ({ bounds, owner, ready }) => {
      const queue = await openRelayQueue({ folder, clock: systemClock, log, owner, ready, ...bounds });
      const claim = queue.claim.bind(queue);
      queue.claim = async (options) =>
        (await claim(options)).map((lease) => {
          claims += 1;
          const answers = claims === 1 ? [true, true, false] : [true];
          return { ...lease, holds: () => answers.shift() ?? claims > 1 };
        });
      return queue;
    },
  };
  Object.assign(globalThis, { storeUnderTest: store });
  const sink = await SmtpSink.start(t, { protocol: 'lmtp', steps: { dot: ['451 4.2.0 Later', '250 2.0.0 Now'] } });
  const routes = [{ domains: ['office.example'], hosts: [`127.0.0.1:${sink.port}`], tls: 'never' }];
  const plugins = JSON.stringify({ lmtp: { routes }, 'client-queue': { retry: { firstSeconds: 1 } } });
  const config = `{ sitePlugins: ['./store.mjs'], domains: ['office.example'], plugins: ${plugins}, smtp: { listeners: ${freeListeners} } }`;
  const { admin } = await startInProcess(t, config, {}, (place) => writeFile(join(place, 'store.mjs'), plugin));
  const envelopes = [
    { mail: 'ann@elsewhere.example', rcpt: ['bob@office.example', 'cleo@office.example'], text: 'Hi' },
  ];
  await admin.json('/client/queue', { json: { envelopes } }, 202);
  await sink.until(({ messages }) => messages.length === 2);
  assert.equal(claims, 2, 'given back once');
});

test('what a store does not count exactly, or counted earlier, is shown so', async (t) => {
  const folder = join(await temporaryFolder(t), 'elsewhere');
  const { log } = rememberingLog();
  const at = Date.now() - 30_000;
  const store: RelayQueueStore = {
    open: async ({ bounds, owner, ready }) => {
      const queue = await openRelayQueue({ folder, clock: systemClock, log, owner, ready, ...bounds });
      const [list, statistics] = [queue.list.bind(queue), queue.statistics.bind(queue)];
      queue.list = async (options) => ({ ...(await list(options)), total: { least: 100_000 } });
      queue.statistics = async (now, filter) => {
        if (filter !== undefined) throw problem('unavailable');
        return { ...(await statistics(now)), at };
      };
      return queue;
    },
  };
  Object.assign(globalThis, { storeUnderTest: store });
  const sink = await SmtpSink.start(t, { steps: { rcpt: '450 4.2.0 Later' } });
  const routes = { out: { mx: ['127.0.0.1'], port: sink.port, tls: 'never', domains: ['b.example'] } };
  const plugins = JSON.stringify({ 'client-queue': { routes } });
  const config = `{ sitePlugins: ['./store.mjs'], plugins: ${plugins}, smtp: { listeners: ${freeListeners} } }`;
  const { admin } = await startInProcess(t, config, {}, (place) => writeFile(join(place, 'store.mjs'), plugin));
  const envelopes = [{ mail: 'ann@a.example', rcpt: ['bob@b.example'], text: 'Hi' }];
  await admin.json('/client/queue', { json: { envelopes } }, 202);
  const found = z
    .object({ total: z.number(), totalIsLeast: z.boolean(), statistics: z.object({ at: z.string() }) })
    .parse(await admin.json('/client/queue/list'));
  const time = new Date(at).toISOString();
  assert.deepEqual(found, { total: 100_000, totalIsLeast: true, statistics: { at: time } });
  for (const path of ['/client/queue/list', '/client/queue/statistics']) {
    const { text } = await admin.request(path, { headers: { accept: 'text/html' } });
    assert.match(text, /Counted <time/, path);
    if (path.endsWith('list')) assert.match(text, /more than 100,000/);
  }
  const filtered = await admin.request('/client/queue/list?sender=ann@a.example', { headers: { accept: 'text/html' } });
  assert.equal(filtered.status, 200);
  assert.match(filtered.text, /figures of the whole queue/);
});
