import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import type { QueueOutcome } from '../../../core/contracts/relay-queue-store.js';
import { outcomeEvent } from '../../../plugins/client-queue/delivery/relay-hook.js';
import { startInProcess } from '../../support/in-process-server.js';
import { newEntry } from '../../kit/relay-queue/entries.js';
import { freeListeners } from '../../support/server-process.js';
import { SmtpSink } from '../../support/smtp-sink.js';
import { until } from '../../support/until.js';

interface Told {
  readonly id: string;
  readonly status: string;
  readonly recipient: { readonly address: string };
  readonly reply: { readonly code: number; readonly text: string; readonly host: string | null } | null;
  readonly attempts: number;
  readonly nextAttemptAt: number | null;
  readonly target: string;
  /** Of the recipient in the queue when it was told. */
  readonly state: string;
}

interface Finished {
  readonly attempt: {
    readonly id: string;
    readonly destination: string;
    readonly attempts: number;
    readonly size: number;
  };
  readonly results: readonly Pick<Told, 'recipient' | 'status' | 'reply' | 'nextAttemptAt'>[];
  readonly host: string | null;
  readonly tls: string | null;
  readonly ms: number;
  /** The attempts that the queue knew when it was told. */
  readonly known: number;
}

/** Notes each outcome, and what the queue says of it then; two other watchers are of the worst kind. */
const watching = `
  import { defineEndpoint, definePlugin, service } from 'postern/plugin';
  const relayQueue = service('postern.relay-queue');
  const told = [];
  const finished = [];
  export const listening = definePlugin({
    name: 'listening',
    needs: { relayQueue },
    setup({ http, smtp }, { relayQueue }) {
      smtp.watch('outcome', () => { throw new Error('a bad watcher'); });
      smtp.watch('outcome', () => new Promise(() => {}));
      smtp.watch('attempted', () => { throw new Error('a bad watcher'); });
      smtp.watch('attempted', () => new Promise(() => {}));
      smtp.watch('attempted', async (event) => {
        const { history } = await relayQueue.find(event.attempt.id);
        finished.push({ ...event, known: history.length });
      });
      smtp.watch('outcome', async (outcome) => {
        const entry = await relayQueue.find(outcome.id);
        const { state } = entry.recipients.find(({ address }) => address === outcome.recipient.address);
        told.push({ ...outcome, state });
      });
      http.mount([defineEndpoint({
        method: 'GET', path: '/told', summary: 'Outcomes', group: 'Site', access: 'read',
        handle: () => ({ told, finished }),
      })]);
    },
  });
`;

test('an outcome is emitted once for each recipient and attempt, when it is on the disk', async (t) => {
  const sink = await SmtpSink.start(t, {
    steps: {
      rcpt: ({ line }) => (/defer/.test(line) ? '450 4.2.0 Later' : /refuse/.test(line) ? '550 5.1.1 No' : undefined),
    },
  });
  const routes = { out: { mx: ['127.0.0.1'], port: sink.port, tls: 'never', domains: ['out.example'] } };
  const plugins = JSON.stringify({ 'client-queue': { routes } });
  const config = `{ sitePlugins: ['./listening.mjs'], plugins: ${plugins}, smtp: { listeners: ${freeListeners} } }`;
  const { admin } = await startInProcess(t, config, {}, (folder) => writeFile(join(folder, 'listening.mjs'), watching));

  const told = async (uid: string, count: number): Promise<readonly Told[]> => {
    for (;;) {
      const answer = (await admin.json('/told')) as { readonly told: readonly Told[] };
      const those = answer.told.filter(({ id }) => id === uid);
      if (those.length >= count) return those;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  };
  const queued = async (): Promise<string> => {
    const envelopes = [{ mail: 'ann@elsewhere.example', rcpt, text: 'Hi' }];
    return ((await admin.json('/client/queue', { json: { envelopes } }, 202)) as { uid: string }).uid;
  };
  const rcpt = ['defer@out.example', 'refuse@out.example', 'take@out.example'];

  const uid = await queued();
  const [deferred, refused, taken] = (await told(uid, 3)).toSorted((one, other) =>
    one.recipient.address < other.recipient.address ? -1 : 1,
  );
  assert.deepEqual([taken?.status, taken?.state, taken?.target], ['delivered', 'delivered', 'relay']);
  assert.deepEqual([taken?.reply?.code, taken?.reply?.host], [250, '127.0.0.1']);
  assert.deepEqual([refused?.status, refused?.state, refused?.reply?.code], ['bounced', 'bounced', 550]);
  assert.deepEqual([deferred?.status, deferred?.state, deferred?.reply?.code], ['deferred', 'deferred', 450]);
  assert.ok((deferred?.nextAttemptAt ?? 0) > Date.now());
  assert.deepEqual([taken?.nextAttemptAt, refused?.nextAttemptAt], [null, null]);

  sink.script = {};
  await admin.json('/client/queue/retry', { json: { uid } });
  const again = (await told(uid, 4)).slice(3);
  assert.deepEqual(
    again.map(({ recipient, status, state, nextAttemptAt }) => [recipient.address, status, state, nextAttemptAt]),
    [[rcpt[0], 'delivered', 'delivered', null]],
  );

  sink.script = { steps: { mail: '451 4.3.0 Later' } };
  const other = await queued();
  assert.deepEqual(
    (await told(other, 3)).map(({ status, attempts }) => [status, attempts]),
    rcpt.map(() => ['deferred', 1]),
  );
  await admin.json('/client/queue/bounce', { json: { uid: other, reason: 'Enough' } });
  assert.deepEqual(
    (await told(other, 6)).slice(3).map(({ status, reply }) => [status, reply?.text, reply?.host]),
    rcpt.map(() => ['bounced', 'Enough', null]),
  );
});

test('an attempt is told once with its results when they are on the disk, whatever other watchers do', async (t) => {
  const sink = await SmtpSink.start(t, {
    steps: { rcpt: ({ line }) => (/defer/.test(line) ? '450 4.2.0 Later' : undefined) },
  });
  const routes = { out: { mx: ['127.0.0.1'], port: sink.port, tls: 'never', domains: ['out.example'] } };
  const plugins = JSON.stringify({ 'client-queue': { routes } });
  const config = `{ sitePlugins: ['./listening.mjs'], plugins: ${plugins}, smtp: { listeners: ${freeListeners} } }`;
  const { admin } = await startInProcess(t, config, {}, (folder) => writeFile(join(folder, 'listening.mjs'), watching));
  const rcpt = ['defer@out.example', 'take@out.example'];
  const envelopes = [{ mail: 'ann@elsewhere.example', rcpt, text: 'Hi' }];
  const { uid } = (await admin.json('/client/queue', { json: { envelopes } }, 202)) as { uid: string };
  const finished = (count: number) =>
    until(`attempt ${count}`, async () => {
      const { finished: all } = (await admin.json('/told')) as { readonly finished: readonly Finished[] };
      return all.length < count ? undefined : all;
    });

  const [first] = await finished(1);
  assert.ok(first);
  assert.deepEqual([first.attempt.id, first.attempt.destination, first.attempt.attempts], [uid, 'route:out', 0]);
  assert.match(first.host ?? '', /127\.0\.0\.1/);
  assert.deepEqual([first.tls, first.known], [null, 1]);
  assert.ok(first.attempt.size > 0);
  assert.deepEqual(
    first.results.map(({ recipient, status, reply }) => [recipient.address, status, reply?.code]),
    [
      [rcpt[0], 'deferred', 450],
      [rcpt[1], 'delivered', 250],
    ],
  );

  sink.script = {};
  await admin.json('/client/queue/retry', { json: { uid } });
  const [, second, ...others] = await finished(2);
  assert.deepEqual(
    second?.results.map(({ recipient, status, nextAttemptAt }) => [recipient.address, status, nextAttemptAt]),
    [[rcpt[0], 'delivered', null]],
  );
  assert.equal(others.length, 0);
});

test('the outcome of mail for a mailbox of this server names that target', () => {
  const accepted = newEntry(0, { envelopeId: 'mine' });
  const about: QueueOutcome = {
    uid: accepted.uid,
    sender: null,
    address: 'bob@example.org',
    destination: 'target:store',
    state: 'held',
    reply: null,
    hold: 'Nobody can be told.',
    attempts: 2,
    nextAttempt: null,
    at: 5,
    accepted: () => accepted,
  };
  const { recipient, reversePath, target, reason, envelopeId } = outcomeEvent(about);
  assert.deepEqual(
    [recipient.address, reversePath, target, reason, envelopeId],
    ['bob@example.org', null, 'store', 'Nobody can be told.', 'mine'],
  );
});
