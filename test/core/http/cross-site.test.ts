import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { basic, openShell, passwords, type OpenedShell } from './opened-shell.js';
import { rawExchange, rawRequest, statusOf } from './raw-exchange.js';

let opened: OpenedShell;
before(async () => {
  opened = await openShell({ http: { publicUrls: ['https://mail.example.org/'] } });
});
after(() => opened.close());

const authorization = `Authorization: ${basic('boss', passwords.boss)}`;
const post = (headers: readonly string[]) =>
  rawRequest(opened.port, 'DELETE', '/items', [authorization, 'Content-Length: 0', ...headers]);

test('unsafe methods are for pages of this server and for programs', async () => {
  const own = `http://127.0.0.1:${opened.port}`;
  const table: readonly (readonly [headers: readonly string[], status: number])[] = [
    [[], 200],
    [['Sec-Fetch-Site: same-origin'], 200],
    [['Sec-Fetch-Site: none'], 200],
    [['Sec-Fetch-Site: same-site'], 403],
    [['Sec-Fetch-Site: cross-site'], 403],
    [['Sec-Fetch-Site: nonsense'], 403],
    [['Sec-Fetch-Site: cross-site', `Origin: ${own}`], 403],
    [[`Origin: ${own}`], 200],
    [['Origin: https://mail.example.org'], 200],
    [['Origin: http://mail.example.org'], 403],
    [['Origin: null'], 403],
    [['Origin: http://127.0.0.1:1'], 403],
    [['Origin: http://evil.example'], 403],
    [[`Origin: ${own}.evil.example`], 403],
  ];
  for (const [headers, status] of table) assert.equal(statusOf(await post(headers)), status, headers.join(' + '));
});

test('a refused request has no effect, and a form of another site is refused before it is read', async () => {
  opened.items.set('kept', { name: 'kept', size: 0, loud: false, text: '', tags: [] });
  const form = {
    method: 'POST',
    headers: { 'Content-Type': 'application/x-www-form-urlencoded', 'Sec-Fetch-Site': 'cross-site' },
  };
  assert.equal((await opened.get('/items', { ...form, body: '_method=DELETE&confirm=yes' })).status, 403);
  assert.equal(opened.items.size, 1);
  opened.items.clear();
});

test('JSON under another name is not read', async () => {
  const answer = await opened.get('/items', {
    method: 'POST',
    headers: { 'Content-Type': 'text/plain' },
    body: '{"name":"x"}',
  });
  assert.equal(answer.status, 415);
  assert.equal(opened.items.size, 0);
});

test('only names of this server are answered', async () => {
  const table: readonly (readonly [host: string, status: number])[] = [
    ['127.0.0.1', 200],
    [`localhost:${opened.port}`, 200],
    ['LOCALHOST', 200],
    ['localhost.', 200],
    ['[::1]:8080', 200],
    ['mail.example.org', 200],
    ['evil.example', 421],
    ['127.0.0.1.evil.example', 421],
    ['localhost@evil.example', 421],
    ['evil.example:80#127.0.0.1', 421],
    ['', 421],
  ];
  for (const [host, status] of table) {
    const answer = await rawExchange(opened.port, `GET /open HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
    assert.equal(statusOf(answer), status, host);
  }
});

test('two Host fields are refused, and the host of an absolute target counts', async () => {
  const two = `GET /open HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n`;
  assert.equal(statusOf(await rawExchange(opened.port, two)), 400);
  assert.equal(statusOf(await rawRequest(opened.port, 'GET', 'http://localhost/open')), 200);
  assert.equal(statusOf(await rawRequest(opened.port, 'GET', 'http://evil.example/open')), 421);
});

test('HSTS is only for a host that is offered under https', async () => {
  const secure = await rawExchange(
    opened.port,
    'GET /open HTTP/1.1\r\nHost: mail.example.org\r\nConnection: close\r\n\r\n',
  );
  assert.match(secure, /Strict-Transport-Security: max-age=/);
  assert.doesNotMatch(await rawRequest(opened.port, 'GET', '/open'), /Strict-Transport-Security/);
});
