import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { z } from 'zod';
import { shapeOf } from '../../../core/http/body.js';
import { defineEndpoint } from '../../../core/http/endpoint.js';
import { untilTrue } from '../../support/until.js';
import { basic, openShell, passwords, type OpenedShell } from './opened-shell.js';
import { rawExchange, rawRequest, statusOf } from './raw-exchange.js';

let opened: OpenedShell;
before(async () => {
  opened = await openShell();
});
after(() => opened.close());

const authorization = `Authorization: ${basic('boss', passwords.boss)}`;
const postJson = (body: string | Buffer, type = 'application/json') =>
  opened.get('/items', { method: 'POST', headers: { 'Content-Type': type }, body });

test('what is no JSON object is refused as unreadable, what is no item as invalid', async () => {
  const table: readonly (readonly [body: string | Buffer, status: number])[] = [
    ['{"name":', 400],
    ['', 422],
    ['null', 400],
    ['"text"', 400],
    ['NaN', 400],
    ['{"name":"x","size":NaN}', 400],
    ['\ufeff{"name":"x"}', 400],
    [Buffer.from('{"name":"x"}', 'utf16le'), 400],
    ['{"name":"x","__proto__":{"role":"admin"}}', 400],
    ['['.repeat(99_000), 400],
    ['['.repeat(90_000) + ']'.repeat(90_000), 400],
    ['{"name":"x","name":"y"}', 400],
    ['{"name":"x","n\\u0061me":"y"}', 400],
    ['{"tags":[{"a":1,"b":{"c":1,"c":{}}}],"name":"x"}', 400],
    ['{"name":"x","constructor":{"prototype":{}}}', 422],
    ['{"name":["x"]}', 422],
    ['{"name":"x","size":1e400}', 422],
    ['{"name":"x","size":-1}', 422],
    ['[]', 422],
  ];
  for (const [body, status] of table) {
    const answer = await postJson(body);
    assert.equal(answer.status, status, `${String(body).slice(0, 60)}: ${(await answer.text()).slice(0, 200)}`);
  }
  assert.equal(opened.items.size, 0);
  assert.equal(({} as Record<string, unknown>)['role'], undefined);
});

test('JSON that is none names application/json5 where that is taken', async () => {
  const undo = opened.shell.mount('cases', [
    defineEndpoint({
      method: 'POST',
      path: '/cases',
      summary: 'Cases',
      group: 'Cases',
      access: 'public',
      body: { kind: 'either', schema: z.object({}), types: ['application/json5'] },
      handle: () => ({}),
    }),
  ]);
  const body = '{ /* why */ }';
  const answer = await opened.get('/cases', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body });
  assert.equal(answer.status, 400);
  assert.match(await answer.text(), /is no JSON\. Send JSON5, with comments, as application\/json5\./);
  assert.doesNotMatch(await (await postJson(body)).text(), /json5/);
  undo();
});

test('an unknown query parameter is named once', async () => {
  const answer = await opened.get('/items?foo=bar&baz=1');
  const { detail, errors } = (await answer.json()) as {
    detail: string;
    errors: { pointer: string; message: string }[];
  };
  assert.equal(answer.status, 400);
  assert.equal(detail, 'Unknown query parameter: foo.');
  assert.deepEqual(errors, [
    { pointer: 'foo', message: detail },
    { pointer: 'baz', message: 'Unknown query parameter: baz.' },
  ]);
});

test('every invalid place is named by a JSON pointer', async () => {
  const answer = await postJson('{"name":"","size":1.5,"tags":["a",3]}');
  const { errors } = (await answer.json()) as { errors: { pointer: string }[] };
  assert.deepEqual(
    errors.map(({ pointer }) => pointer),
    ['/name', '/size', '/tags/1'],
  );
});

test('brackets and colons inside of strings do not count', () => {
  assert.deepEqual(shapeOf('{"a":"[[[[\\"[[[:"}'), { depth: 1, members: 1 });
  assert.deepEqual(shapeOf('[[{"a":[],"b:":{"c" : 1}}]]'), { depth: 4, members: 3 });
});

test('other charsets and encodings are not guessed', async () => {
  assert.equal((await postJson('{"name":"x"}', 'application/json; charset=utf-16')).status, 415);
  const zipped = await opened.get('/items', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', 'Content-Encoding': 'gzip' },
    body: 'x',
  });
  assert.equal(zipped.status, 415);
});

test('a body over the limit is refused by its length alone, and the connection is closed', async () => {
  const head = [authorization, 'Content-Type: application/json', 'Content-Length: 10485760'];
  const answer = await rawExchange(
    opened.port,
    `POST /items HTTP/1.1\r\nHost: localhost\r\n${head.join('\r\n')}\r\n\r\n`,
    (received) => received.includes('"status":413'),
  );
  assert.equal(statusOf(answer), 413);
  assert.match(answer, /Connection: close/);
});

test('a client that asks first is refused before it sends a body that is too large', async () => {
  const ask = (length: number, body: string) =>
    rawRequest(
      opened.port,
      'POST',
      '/items',
      [authorization, 'Content-Type: application/json', 'Expect: 100-continue', `Content-Length: ${length}`],
      body,
    );
  const large = await ask(10_485_760, '');
  assert.equal(statusOf(large), 413);
  const small = await ask(16, '{"name":"asked"}');
  assert.match(small, /^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 201/);
  opened.items.clear();
});

test('a chunked body is counted while it comes', async () => {
  const chunk = `4000\r\n${'x'.repeat(0x4000)}\r\n`;
  const headers = [authorization, 'Content-Type: message/rfc822', 'Transfer-Encoding: chunked'];
  const answer = await rawRequest(opened.port, 'POST', '/upload', headers, `${chunk.repeat(7)}0\r\n\r\n`);
  assert.equal(statusOf(answer), 413);
});

test('a raw body reaches the handler as a stream; other types do not', async () => {
  const send = (type: string) =>
    opened.get('/upload', { method: 'POST', headers: { 'Content-Type': type }, body: 'x'.repeat(5000) });
  assert.deepEqual(await (await send('message/rfc822')).json(), { size: 5000, names: [] });
  assert.equal((await send('image/png')).status, 415);
  assert.equal((await send('application/json')).status, 415);
});

test('an empty raw body is an empty stream', async () => {
  const answer = await opened.get('/upload', { method: 'POST', headers: { 'Content-Type': 'message/rfc822' } });
  assert.deepEqual(await answer.json(), { size: 0, names: [] });
});

test('uploaded files are gone after the answer, whatever it was, and their names are only text', async () => {
  const upload = async (files: readonly [name: string, size: number][]) => {
    const form = new FormData();
    for (const [name, size] of files) form.append('file', new Blob(['y'.repeat(size)]), name);
    return opened.get('/upload', { method: 'POST', body: form });
  };
  const two = await upload([
    ['../../evil.txt', 10],
    ['b', 20],
  ]);
  assert.deepEqual(await two.json(), { size: 30, names: ['../../evil.txt', 'b'] });
  assert.equal((await upload([['large', 200_000]])).status, 413);
  const many = await upload(Array.from({ length: 25 }, (_, index) => [`f${index}`, 1]));
  assert.equal(many.status, 413);
  assert.match(await many.text(), /"A form may have 20 files and 100 other fields at most\."/);
  assert.deepEqual(await readdir(join(opened.data, 'uploads')), []);
});

test('an upload that its client breaks off is no fault of the server, and leaves no file', async () => {
  const file = 'Content-Disposition: form-data; name="f"; filename="x"\r\nContent-Type: text/plain';
  const part = `--a\r\n${file}\r\n\r\nsome bytes`;
  const type = 'Content-Type: multipart/form-data; boundary=a';
  const head = ['POST /upload HTTP/1.1', 'Host: localhost', authorization, type, 'Content-Length: 10000'];
  const socket = connect(opened.port, '127.0.0.1', () => socket.write(`${head.join('\r\n')}\r\n\r\n${part}`));
  const uploads = join(opened.data, 'uploads');
  await untilTrue('the file', async () => (await readdir(uploads)).length > 0);
  socket.destroy();
  await untilTrue('no file', async () => (await readdir(uploads)).length === 0);
  await untilTrue('the line of the log', () => opened.log.some(({ complete }) => complete === false));
  await setImmediate();
  assert.deepEqual(
    opened.log.filter(({ msg }) => msg === 'request failed'),
    [],
  );
});

test('a multipart body with a wrong boundary is unreadable', async () => {
  const headers = { 'Content-Type': 'multipart/form-data; boundary=a' };
  const answer = await opened.get('/upload', { method: 'POST', headers, body: '--b\r\n\r\nx\r\n--b--\r\n' });
  assert.equal(answer.status, 400);
});

test('a part of a multipart body in an unknown transfer encoding is unreadable', async () => {
  const part = 'Content-Disposition: form-data; name="f"; filename="x"\r\nContent-Transfer-Encoding: banana\r\n\r\nx';
  const headers = { 'Content-Type': 'multipart/form-data; boundary=a' };
  const answer = await opened.get('/upload', { method: 'POST', headers, body: `--a\r\n${part}\r\n--a--\r\n` });
  assert.equal(answer.status, 400);
});

test('a query is typed by its schema, and what it does not know is refused', async () => {
  const table: readonly (readonly [query: string, status: number])[] = [
    ['limit=10', 200],
    ['limit=', 200],
    ['limit=0', 400],
    ['limit=-1', 400],
    ['limit=1e3', 400],
    ['limit=1000000000', 400],
    ['limit=NaN', 400],
    ['limit=1&limit=2', 400],
    ['loud=true&order=newest', 200],
    ['loud=maybe', 400],
    ['order=sideways', 400],
    ['unknown=1', 400],
    ['__proto__=1', 400],
    ['q=%zz', 400],
    ['q=%00', 400],
    ['q=%ff', 400],
    ['q=a+b%20c', 200],
    ['notice=x&format=json', 200],
  ];
  for (const [query, status] of table) assert.equal((await opened.get(`/items?${query}`)).status, status, query);
});
