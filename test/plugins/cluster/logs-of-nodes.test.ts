import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { adminPassword } from '../../support/server-process.js';
import { suiteEnding } from '../../support/ending.js';
import { skipWithout } from '../../support/peers.js';
import { untilTrue } from '../../support/until.js';
import { OwnerSite } from './mailboxes/owner-site.js';

describe('the log of another node', { skip: skipWithout('postgres') }, () => {
  let site: OwnerSite;
  const ending = suiteEnding();
  before(async () => {
    // Nodes reach each other without dividing mailboxes.
    site = await OwnerSite.start(ending, ['mx1', 'mx2'], { mailboxes: 'elsewhere' });
    const asked = () => site.node('mx1').admin.request('/logs?node=mx2', { accept: 'application/json' });
    await untilTrue('mx1 knows mx2', async () => (await asked()).status === 200, 15_000);
  });

  test('is asked for as JSON, and as text', async () => {
    await site.node('mx2').admin.request('/health?format=json', { headers: { 'X-Request-Id': 'only-at-mx2' } });
    const { admin } = site.node('mx1');
    const path = '/logs?node=mx2&q=only-at-mx2';
    await untilTrue('it is written', async () => {
      const { items } = (await admin.json(path)) as { readonly items: readonly { readonly line: object }[] };
      return items.length === 1;
    });
    assert.match((await admin.request(`${path}&format=ndjson`)).text, /"requestId":"only-at-mx2"/);
    const { items } = (await admin.json('/logs?q=only-at-mx2&node=mx1')) as { readonly items: readonly object[] };
    assert.deepEqual(items, []);
  });

  test('has a page with the choice of a node, whose links stay at that node', async () => {
    const page = await site.node('mx1').admin.page('/logs?node=mx2');
    assert.match(page, /<option value="mx1">[^]*<option value="mx2" selected>/);
    assert.match(page, /href="\/logs\?at=[^"]*&amp;node=mx2"/);
    assert.match(page, /href="\/logs\?node=mx2&amp;live=on"/);
    assert.match(await site.node('mx1').admin.page('/logs'), /<option value="mx1" selected>[^]*<option value="mx2">/);
  });

  test('is followed as it is written', async () => {
    const authorization = `Basic ${btoa(`admin:${adminPassword}`)}`;
    const url = new URL('/logs/stream?node=mx2&q=followed-at-mx2', site.node('mx1').server.http);
    const stop = new AbortController();
    const response = await fetch(url, { headers: { Authorization: authorization }, signal: stop.signal });
    assert.equal(response.headers.get('content-type'), 'text/event-stream; charset=utf-8');
    await site.node('mx2').admin.request('/health?format=json', { headers: { 'X-Request-Id': 'followed-at-mx2' } });
    let text = '';
    for await (const chunk of response.body ?? assert.fail()) {
      text += Buffer.from(chunk as Uint8Array).toString();
      if (text.includes('followed-at-mx2"')) break;
    }
    stop.abort();
    assert.match(text, /event: line\ndata: \{.*"requestId":"followed-at-mx2"/);
  });

  test('is 404 for a node that is not known', async () => {
    const answer = await site.node('mx1').admin.request('/logs?node=mx9', { accept: 'application/json' });
    assert.equal(answer.status, 404);
    assert.match(answer.text, /No node calls itself mx9/);
  });

  test('names both nodes in the lines of a request', async () => {
    const { admin } = site.node('mx1');
    await admin.request('/logs?node=mx2&limit=1', { headers: { 'X-Request-Id': 'through-both' } });
    const fieldsAt = async (node: string): Promise<string> =>
      (await admin.request(`/logs?node=${node}&q=through-both&format=ndjson`)).text;
    await untilTrue('both are written', async () =>
      [await fieldsAt('mx1'), await fieldsAt('mx2')].every((lines) => lines.includes('"status":200')),
    );
    assert.match(await fieldsAt('mx1'), /"answeredBy":"mx2"/);
    assert.match(await fieldsAt('mx2'), /"account":"admin".*"via":"mx1"/);
  });

  test('is 503 with a sentence while the node is away', async () => {
    await site.node('mx2').server.kill('SIGKILL');
    const answer = await site.node('mx1').admin.request('/logs?node=mx2', { accept: 'text/html' });
    assert.equal(answer.status, 503);
    assert.match(answer.text, /The node mx2 has this, and does not answer now/);
    const metrics = await site.node('mx1').admin.request('/metrics/prometheus');
    assert.match(metrics.text, /postern_cluster_forwarded_requests_total\{node="mx2",status="away"\} 1/);
  });
});
