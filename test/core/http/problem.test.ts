import assert from 'node:assert/strict';
import { STATUS_CODES } from 'node:http';
import { after, before, test } from 'node:test';
import { defineEndpoint } from '../../../core/http/endpoint.js';
import { problemDocument } from '../../../core/http/shell/problem-boundary.js';
import { problem, type ProblemName, problems } from '../../../core/problem.js';
import { openShell, type OpenedShell } from './opened-shell.js';

let opened: OpenedShell;
before(async () => {
  opened = await openShell();
});
after(() => opened.close());

const page = { Accept: 'text/html,application/xhtml+xml,*/*;q=0.8' };

test('a problem is RFC 9457 with the id of the request', async () => {
  const answer = await opened.get('/items/none', { headers: { 'X-Request-Id': 'from-the-client.1' } });
  assert.equal(answer.status, 404);
  assert.deepEqual(await answer.json(), {
    type: 'about:blank',
    title: 'Not Found',
    status: 404,
    detail: 'There is no item none.',
    requestId: 'from-the-client.1',
  });
  assert.equal(answer.headers.get('x-request-id'), 'from-the-client.1');
  assert.equal(answer.headers.get('cache-control'), 'no-store');
});

test('the title of about:blank is the phrase of the status; what says more is the detail', async () => {
  for (const [path, status] of [
    ['/nowhere', 401],
    ['/items/none', 404],
    ['/broken', 500],
    ['/open?unknown=1', 400],
  ] as const) {
    const answer = await opened.get(path, path === '/nowhere' ? { as: null } : {});
    const { type, title, detail } = (await answer.json()) as Record<string, string>;
    assert.deepEqual([answer.status, type, title], [status, 'about:blank', STATUS_CODES[status]]);
    assert.match(detail ?? '', /\.$/);
  }
  for (const [name, { http, title }] of Object.entries(problems)) {
    const document = problemDocument(problem(name as ProblemName), 'id');
    assert.deepEqual([document.title, document.detail], [STATUS_CODES[http], `${title}.`]);
  }
});

test('a request id with other characters is replaced', async () => {
  for (const id of ['short', 'a'.repeat(65), '<script>alert(1)</script>', 'with space here']) {
    const answer = await opened.get('/open', { headers: { 'X-Request-Id': id } });
    assert.match(answer.headers.get('x-request-id') ?? '', /^[0-9a-f-]{36}$/);
  }
});

test('a full mailbox is a refusal, not a failed request', async () => {
  const full = { summary: 'Full', group: 'Demo', access: 'public' } as const;
  const handle = () => Promise.reject(problem('mailbox-full'));
  const unmount = opened.shell.mount('full', [defineEndpoint({ ...full, method: 'GET', path: '/full', handle })]);
  const answer = await opened.get('/full', { headers: { 'X-Request-Id': 'full-mailbox' } });
  unmount();
  assert.equal(answer.status, 507);
  const lines = opened.log.filter(({ requestId }) => requestId === 'full-mailbox');
  assert.deepEqual(
    lines.map(({ msg }) => msg),
    ['request'],
  );
});

test('an unexpected error says nothing but its request id, and the log has the cause under it', async () => {
  const answer = await opened.get('/broken');
  const body = (await answer.json()) as Record<string, unknown>;
  assert.equal(answer.status, 500);
  assert.doesNotMatch(JSON.stringify(body), /secret|\/var|stack/);
  const line = opened.log.find(({ requestId, msg }) => requestId === body['requestId'] && msg === 'request failed');
  assert.match(JSON.stringify(line?.['err']), /the secret path/);
});

test('the error page is drawn from the same problem, escapes it and offers a way back', async () => {
  const path = '/items/%3Cimg%20src=x%3E';
  const answer = await opened.get('/items/nothere', { headers: { ...page, Referer: `${opened.url}/items?q=x` } });
  const html = await answer.text();
  assert.equal(answer.status, 404);
  assert.match(html, /There is no item nothere\./);
  assert.match(html, /href="\/items\?q=x"/);
  assert.doesNotMatch(await (await opened.get(path, { headers: page })).text(), /<img src=x/);
});

test('the way back never leads to another site', async () => {
  const html = await (
    await opened.get('/items/none', { headers: { ...page, Referer: 'http://evil.example/x' } })
  ).text();
  assert.doesNotMatch(html, /evil/);
});

test('htmx gets a toast with the same sentence', async () => {
  const answer = await opened.get('/items/none', { headers: { 'HX-Request': 'true' } });
  const html = await answer.text();
  assert.equal(answer.status, 404);
  assert.match(html, /class="toast"/);
  assert.doesNotMatch(html, /<html|<title/);
});

test('405 says what the address is for, and which page may be meant', async () => {
  const answer = await opened.get('/notes');
  assert.equal(answer.status, 405);
  assert.equal(answer.headers.get('allow'), 'POST, OPTIONS');
  const { detail, instead } = (await answer.json()) as Record<string, unknown>;
  assert.deepEqual([detail, instead], ['This address is not for GET. POST: Add a note.', undefined]);
  const clear = await opened.get('/items/clear');
  assert.deepEqual([clear.status, clear.headers.get('allow')], [405, 'POST, OPTIONS'], 'no item has that name');
  const said = (await clear.json()) as Record<string, unknown>;
  assert.equal(said['detail'], 'This address is not for GET. POST: Remove all items at once.');
  assert.deepEqual(said['instead'], [{ href: '/items', title: 'List the items' }]);
  const html = await (await opened.get('/items/clear', { headers: page })).text();
  assert.match(html, /<a [^>]*href="\/items"[^>]*>List the items<\/a>/);
  await opened.get('/items', { method: 'POST', body: new URLSearchParams({ name: 'clear' }) });
  assert.equal((await opened.get('/items/clear')).status, 200, 'an item has that name');
  await opened.get('/items/clear', { method: 'DELETE' });
  assert.equal((await opened.get('/items/none', { method: 'DELETE' })).status, 404);
});

test('405 names the methods, OPTIONS too, and neither speaks of other origins', async () => {
  const answer = await opened.get('/items', {
    method: 'PATCH',
    body: '{}',
    headers: { 'Content-Type': 'application/json' },
  });
  assert.equal(answer.status, 405);
  assert.equal(answer.headers.get('allow'), 'GET, HEAD, POST, DELETE, OPTIONS');
  const options = await opened.get('/items', {
    method: 'OPTIONS',
    headers: { Origin: 'http://evil.example', 'Access-Control-Request-Method': 'POST' },
  });
  assert.equal(options.status, 204);
  assert.equal(options.headers.get('allow'), 'GET, HEAD, POST, DELETE, OPTIONS');
  assert.deepEqual(
    [...options.headers.keys()].filter((name) => name.startsWith('access-control')),
    [],
  );
});

test('every answer has the security headers, errors and assets included', async () => {
  const paths = ['/items', '/items/none', '/broken', opened.shell.asset('app.css'), '/nothing'];
  for (const path of paths) {
    const { headers } = await opened.get(path, { headers: page });
    const policy = headers.get('content-security-policy') ?? '';
    assert.match(policy, /default-src 'none'.*frame-ancestors 'none'/, path);
    assert.doesNotMatch(policy, /unsafe/);
    assert.equal(headers.get('x-frame-options'), 'DENY');
    assert.equal(headers.get('x-content-type-options'), 'nosniff');
    assert.equal(headers.get('referrer-policy'), 'same-origin');
    assert.equal(headers.get('strict-transport-security'), null);
  }
});

test('pages hold no inline script or style', async () => {
  for (const path of ['/items', '/docs', '/nothing']) {
    const html = await (await opened.get(path, { headers: page })).text();
    assert.doesNotMatch(html, /<style|style="|<script(?![^>]* src=)|\son[a-z]+="/);
  }
});

test('secrets are not stored by anybody, the rest is revalidated', async () => {
  assert.equal((await opened.get('/secret')).headers.get('cache-control'), 'no-store');
  assert.equal((await opened.get('/items')).headers.get('cache-control'), 'private, no-cache');
});
