import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { z } from 'zod';
import { StatisticsAnswer } from '../../../plugins/client-queue/http/entry-answer.js';
import { JobAnswer } from '../../../plugins/client-queue/http/jobs.js';
import { MutationAnswer } from '../../../plugins/client-queue/http/mutations.js';
import { suiteEnding } from '../../support/ending.js';
import { type InProcessServer, startInProcess } from '../../support/in-process-server.js';
import { freeListeners } from '../../support/server-process.js';
import { until } from '../../support/until.js';

const suite = suiteEnding();
const routes = {
  one: { mx: ['127.0.0.1'], port: 1, domains: ['one.example'] },
  two: { mx: ['127.0.0.1'], port: 1, domains: ['two.example'] },
};
const config = `{ smtp: { listeners: ${freeListeners} }, plugins: { 'client-queue': ${JSON.stringify({ routes })} } }`;
const asForm = { accept: 'text/html' } as const;
/** More than forms act on at once. */
const many = 600;

describe('actions on the queue', () => {
  let server: InProcessServer;
  let shared: string;

  before(async () => {
    server = await startInProcess(suite, config);
    const { admin } = server;
    for (const name of ['one', 'two'])
      await admin.json(`/client/destinations/route:${name}`, { method: 'PUT', json: { suspendFor: 3600 } });
    const queue = async (mail: string, rcpt: readonly string[], count: number): Promise<string> => {
      const envelopes = Array.from({ length: count }, () => ({ mail, rcpt, subject: 'Hello', text: 'Hi' }));
      const { uids } = (await admin.json('/client/queue', { json: { envelopes } }, 202)) as { uids: string[] };
      return uids[0] ?? '';
    };
    for (let at = 0; at < many; at += 100) await queue('ann@one.example', ['bob@one.example'], 100);
    shared = await queue('Carl@one.example', ['bob@one.example', 'bob@two.example'], 1);
  });

  const job = async (id: string) => JobAnswer.parse(await server.admin.json(`/client/queue/jobs/${id}`));
  const heldEntries = async () =>
    StatisticsAnswer.parse(await server.admin.json('/client/queue/statistics')).byState.held;
  const sharedStates = async () => {
    const entry = (await server.admin.json(`/client/queue/${shared}`)) as { recipients: { state: string }[] };
    return entry.recipients.map(({ state }) => state);
  };
  const ended = (id: string) =>
    until('the end of the job', async () => {
      const now = await job(id);
      return now.state === 'running' ? undefined : now;
    });

  test('entries that were selected in a filtered list lose only the recipients that the filter matches', async () => {
    const { admin } = server;
    const form = { uids: shared, within: 'domain=two.example', operation: 'hold' };
    const answer = await admin.request('/client/queue/selection', { ...asForm, form });
    assert.equal(answer.status, 303);
    const page = await admin.page(answer.headers.get('location') ?? '');
    assert.match(page, /1 recipient in 1 message held. 1 other recipient of these messages stays as it is./);
    assert.deepEqual(await sharedStates(), ['queued', 'held']);
    const undo = /action="(\/client\/queue\/jobs\/\w+\/undo)"/.exec(page)?.[1] ?? '';
    assert.equal((await admin.request(undo, { ...asForm, form: {} })).status, 303);
    assert.deepEqual(await sharedStates(), ['queued', 'queued']);
    assert.equal((await admin.request(undo, { ...asForm, form: {} })).status, 409, 'only once');
  });

  test('a form for many entries starts a job, and its Undo releases what it has held and nothing else', async () => {
    const { admin } = server;
    await admin.json('/client/queue/hold', { json: { uid: shared, within: 'domain=one.example' } });
    const form = { filter: 'domain=one.example', confirm: 'yes', back: '/client/destinations/route:one' };
    const answer = await admin.request('/client/queue/hold', { ...asForm, form });
    const location = answer.headers.get('location') ?? '';
    assert.equal(answer.status, 303);
    assert.match(location, /^\/client\/queue\/jobs\/\w+$/);
    const id = location.split('/').at(-1) ?? '';
    const { state, done, total, recipients, otherRecipients, canUndo, selection } = await ended(id);
    assert.deepEqual([state, done, total, recipients, otherRecipients], ['done', many + 1, many + 1, many + 1, 1]);
    assert.deepEqual([canUndo, selection], [true, 'domain one.example']);
    assert.match(await admin.page(location), /601 of 601.*601 recipients in 601 messages held/s);
    assert.match(await admin.page('/client/queue/jobs'), new RegExp(`href="${location}"`));
    const undone = z
      .object({ recipients: z.int() })
      .parse(await admin.json(`${location}/undo`, { method: 'POST', json: {} }));
    assert.equal(undone.recipients, many);
    assert.deepEqual([await heldEntries(), await sharedStates()], [0, ['held', 'queued']], 'it was held before');
    await admin.json('/client/queue/release', { json: { uid: shared } });
  });

  test('within takes the criteria of recipients, and nothing that it would ignore', async () => {
    const { admin } = server;
    for (const within of ['', 'domain=', 'all=true', 'sender=someone@else.example', 'domain=two.example&state=held']) {
      const answer = await admin.request('/client/queue/delete', {
        accept: 'application/json',
        json: { uid: shared, within },
      });
      assert.equal(answer.status, 422, within);
      assert.match(answer.text, /"pointer":"\/within"/);
    }
    const filter = { domain: 'two.example' };
    const both = { filter, within: 'domain=two.example' };
    assert.equal((await admin.request('/client/queue/delete', { accept: 'application/json', json: both })).status, 422);
    assert.deepEqual(await sharedStates(), ['queued', 'queued']);
    const form = { filter: 'domain=two.example', within: 'domain=two.example', uids: shared, operation: 'retry' };
    const asked = await admin.request('/client/queue/selection', { ...asForm, form });
    assert.match(asked.text, /1 recipient in 1 message will be retried/, 'all that the list of a page has');
  });

  test('a time further away than a year is refused, such as milliseconds for seconds', async () => {
    const { admin } = server;
    for (const [operation, name] of [
      ['retry', 'at'],
      ['hold', 'until'],
    ] as const) {
      for (const time of [Date.now(), '9999-01-01T00:00:00Z']) {
        const json = { uid: shared, [name]: time };
        const { status, text } = await admin.request(`/client/queue/${operation}`, {
          accept: 'application/json',
          json,
        });
        assert.equal(status, 422);
        assert.match(text, new RegExp(`"pointer":"/${name}","message":"must be within a year from now`));
      }
    }
    await admin.json('/client/queue/retry', { json: { uid: shared, at: Math.floor(Date.now() / 1000) + 60 } });
  });

  test('If-Match does not go with a job, which could no longer answer 412', async () => {
    const headers = { 'If-Match': '"other"' };
    const json = { uid: shared, job: true };
    const { admin } = server;
    const { status } = await admin.request('/client/queue/delete', { accept: 'application/json', json, headers });
    assert.equal(status, 400);
  });

  test('a JSON call is answered when it is done, or with a job when it asks for one', async () => {
    const { admin } = server;
    const direct = MutationAnswer.parse(await admin.json('/client/queue/retry', { json: { filter: { all: true } } }));
    assert.deepEqual([direct.recipients, direct.messages], [many + 2, many + 1]);
    assert.equal(direct.summary, '602 recipients in 601 messages scheduled for retry.');
    const { status, headers, text } = await admin.request('/client/queue/retry', {
      accept: 'application/json',
      json: { filter: { all: true }, job: true },
    });
    const started = z.object({ job: JobAnswer }).parse(JSON.parse(text)).job;
    assert.deepEqual([status, headers.get('location')], [202, `/client/queue/jobs/${started.id}`]);
    assert.equal((await ended(started.id)).recipients, many + 2);
    assert.equal((await admin.request(`/client/queue/jobs/${started.id}/cancel`, { json: {} })).status, 409);
    assert.equal((await admin.request('/client/queue/jobs/none')).status, 404);
  });

  test('statistics are of what the filter matches, and name the senders with the most recipients', async () => {
    const { admin } = server;
    const whole = StatisticsAnswer.parse(await admin.json('/client/queue/statistics'));
    assert.deepEqual(whole.bySender, [
      { sender: 'ann@one.example', count: many, messages: many },
      { sender: 'carl@one.example', count: 2, messages: 1 },
    ]);
    const narrow = StatisticsAnswer.parse(await admin.json('/client/queue/statistics?domain=two.example'));
    assert.deepEqual(narrow.bySender, [{ sender: 'carl@one.example', count: 1, messages: 1 }]);
    assert.deepEqual(
      narrow.byDestination.map(({ destination, total }) => [destination, total]),
      [['route:two', 1]],
    );
    const page = await admin.page('/client/queue/list?domain=two.example');
    assert.match(page, /Only what the filter matches is counted here/);
    assert.match(page, /href="\/client\/queue\/list\?domain=two.example&amp;sender=carl%40one.example#entries"/);
    assert.doesNotMatch(await admin.page('/client/queue/list'), /Only what the filter matches/);
  });

  test('a destination offers actions for the mail that waits for it', async () => {
    const page = await server.admin.page('/client/destinations/route%3Atwo');
    assert.match(page, /action="\/client\/queue\/bounce"/);
    assert.match(page, /name="filter" value="destination=route%3Atwo"/);
    const form = { filter: 'destination=route%3Atwo', back: '/client/destinations/route%3Atwo' };
    const asked = await server.admin.request('/client/queue/bounce', { ...asForm, form });
    assert.match(asked.text, /1 recipient in 1 message will be bounced.*1 other recipient of these messages stays/s);
    assert.match(asked.text, /href="\/client\/destinations\/route%3Atwo"/);
  });
});
