import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { safeBytes } from '../../../core/http/response.js';
import { until } from '../../support/until.js';
import { openShell, type OpenedShell } from './opened-shell.js';

let opened: OpenedShell;
before(async () => {
  opened = await openShell();
});
after(() => opened.close());

test('one range is served, nonsense is the whole, and beyond the end is 416', async () => {
  const whole = '0123456789abcdefghij';
  const table: readonly (readonly [range: string, status: number, body: string | undefined, field: string | null])[] = [
    ['bytes=0-4', 206, '01234', 'bytes 0-4/20'],
    ['bytes=15-', 206, 'fghij', 'bytes 15-19/20'],
    ['bytes=-3', 206, 'hij', 'bytes 17-19/20'],
    ['bytes=-100', 206, whole, 'bytes 0-19/20'],
    ['bytes=18-1000', 206, 'ij', 'bytes 18-19/20'],
    ['bytes=20-', 416, undefined, 'bytes */20'],
    ['bytes=-0', 416, undefined, 'bytes */20'],
    ['bytes=4-2', 200, whole, null],
    ['bytes=0-1,3-4', 200, whole, null],
    ['bytes=a-b', 200, whole, null],
    ['lines=0-1', 200, whole, null],
  ];
  for (const [range, status, body, field] of table) {
    const answer = await opened.get('/bytes', { headers: { Range: range } });
    assert.equal(answer.status, status, range);
    assert.equal(answer.headers.get('content-range'), field, range);
    const text = await answer.text();
    if (body !== undefined) assert.equal(text, body, range);
  }
});

test('a range of what has changed since is the whole', async () => {
  const ask = (tag: string) => opened.get('/bytes', { headers: { Range: 'bytes=0-1', 'If-Range': tag } });
  assert.equal((await ask('"twenty"')).status, 206);
  assert.equal((await ask('"other"')).status, 200);
});

test('HEAD tells the length of the whole: a range is for GET alone', async () => {
  for (const range of ['', 'bytes=0-4', 'bytes=20-']) {
    const head = await opened.get('/bytes', { method: 'HEAD', headers: { Range: range } });
    assert.equal(head.status, 200, range);
    assert.equal(head.headers.get('content-length'), '20');
    assert.equal(head.headers.get('content-range'), null);
    assert.equal(head.headers.get('accept-ranges'), 'bytes');
  }
});

test('what a source holds open is closed, however little of it is sent', async () => {
  for (const [status, init] of [
    [200, {}],
    [200, { method: 'HEAD' }],
    [206, { headers: { Range: 'bytes=0-4' } }],
    [304, { headers: { 'If-None-Match': '"twenty"' } }],
    [416, { headers: { Range: 'bytes=20-' } }],
  ] as const) {
    const before = opened.closed();
    const answer = await opened.get('/bytes', init);
    await answer.arrayBuffer();
    assert.equal(answer.status, status);
    await until('the source to be closed', () => (opened.closed() === before ? undefined : true));
  }
});

test('what could act in a browser goes out to be saved, as octets or as plain text, everything under a sandbox', async () => {
  for (const [type, sent] of [
    ['text/html', 'text/plain; charset=utf-8'],
    ['image/svg+xml', 'application/octet-stream'],
    ['application/xhtml+xml', 'application/octet-stream'],
    ['text/xml', 'text/plain; charset=utf-8'],
    ['application/pdf', 'application/pdf'],
    ['text/javascript', 'text/plain; charset=utf-8'],
    ['application/javascript', 'application/octet-stream'],
    ['nonsense', 'application/octet-stream'],
  ] as const) {
    const { headers } = await opened.get(`/bytes?type=${encodeURIComponent(type)}`);
    assert.equal(headers.get('content-type'), sent, type);
    assert.equal(headers.get('x-content-type-options'), 'nosniff');
    assert.match(headers.get('content-disposition') ?? '', /^attachment/);
    assert.match(headers.get('content-security-policy') ?? '', /default-src 'none'.*sandbox$/);
  }
  assert.match((await opened.get('/bytes?type=image/png')).headers.get('content-disposition') ?? '', /^inline/);
});

test('a file name cannot leave its field', () => {
  const { disposition } = safeBytes('image/png', 'a"\r\nSet-Cookie: x\u202e ü;.html', 'attachment');
  assert.equal(
    disposition,
    'attachment; filename="a___Set-Cookie: x_ __.html"; filename*=UTF-8\'\'a%22__Set-Cookie%3A%20x_%20%C3%BC%3B.html',
  );
});

test('an entity tag saves the second transfer and guards a change', async () => {
  opened.items.set('t', { name: 't', size: 1, loud: false, text: '', tags: [] });
  const tag = (await opened.get('/items/t')).headers.get('etag') ?? '';
  assert.equal(tag, '"t-1"');
  const cached = await opened.get('/items/t', { headers: { 'If-None-Match': `"x", W/${tag}` } });
  assert.equal(cached.status, 304);
  assert.equal(await cached.text(), '');
  const put = (match: string) =>
    opened.get('/items/t', {
      method: 'PUT',
      body: '{"size":2}',
      headers: { 'Content-Type': 'application/json', 'If-Match': match },
    });
  assert.equal((await put('"old"')).status, 412);
  assert.equal(opened.items.get('t')?.size, 1);
  const changed = await put(tag);
  assert.equal(changed.status, 200);
  assert.equal(changed.headers.get('etag'), '"t-2"');
});
