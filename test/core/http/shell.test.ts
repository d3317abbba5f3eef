import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { z } from 'zod';
import { defineEndpoint, respond } from '../../../core/http/endpoint.js';
import { openShell, type OpenedShell } from './opened-shell.js';

let opened: OpenedShell;
before(async () => {
  opened = await openShell();
});
after(() => opened.close());

const endpoint = (path: string, extra: object = {}) =>
  defineEndpoint({
    method: 'GET',
    path,
    summary: 'Extra',
    group: 'Extra',
    access: 'read',
    handle: () => ({}),
    ...extra,
  });

test('what a plugin mounts is there until it is undone', async () => {
  const undo = opened.shell.mount('extra', [endpoint('/extra')]);
  assert.equal((await opened.get('/extra')).status, 200);
  assert.ok(opened.shell.describe().some(({ path }) => path === '/extra'));
  undo();
  assert.equal((await opened.get('/extra')).status, 404);
});

test('a path that is taken, a malformed path and a missing view are start errors that name the plugin', () => {
  assert.throws(() => opened.shell.mount('extra', [endpoint('/items/{other}')]), /mounted twice.*demo.*extra/);
  assert.throws(() => opened.shell.mount('extra', [endpoint('/x/{a b}')]), /malformed/);
  assert.throws(
    () => opened.shell.mount('extra', [endpoint('/x', { view: 'none.njk' })]),
    /extra names the view none\.njk/,
  );
});

test('a view in an answer is looked for among the views of its plugin first, as the view of an endpoint', async () => {
  const page = (path: string, view: string) =>
    endpoint(path, {
      produces: ['html', 'json'],
      handle: () => respond({ view, model: { items: [], total: 7, q: 'near' } }),
    });
  const undo = opened.shell.mount('demo', [page('/own-view', 'list.njk'), page('/full-view', 'demo/list.njk')]);
  for (const path of ['/own-view', '/full-view']) {
    const answer = await opened.get(path, { headers: { Accept: 'text/html' } });
    assert.equal(answer.status, 200, path);
    assert.match(await answer.text(), /near/, path);
  }
  undo();
});

test('literal segments win over parameters', async () => {
  const undo = opened.shell.mount('extra', [endpoint('/items/list')]);
  assert.deepEqual(await (await opened.get('/items/list')).json(), {});
  undo();
});

test('assets have the hash of their content in their name and are immutable', async () => {
  const url = opened.shell.asset('app.css');
  assert.match(url, /^\/assets\/app\.[0-9a-f]{12}\.css$/);
  const answer = await opened.get(url, { as: null });
  assert.equal(answer.status, 200);
  assert.equal(answer.headers.get('cache-control'), 'public, max-age=31536000, immutable');
  const tag = answer.headers.get('etag') ?? '';
  assert.equal((await opened.get(url, { as: null, headers: { 'If-None-Match': tag } })).status, 304);
  assert.equal((await opened.get(url, { as: null, method: 'POST' })).status, 405);
  for (const path of [
    '/assets/app.css',
    '/assets/',
    '/assets/vendor',
    '/assets/../package.json',
    '/assets/%2e%2e/package.json',
  ]) {
    assert.notEqual((await opened.get(path, { as: null })).status, 200, path);
  }
});

test('the OpenAPI document has every endpoint, with its parameters and its access', async () => {
  const document = (await (await opened.get('/openapi.json')).json()) as {
    openapi: string;
    paths: Record<
      string,
      Record<string, { security: object[]; parameters?: { name: string }[]; requestBody?: object }>
    >;
  };
  assert.equal(document.openapi, '3.1.0');
  for (const { method, path } of opened.shell.describe())
    assert.ok(document.paths[path]?.[method.toLowerCase()], `${method} ${path}`);
  const item = document.paths['/items/{name}'];
  assert.deepEqual(
    item?.['put']?.parameters?.map(({ name }) => name),
    ['name', 'If-Match'],
  );
  assert.deepEqual(document.paths['/open']?.['get']?.security, [{}]);
  assert.ok(item?.['put']?.requestBody);
});

test('the docs page has an anchor and a curl call for every endpoint', async () => {
  const html = await (await opened.get('/docs', { headers: { Accept: 'text/html' } })).text();
  for (const { anchor, path } of opened.shell.describe()) {
    assert.ok(html.includes(`id="${anchor}"`), anchor);
    assert.ok(html.includes(`${path}&#39;`), path);
  }
});

test('large answers are compressed, and their tag is then a weak one', async () => {
  const undo = opened.shell.mount('extra', [
    endpoint('/large', { answer: z.unknown(), handle: () => ({ text: 'x'.repeat(5000) }) }),
  ]);
  const answer = await opened.get('/large', { headers: { 'Accept-Encoding': 'br' } });
  assert.equal(answer.headers.get('content-encoding'), 'br');
  assert.equal(((await answer.json()) as { text: string }).text.length, 5000);
  undo();
});

test('requests are counted by method, route and class of status', async () => {
  await opened.get('/items/none');
  const { body } = await opened.metrics.exposition.render('prometheus');
  assert.match(body, /postern_http_requests_total\{method="GET",route="\/items\/\{name\}",status="4xx"\} [1-9]/);
});

test('new rules hold at once', async () => {
  const { HttpOptions } = await import('../../../core/http/options.js');
  opened.shell.reconfigure(HttpOptions.parse({ port: 0, access: [{ match: '/words', public: true }] }));
  assert.equal((await opened.get('/words', { as: null })).status, 200);
  opened.shell.reconfigure(HttpOptions.parse({ port: 0 }));
  assert.equal((await opened.get('/words', { as: null })).status, 401);
});

test('a request is a line of the log; assets, and health that is well and asked without an account, only for debugging', async () => {
  let status = 200;
  const undo = opened.shell.mount('extra', [
    endpoint('/health', {
      access: 'public',
      success: [200, 503],
      handle: () => respond({ model: {}, status }),
    }),
  ]);
  const levelOf = async (path: string, init: Parameters<OpenedShell['get']>[1]): Promise<unknown> => {
    const answer = await opened.get(path, init);
    await answer.text();
    const id = answer.headers.get('x-request-id');
    const isOurs = ({ requestId, msg }: Readonly<Record<string, unknown>>): boolean =>
      requestId === id && msg === 'request';
    while (!opened.log.some(isOurs)) await new Promise(setImmediate);
    return opened.log.find(isOurs)?.['level'];
  };
  const [debug, info] = [20, 30];
  assert.equal(await levelOf('/open', { as: null }), info);
  assert.equal(await levelOf('/assets/app.css', { as: null }), debug);
  assert.equal(await levelOf('/health', { as: null }), debug);
  assert.equal(await levelOf('/health', {}), info);
  status = 503;
  assert.equal(await levelOf('/health', { as: null }), info);
  undo();
});
