import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { openShell, type OpenedShell } from './opened-shell.js';

let opened: OpenedShell;
before(async () => {
  opened = await openShell();
});
after(() => opened.close());

const browser = {
  Accept: 'text/html,*/*;q=0.8',
  'Content-Type': 'application/x-www-form-urlencoded',
  'Sec-Fetch-Site': 'same-origin',
};
const post = (path: string, body: string, headers: Record<string, string> = {}) =>
  opened.get(path, { method: 'POST', body, headers: { ...browser, ...headers } });

test('a form is sent to the page of what it made, with a notice', async () => {
  const answer = await post('/items', 'name=caf%C3%A9&size=12&loud=on&tags=one');
  assert.equal(answer.status, 303);
  const location = answer.headers.get('location') ?? '';
  assert.match(location, /^\/items\/caf%C3%A9\?notice=[\w-]{12}$/);
  assert.deepEqual(opened.items.get('café'), { name: 'café', size: 12, loud: true, text: '', tags: ['one'] });
  const key = location.split('notice=')[1] ?? '';
  const html = await (await opened.get(`/items?notice=${key}`, { headers: { Accept: 'text/html' } })).text();
  assert.match(html, /role="status">café was added\./);
});

test('a notice cannot be forged, nor shown to another account', async () => {
  const html = async (path: string, as = 'boss') =>
    (await opened.get(path, { as, headers: { Accept: 'text/html' } })).text();
  assert.doesNotMatch(await html('/items?notice=%3Cb%3Eforged%3C%2Fb%3E'), /forged|class="notice"/);
  const answer = await post('/items', 'name=whose');
  const key = (answer.headers.get('location') ?? '').split('notice=')[1] ?? '';
  assert.doesNotMatch(await html(`/items?notice=${key}`, 'reader'), /whose was added/);
});

test('a script that posts the same form gets JSON and 201', async () => {
  const answer = await post('/items', 'name=scripted', { Accept: 'application/json' });
  assert.equal(answer.status, 201);
  assert.equal(answer.headers.get('location'), '/items/scripted');
});

test('a destructive form is asked first; its fields travel along; JSON callers are not asked', async () => {
  opened.items.set('doomed', { name: 'doomed', size: 0, loud: false, text: '', tags: [] });
  const asked = await post('/items/doomed', '_method=DELETE&note=%22%3E%3Cscript%3E', {
    Referer: `${opened.url}/items?q=d`,
  });
  const html = await asked.text();
  assert.equal(asked.status, 200);
  assert.match(html, /Remove this item\?/);
  assert.match(html, /name="_method" value="DELETE"/);
  assert.match(html, /href="\/items\?q=d"/);
  assert.doesNotMatch(html, /"><script>/);
  assert.ok(opened.items.has('doomed'));
  const done = await post('/items/doomed', '_method=DELETE&confirm=yes');
  assert.equal(done.status, 303);
  assert.match(done.headers.get('location') ?? '', /^\/items\?notice=/);
  assert.equal(opened.items.has('doomed'), false);
  opened.items.set('again', { name: 'again', size: 0, loud: false, text: '', tags: [] });
  assert.equal((await opened.get('/items/again', { method: 'DELETE' })).status, 200);
});

test('a destructive form whose sender reads no pages is refused until it says confirm=yes', async () => {
  opened.items.set('kept', { name: 'kept', size: 0, loud: false, text: '', tags: [] });
  for (const Accept of ['application/json', '*/*']) {
    const asked = await post('/items/kept', '_method=DELETE', { Accept });
    assert.equal(asked.status, 422);
    const { detail, errors } = (await asked.json()) as Record<string, unknown>;
    assert.equal(detail, 'Remove this item? Send confirm=yes to do it.');
    assert.deepEqual(errors, [{ pointer: '/confirm', message: 'must be yes' }]);
  }
  assert.ok(opened.items.has('kept'));
  assert.equal((await post('/items/kept', '_method=DELETE&confirm=yes', { Accept: '*/*' })).status, 200);
});

test('_method works in form bodies only, for PUT, PATCH and DELETE only, and needs the role of its target', async () => {
  opened.items.set('x', { name: 'x', size: 0, loud: false, text: '', tags: [] });
  assert.equal((await post('/items/x', '_method=GET')).status, 400);
  assert.equal(
    (
      await opened.get('/items?_method=DELETE', {
        method: 'POST',
        body: '{"name":"y"}',
        headers: { 'Content-Type': 'application/json' },
      })
    ).status,
    400,
  );
  const json = await opened.get('/items', {
    method: 'POST',
    body: '{"_method":"DELETE","name":"y"}',
    headers: { 'Content-Type': 'application/json' },
  });
  assert.equal(json.status, 422);
  const asOperator = await opened.get('/items', {
    as: 'operator',
    method: 'POST',
    body: '_method=DELETE&confirm=yes',
    headers: browser,
  });
  assert.equal(asOperator.status, 403);
  assert.ok(opened.items.has('x'));
});

test('a form without a target goes back to its page, never to another site', async () => {
  opened.items.set('b', { name: 'b', size: 0, loud: false, text: '', tags: [] });
  const back = async (referer: string) => {
    const answer = await post('/items/b', '_method=PUT&size=3', { Referer: referer });
    assert.equal(answer.status, 303);
    return answer.headers.get('location');
  };
  assert.equal(await back(`${opened.url}/items?q=b`), '/items?q=b');
  assert.equal(await back('http://evil.example/items'), '/items/b');
  assert.equal(await back(`${opened.url}//evil.example/`), '/items/b');
  assert.equal(opened.items.get('b')?.size, 3);
});

test('an invalid form that is on no page is answered by a page that names the fields', async () => {
  opened.items.set('b', { name: 'b', size: 0, loud: false, text: '', tags: [] });
  const answer = await post('/items/b', '_method=PUT&size=many');
  const html = await answer.text();
  assert.equal(answer.status, 422);
  assert.match(html, /<h1>Invalid content</);
  assert.match(html, /\/size: must be a number/);
});

test('every change and every refused one is on the audit trail, with what the endpoint says of it', async () => {
  const before = opened.audit.length;
  await post('/items', 'name=audited', { Accept: 'application/json', 'X-Request-Id': 'audited-request' });
  await opened.get('/items/x', { as: 'reader', method: 'DELETE' });
  await opened.get('/items');
  const [done, refused, ...more] = opened.audit.slice(before);
  assert.deepEqual(more, []);
  assert.deepEqual(
    { ...done, at: '' },
    {
      at: '',
      by: 'boss',
      from: '127.0.0.1',
      requestId: 'audited-request',
      method: 'POST',
      route: '/items',
      params: {},
      status: 201,
      action: 'add',
      counts: { items: 1 },
    },
  );
  assert.equal(refused?.['status'], 403);
  assert.equal(refused['by'], 'reader');
  assert.deepEqual(refused['params'], { name: 'x' });
});

test('a form that is refused comes back with what was written, if its endpoint says how', async () => {
  for (const [name, why] of [
    ['a/b', 'a/b: /name'],
    ['taken', 'taken: It is taken\\.'],
  ] as const) {
    const answer = await post('/notes', `name=${encodeURIComponent(name)}`);
    assert.equal(answer.status, 422);
    assert.match(await answer.text(), new RegExp(`name="q" value="${why}`));
    const script = await post('/notes', `name=${encodeURIComponent(name)}`, { Accept: 'application/json' });
    assert.equal(script.status, 422);
    assert.match(script.headers.get('content-type') ?? '', /problem\+json/);
  }
  const other = await post('/notes', 'name=there');
  assert.equal(other.status, 409);
  assert.doesNotMatch(await other.text(), /name="q"/);
});
