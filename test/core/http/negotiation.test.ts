import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { negotiate, prefersHtml } from '../../../core/http/negotiation.js';
import { openShell, type OpenedShell } from './opened-shell.js';

const browser = 'text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8';
const scraper =
  'application/openmetrics-text;version=1.0.0;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1';

describe('a representation is chosen by Accept', () => {
  const table = [
    ['', 'json'],
    ['*/*', 'json'],
    ['application/json', 'json'],
    ['text/html', 'html'],
    [browser, 'html'],
    ['text/html, application/json', 'json'],
    ['text/html;q=0.5, application/json', 'json'],
    ['text/html, application/json;q=0.5', 'html'],
    ['application/*', 'json'],
    ['text/*', 'html'],
    ['TEXT/HTML', 'html'],
    ['text/html;q=0, */*', 'json'],
  ] as const;
  for (const [accept, expected] of table) {
    test(`"${accept}" gets ${expected}`, () => {
      assert.equal(negotiate(['html', 'json'], 'json', { accept, format: undefined, htmx: false }), expected);
    });
  }

  test('a wildcard gets the page where the page is the fallback', () => {
    assert.equal(negotiate(['html', 'json'], 'html', { accept: '*/*', format: undefined, htmx: false }), 'html');
  });

  test('a Prometheus scraper gets OpenMetrics before the page', () => {
    const wish = { accept: scraper, format: undefined, htmx: false };
    assert.equal(negotiate(['html', 'json', 'text', 'openmetrics'], 'html', wish), 'openmetrics');
  });

  test('bytes fit every Accept', () => {
    assert.equal(negotiate(['bytes'], 'bytes', { accept: 'image/png', format: undefined, htmx: false }), 'bytes');
  });

  test('an error is a page only for clients that accept pages', () => {
    assert.deepEqual([browser, '*/*', '', 'application/json', 'text/*'].map(prefersHtml), [
      true,
      false,
      false,
      false,
      false,
    ]);
  });
});

describe('over HTTP', () => {
  let opened: OpenedShell;
  before(async () => {
    opened = await openShell();
  });
  after(() => opened.close());

  const table: readonly (readonly [path: string, headers: Record<string, string>, status: number, type: string])[] = [
    ['/items', {}, 200, 'application/json'],
    ['/items', { Accept: browser }, 200, 'text/html'],
    ['/items?format=html', { Accept: 'application/json' }, 200, 'text/html'],
    ['/items?format=json', { Accept: 'text/html' }, 200, 'application/json'],
    ['/items', { 'HX-Request': 'true' }, 200, 'text/html'],
    ['/items', { Accept: 'image/png' }, 406, 'application/problem+json'],
    ['/items?format=text', {}, 406, 'application/problem+json'],
    ['/items?format=pdf', {}, 400, 'application/problem+json'],
    ['/items?format=constructor', {}, 400, 'application/problem+json'],
    ['/items?format=json&format=html', {}, 400, 'application/problem+json'],
    ['/words', {}, 200, 'text/plain'],
    ['/words', { Accept: 'application/json' }, 200, 'application/json'],
    ['/items/none', { Accept: browser }, 404, 'text/html'],
    ['/items/none', { 'HX-Request': 'true' }, 404, 'text/html'],
  ];
  for (const [path, headers, status, type] of table) {
    test(`${path} with ${JSON.stringify(headers)} answers ${status} ${type}`, async () => {
      const answer = await opened.get(path, { headers });
      assert.equal(answer.status, status);
      assert.ok(answer.headers.get('content-type')?.startsWith(type), String(answer.headers.get('content-type')));
      assert.match(answer.headers.get('vary') ?? '', /Accept, HX-Request/);
    });
  }

  test('htmx gets the view without the page around it, a restored history entry the whole page', async () => {
    const fragment = await (await opened.get('/items', { headers: { 'HX-Request': 'true' } })).text();
    const headers = { 'HX-Request': 'true', 'HX-History-Restore-Request': 'true' };
    const whole = await (await opened.get('/items', { headers })).text();
    assert.doesNotMatch(fragment, /<html/);
    assert.match(fragment, /<h1>Items<\/h1>/);
    assert.match(whole, /<html/);
  });

  test('HEAD answers like GET without a body', async () => {
    const [head, get] = [await opened.get('/items', { method: 'HEAD' }), await opened.get('/items')];
    assert.equal(head.status, 200);
    assert.equal(await head.text(), '');
    assert.equal(head.headers.get('content-type'), get.headers.get('content-type'));
  });

  test('a list names its next page in a Link field', async () => {
    for (const name of ['a', 'b', 'c']) opened.items.set(name, { name, size: 0, loud: false, text: '', tags: [] });
    const answer = await opened.get('/items?limit=2&q=');
    assert.equal(answer.headers.get('link'), '</items?limit=2&q=&cursor=c2>; rel="next"');
    // A question mark may stand in a query as it is (RFC 3986 §3.4).
    opened.items.set('who?', { name: 'who?', size: 0, loud: false, text: '', tags: [] });
    opened.items.set('why?', { name: 'why?', size: 0, loud: false, text: '', tags: [] });
    const asked = await opened.get('/items?q=?&limit=1');
    assert.equal(asked.headers.get('link'), '</items?q=%3F&limit=1&cursor=c2>; rel="next"');
    opened.items.clear();
  });
});
