import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { openShell, type OpenedShell } from './opened-shell.js';

let opened: OpenedShell;
before(async () => {
  opened = await openShell();
});
after(() => opened.close());

const post = async (path: string, body: string, headers: Record<string, string> = {}, as = 'boss') => {
  const answer = await opened.get(path, {
    as,
    method: 'POST',
    body,
    headers: {
      Accept: 'text/html,*/*;q=0.8',
      'Content-Type': 'application/x-www-form-urlencoded',
      'Sec-Fetch-Site': 'same-origin',
      ...headers,
    },
  });
  return { status: answer.status, headers: answer.headers, html: await answer.text() };
};

const tag = (html: string, name: string): string =>
  new RegExp(`<(?:input|textarea)[^>]* name="${name}"[^>]*>`).exec(html)?.[0] ?? '';

test('a refused form comes back on its page: each message beside its field, the input kept', async () => {
  const written = 'name=&size=many&loud=true&text=%0A%3C%2Ftextarea%3E%3Cb%3E%22';
  const { status, html, headers } = await post('/items', written, { Referer: `${opened.url}/items?q=xy` });
  assert.equal(status, 422);
  assert.equal(headers.get('cache-control'), 'no-store');
  assert.match(html, /^\s*<!doctype html>/);
  assert.match(html, /<h1>Items<\/h1>/);
  assert.match(tag(html, 'q'), /value="xy"/, 'the page as it was');
  assert.match(tag(html, 'name'), / aria-describedby="field-name-error field-name-hint"/);
  assert.match(tag(html, 'name'), / aria-invalid="true" autofocus/);
  assert.match(html, /<p class="error" id="field-name-error">Must not be empty\.</);
  assert.match(tag(html, 'size'), /value="many".* aria-invalid="true" aria-describedby="field-size-error"/);
  assert.equal(html.match(/id="field-size-error"/g)?.length, 1);
  assert.match(tag(html, 'loud'), / checked/);
  assert.match(html, /name="text" rows="3">\n\n&lt;\/textarea&gt;&lt;b&gt;"<\/textarea>/);
  assert.doesNotMatch(html, /class="error"[^]*class="error"[^]*class="error"/, 'no other form has a message');
});

test('what is wrong with no single field is said on top of the form, with the status of the refusal', async () => {
  opened.items.set('there', { name: 'there', size: 0, loud: false, text: '', tags: [] });
  const { status, html } = await post('/items', 'name=there', { Referer: `${opened.url}/items` });
  assert.equal(status, 409);
  assert.match(
    html,
    /<form class="form" id="new"[^>]*>(?:<input type="hidden"[^>]*>)?<div class="note"[^>]* role="alert"[^>]*><p>There is an item there already\.<\/p>/,
  );
  assert.match(tag(html, 'name'), /value="there"/);
});

test('a form on such a page says which page it is on, wherever it is sent to', async () => {
  const first = await post('/items', 'name=', { Referer: `${opened.url}/items?q=abc` });
  assert.match(tag(first.html, '_page'), /value="\/items\?q=abc"/);
  const page = encodeURIComponent('/items?q=abc');
  const second = await post('/items', `name=&_page=${page}`, { Referer: `${opened.url}/items/clear` });
  assert.equal(second.status, 422);
  assert.match(tag(second.html, 'q'), /value="abc"/);
  assert.equal(second.html.match(/name="_page"/g)?.length, first.html.match(/name="_page"/g)?.length);
  assert.equal((await post('/items', `name=now&_page=${page}`)).status, 303);
  const elsewhere = await post('/items', 'name=&_page=//evil.example/items', { Referer: `${opened.url}/items` });
  assert.doesNotMatch(elsewhere.html, /evil/);
});

test('where there is no such form the page of the problem is shown', async () => {
  opened.items.set('one', { name: 'one', size: 0, loud: false, text: '', tags: [] });
  for (const referer of ['/items', '/items/one', '/nowhere', '/items?order=wrong']) {
    const { status, html } = await post('/items/one', '_method=PUT&size=many', { Referer: `${opened.url}${referer}` });
    assert.equal(status, 422, referer);
    assert.match(html, /<h1>Invalid content<\/h1>/, referer);
  }
  const script = await post('/items', 'name=', { Accept: 'application/json' });
  assert.match(script.headers.get('content-type') ?? '', /problem\+json/);
});

test('htmx puts the page with what is wrong in the place of the page, not among the toasts', async () => {
  const htmx = { 'HX-Request': 'true', 'HX-Target': 'list' };
  for (const [path, body, sign] of [
    ['/items', 'name=', /id="field-name-error"/],
    ['/notes', 'name=taken', /name="q" value="taken: It is taken\./],
  ] as const) {
    const { status, html, headers } = await post(path, body, { ...htmx, Referer: `${opened.url}/items` });
    assert.equal(status, 422);
    assert.match(html, sign);
    assert.doesNotMatch(html, /<html/);
    assert.deepEqual(
      ['HX-Retarget', 'HX-Reswap', 'HX-Reselect'].map((name) => headers.get(name)),
      ['#content', 'innerHTML', 'unset'],
    );
  }
  const toast = await post('/items/clear', '', { ...htmx }, 'reader');
  assert.equal(toast.headers.get('HX-Retarget'), null);
});
