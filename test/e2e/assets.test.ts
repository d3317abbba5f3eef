import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startInProcess } from '../support/in-process-server.js';
import { until } from '../support/until.js';

test('a running server soon sends its assets compressed to clients that accept it', async (t) => {
  const server = await startInProcess(t);
  const page = await server.admin.request('/', { accept: 'text/html' });
  const [, path] = /href="(\/assets\/[^"]+\.css)"/.exec(page.text) ?? [];
  assert.ok(path !== undefined);
  const { base } = server;
  const encoded = await until('a compressed answer', async () => {
    const answer = await fetch(new URL(path, base), { headers: { 'Accept-Encoding': 'br' } });
    return answer.headers.get('content-encoding') === 'br' ? answer : undefined;
  });
  const plain = await fetch(new URL(path, base), { headers: { 'Accept-Encoding': 'identity' } });
  assert.equal(plain.headers.get('content-encoding'), null);
  assert.equal(await encoded.text(), await plain.text());
  assert.notEqual(encoded.headers.get('etag'), plain.headers.get('etag'));
});
