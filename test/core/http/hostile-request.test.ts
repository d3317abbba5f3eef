import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { after, before, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { untilTrue } from '../../support/until.js';
import { basic, openShell, passwords, type OpenedShell } from './opened-shell.js';
import { rawExchange, rawRequest, statusOf } from './raw-exchange.js';

let opened: OpenedShell;
before(async () => {
  opened = await openShell({ http: { limits: { headersSeconds: 1, requestSeconds: 2 } } });
});
after(() => opened.close());

const authorization = `Authorization: ${basic('boss', passwords.boss)}`;
const get = (target: string, headers: readonly string[] = []) =>
  rawRequest(opened.port, 'GET', target, [authorization, ...headers]);

test('a path that can be read in two ways is refused', async () => {
  const names = [
    '..',
    '.',
    '%2e%2e',
    '%2E%2E',
    '..%2f..%2fetc%2fpasswd',
    'a%2fb',
    'a%5cb',
    'a\\b',
    '%c0%ae%c0%ae',
    '%ff',
    '%zz',
    '%',
    '%00',
    'a%00b',
    '%0d%0aX:y',
    '%0a',
    '%7f',
    '%c2%85',
    '%e2%80%ae',
    '%e2%80%8b',
    '%ed%a0%80',
    '%ef%bb%bf',
    'a#b',
    'caf\xc3\xa9',
  ];
  for (const name of names) {
    const answer = await get(`/items/${name}`);
    assert.equal(statusOf(answer), 400, `${name}: ${answer.slice(0, 80)}`);
  }
});

test('a name is decoded once, and no other spelling finds an endpoint', async () => {
  assert.match(await get('/items/caf%C3%A9'), /There is no item caf\xc3\xa9\./);
  assert.equal(statusOf(await get('/items/%252e%252e')), 400);
  for (const target of ['//items', '//items/', '/Items', '/items/a/b', '/items//a', '/items;a']) {
    assert.equal(statusOf(await get(target)), 404, target);
  }
  assert.equal(statusOf(await get('/%69tems')), 404);
});

test('what is too long has a status of its own', async () => {
  assert.equal(statusOf(await get(`/items/${'a'.repeat(9000)}`)), 414);
  assert.equal(statusOf(await get(`/items/${'a'.repeat(20_000)}`)), 431);
  assert.equal(statusOf(await get('/open', [`X-Long: ${'a'.repeat(20_000)}`])), 431);
  assert.equal(statusOf(await get(`/items/${'a'.repeat(4000)}`)), 400);
});

test('no second request can be hidden after a first', async () => {
  const hidden = 'GET /secret HTTP/1.1\r\nHost: localhost\r\n\r\n';
  const requests: Readonly<Record<string, readonly [headers: readonly string[], body: string]>> = {
    'length and chunked': [['Content-Length: 5', 'Transfer-Encoding: chunked'], `0\r\n\r\n${hidden}`],
    'chunked and length': [['Transfer-Encoding: chunked', 'Content-Length: 5'], `0\r\n\r\n${hidden}`],
    'two lengths': [['Content-Length: 5', 'Content-Length: 6'], `hello${hidden}`],
    'a signed length': [['Content-Length: +5'], `hello${hidden}`],
    'a list of lengths': [['Content-Length: 5, 5'], `hello${hidden}`],
    'a space before the colon': [['Content-Length : 5'], `hello${hidden}`],
    'another coding': [['Transfer-Encoding: chunked, identity'], `0\r\n\r\n${hidden}`],
    'an unknown coding': [['Transfer-Encoding: xchunked'], `0\r\n\r\n${hidden}`],
    'a folded field': [['Transfer-Encoding:', ' chunked'], `0\r\n\r\n${hidden}`],
    'a bare LF in a chunk extension': [['Transfer-Encoding: chunked'], `5;a\nb\r\nhello\r\n0\r\n\r\n${hidden}`],
    'a bad chunk size': [['Transfer-Encoding: chunked'], `0x5\r\nhello\r\n0\r\n\r\n${hidden}`],
  };
  for (const [name, [headers, body]] of Object.entries(requests)) {
    const seen = opened.log.filter(({ msg }) => msg === 'request').length;
    const head = [
      'POST /upload HTTP/1.1',
      'Host: localhost',
      authorization,
      'Content-Type: message/rfc822',
      ...headers,
    ];
    const answer = await rawExchange(opened.port, `${head.join('\r\n')}\r\n\r\n${body}`);
    assert.equal(statusOf(answer), 400, `${name}: ${answer.slice(0, 200)}`);
    assert.equal(answer.split('HTTP/1.1 ').length - 1, 1, name);
    assert.ok(opened.log.filter(({ msg }) => msg === 'request').length - seen <= 1, name);
  }
});

test('what is no HTTP gets one answer and the connection is closed', async () => {
  for (const text of [
    'EHLO localhost\r\n',
    '\x16\x03\x01\x00\xa5\x01',
    'GET /open\r\n\r\n',
    'GET  /open HTTP/1.1\r\n\r\n',
  ]) {
    assert.equal(statusOf(await rawExchange(opened.port, text)), 400, text);
  }
});

test('a request that came in time is answered, although the server was busy for longer than that', async () => {
  const body = '{}';
  const type = ['Content-Type: application/octet-stream', `Content-Length: ${body.length}`];
  const head = ['POST /upload HTTP/1.1', 'Host: localhost', authorization, 'Connection: close', ...type];
  const connections = () => opened.shell.figures()['connections'] ?? 0;
  const before = connections();
  const socket = connect(opened.port, '127.0.0.1');
  await untilTrue('the connection', () => socket.readyState === 'open' && connections() > before);
  // What comes next are the timers.
  await setImmediate();
  socket.write(`${head.join('\r\n')}\r\n\r\n${body}`);
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1600);
  assert.equal(statusOf(await text(socket)), 200);
});

test('a head or a body that does not come in time is 408', async () => {
  const slow = await Promise.all([
    rawExchange(opened.port, 'GET /open HTTP/1.1\r\nHost: localhost\r\n'),
    rawExchange(
      opened.port,
      `POST /upload HTTP/1.1\r\nHost: localhost\r\n${authorization}\r\nContent-Type: message/rfc822\r\nContent-Length: 10\r\n\r\nabc`,
    ),
  ]);
  assert.deepEqual(slow.map(statusOf), [408, 408]);
});

test('an unknown method is refused, and forwarded addresses are not believed', async () => {
  assert.ok([400, 405].includes(statusOf(await rawRequest(opened.port, 'TRACE', '/items', [authorization]))));
  await get('/open', ['X-Forwarded-For: 203.0.113.9', 'Forwarded: for=203.0.113.9']);
  assert.ok(opened.log.every((line) => !JSON.stringify(line).includes('203.0.113.9')));
});

test('credentials are never logged', async () => {
  await get('/items');
  await rawRequest(opened.port, 'GET', '/items', [`Authorization: ${basic('boss', 'planted-password')}`]);
  const text = JSON.stringify(opened.log);
  for (const secret of [passwords.boss, 'planted-password', basic('boss', passwords.boss).slice(6)]) {
    assert.equal(text.includes(secret), false);
  }
});
