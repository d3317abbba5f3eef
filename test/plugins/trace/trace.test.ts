import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { z } from 'zod';
import { lines } from '../../support/delivery.js';
import { startInProcess } from '../../support/in-process-server.js';
import { freeListeners } from '../../support/server-process.js';
import { SmtpClient } from '../../support/smtp-client.js';
import { until } from '../../support/until.js';

const Traces = z.object({
  traces: z.array(
    z.object({
      id: z.string().nullable(),
      session: z.string(),
      states: z.array(z.string()),
      steps: z.array(z.object({ what: z.string(), detail: z.string(), href: z.string().nullable() })),
    }),
  ),
});
const List = z.object({ items: z.array(z.object({ id: z.string().nullable(), states: z.array(z.string()) })) });
const routes = JSON.stringify({ dead: { mx: ['127.0.0.1'], port: 1, domains: ['dead.example'] } });
const config = `{
  smtp: { listeners: ${freeListeners}, relayNetworks: ['127.0.0.0/8'] },
  plugins: { 'client-queue': { routes: ${routes} } },
}`;
const message = lines('From: anna@far.example', 'Message-ID: <One@far.example>', 'Subject: x', '', 'text');

/** Judges by the local part of the sender. */
const judge = `
import { definePlugin, discard, hold, next } from 'postern/plugin';
export const site = definePlugin({
  name: 'judge',
  setup({ smtp }) {
    smtp.on('message', {}, ({ transaction: { reversePath } }) =>
      ({ hold: hold('odd'), discard: discard('spam') })[reversePath?.local] ?? next());
  },
});
`;

async function send(port: number, from: string, to: readonly string[]): Promise<readonly number[]> {
  const client = await SmtpClient.greeted({ port });
  const codes: number[] = [(await client.command(`MAIL FROM:<${from}>`)).code];
  for (const address of to) codes.push((await client.command(`RCPT TO:<${address}>`)).code);
  if (!codes.some((code) => code >= 300)) codes.push((await client.data(message)).code);
  client.close();
  return codes;
}

suite('a trace', () => {
  test('has every step of a message, from the connection to the attempt, by each of its ids', async (t) => {
    const server = await startInProcess(t, config);
    const { admin } = server;
    const to = ['postmaster@localhost', 'bob@dead.example'];
    assert.deepEqual(await send(server.portOf('mx'), 'anna@far.example', to), [250, 250, 250, 250]);
    const trace = async (id: string) => Traces.parse(await admin.json(`/trace/${encodeURIComponent(id)}`)).traces[0];
    const found = await until('the attempt', async () => {
      const one = await trace('<one@FAR.example>').catch(() => undefined);
      return one?.steps.some(({ what }) => what === 'Deferred') === true ? one : undefined;
    });
    assert.deepEqual(
      found.steps.map(({ what }) => what),
      ['Connected', 'Accepted', 'Delivered', 'Queued', 'Deferred'],
    );
    assert.deepEqual(found.states, ['delivered', 'deferred']);
    assert.equal(found.steps[2]?.href, '/store/localhost/postmaster');
    assert.equal(found.steps[3]?.href, `/client/queue/${found.id}`);
    assert.match(found.steps[4]?.detail ?? '', /bob@dead\.example by relay, attempt 1: 451 4\.4\.1 .*refused/);
    for (const id of [found.id ?? '', found.session, `${found.id}-x`]) assert.equal((await trace(id))?.id, found.id);
    const { items } = List.parse(await admin.json('/trace?address=BOB@dead.example'));
    assert.deepEqual(items, [{ id: found.id, states: ['delivered', 'deferred'] }]);
    assert.deepEqual(List.parse(await admin.json('/trace')).items, [
      { id: found.id, states: ['delivered', 'deferred'] },
    ]);
    for (const [time, found] of [
      ['2020-01-01T00:00:00Z', 0],
      [new Date(Date.now() + 60_000).toISOString(), 1],
    ] as const)
      assert.equal(List.parse(await admin.json(`/trace?before=${time}`)).items.length, found);
    const later = `&since=${new Date(Date.now() + 60_000).toISOString()}`;
    for (const address of ['bob@dead.example', ''])
      assert.deepEqual(List.parse(await admin.json(`/trace?address=${address}${later}`)).items, []);
    assert.match(await admin.page(`/trace/${found.id}`), /anna@far\.example → postmaster@localhost, bob@dead\.example/);
    const one = await admin.request(`/trace?address=${found.id}`, { accept: 'text/html' });
    assert.deepEqual([one.status, one.headers.get('location')], [303, `/trace/${found.id}`]);
    assert.match(await admin.page(`/client/queue/${found.id}`), new RegExp(`href="/trace\\?address=${found.id}"`));
  });

  test('ends with the notice to the sender', async (t) => {
    const server = await startInProcess(t, config);
    const { admin } = server;
    assert.deepEqual(await send(server.portOf('mx'), 'postmaster@localhost', ['bob@dead.example']), [250, 250, 250]);
    const first = async () => Traces.parse(await admin.json('/trace/one@far.example')).traces[0];
    const { id } = await until('the trace', () => first().catch(() => undefined));
    await admin.json('/client/queue/bounce', { json: { uid: id } });
    const steps = await until('the notice', async () => {
      const found = (await first())?.steps ?? [];
      return found.some(({ what }) => what === 'Notice') ? found : undefined;
    });
    const last = steps.slice(-2).map(({ what }) => what);
    assert.deepEqual(last.toSorted(), ['Bounced', 'Notice']);
    for (const { href } of steps) if (href !== null) await admin.json(href);
    assert.equal(steps.find(({ what }) => what === 'Notice')?.href, '/store/localhost/postmaster');
  });

  test('shows what hooks hold and discard as that, and not as delivered', async (t) => {
    const server = await startInProcess(t, `{ sitePlugins: ['./judge.js'], ${config.slice(1)}`, {}, (folder) =>
      writeFile(join(folder, 'judge.js'), judge),
    );
    const { admin } = server;
    for (const sender of ['hold@far.example', 'discard@far.example'])
      assert.deepEqual(await send(server.portOf('mx'), sender, ['postmaster@localhost']), [250, 250, 250]);
    for (const [sender, state, step] of [
      ['hold@far.example', 'held', 'Held'],
      ['discard@far.example', 'discarded', 'Discarded'],
    ] as const) {
      const { items } = await until(state, async () => {
        const list = List.parse(await admin.json(`/trace?address=${sender}`));
        return list.items.length > 0 ? list : undefined;
      });
      assert.deepEqual(items[0]?.states, [state]);
      const { traces } = Traces.parse(await admin.json(`/trace/${items[0].id}`));
      const last = traces[0]?.steps.at(-1);
      assert.equal(last?.what, step);
      if (last.href !== null) await admin.json(last.href);
    }
  });

  test('shows a refused recipient, and nothing that is not known', async (t) => {
    const server = await startInProcess(t, config);
    const { admin } = server;
    assert.deepEqual(await send(server.portOf('mx'), '', ['none@localhost']), [250, 550]);
    const found = await until('the refusal', async () => {
      const { items } = List.parse(await admin.json('/trace?address=none@localhost'));
      return items.length > 0 ? items : undefined;
    });
    assert.deepEqual(found, [{ id: null, states: ['rejected'] }]);
    assert.equal((await admin.request('/trace/unknown', { accept: 'application/json' })).status, 404);
    assert.equal((await admin.request(`/trace/${'x'.repeat(999)}`, { accept: 'application/json' })).status, 400);
  });
});

test('without days there is no trace, and no page of it', async (t) => {
  const { admin } = await startInProcess(
    t,
    `{ smtp: { listeners: ${freeListeners} }, plugins: { trace: { traceDays: 0 } } }`,
  );
  assert.equal((await admin.request('/trace', { accept: 'application/json' })).status, 404);
});
