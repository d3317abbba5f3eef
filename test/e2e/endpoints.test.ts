import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import type { EndpointDescription } from '../../core/contracts/server.js';
import { suiteEnding } from '../support/ending.js';
import { HttpClient } from '../support/http-client.js';
import { startInProcess, type InProcessServer } from '../support/in-process-server.js';

const suite = suiteEnding();

/** What anybody may ask. A new public endpoint has to be named here. */
const publicPaths = [
  '/.well-known/acme-challenge/{token}',
  '/.well-known/mta-sts.txt',
  '/favicon.ico',
  '/health',
  '/sign-in',
  '/sign-out',
];

describe('every endpoint', () => {
  let server: InProcessServer;
  let endpoints: readonly EndpointDescription[];

  before(async () => {
    server = await startInProcess(suite);
    endpoints = server.server.app.http.describe();
  });

  /** The path with a value in place of each parameter. */
  const example = ({ path }: EndpointDescription) =>
    path
      .replace('{domain}', 'localhost')
      .replace('{user}', 'postmaster')
      .replace(/\{[^}]+\}/g, 'x');

  test('is one of those that the plugins mount', () => {
    const paths = endpoints.map(({ path }) => path);
    for (const path of ['/', '/health', '/store', '/users', '/config', '/metrics/prometheus']) {
      assert.ok(paths.includes(path), path);
    }
  });

  test('asks a stranger to sign in, with the same answer everywhere, unless it is public', async () => {
    const stranger = new HttpClient(server.base);
    for (const endpoint of endpoints.filter(({ path }) => !publicPaths.includes(path))) {
      const { status, headers } = await stranger.request(example(endpoint), { method: endpoint.method });
      assert.equal(status, 401, `${endpoint.method} ${endpoint.path}`);
      assert.match(headers.get('www-authenticate') ?? '', /^Basic realm="[^"]+", charset="UTF-8"$/);
    }
  });

  test('knows neither a wrong password nor a mail user', async () => {
    for (const [username, password] of [
      ['admin', 'wrong'],
      ['admin', ''],
      ['postmaster@localhost', ''],
    ] as const) {
      const stranger = new HttpClient(server.base, { username, password });
      for (const path of ['/', '/store']) assert.equal((await stranger.request(path)).status, 401);
    }
  });

  test('that is public is on the list of those', () => {
    const open = endpoints.filter(({ access }) => access === 'public').map(({ path }) => path);
    assert.deepEqual([...new Set(open)].sort(), publicPaths);
  });

  test('is described in OpenAPI with its parameters, and nothing else is', async () => {
    const { openapi, paths } = (await server.admin.json('/openapi.json')) as {
      openapi: string;
      paths: Record<string, Record<string, { summary?: string; responses?: object; parameters?: { name: string }[] }>>;
    };
    assert.match(openapi, /^3\.1\./);
    const described = Object.entries(paths).flatMap(([path, operations]) =>
      Object.keys(operations)
        .filter((key) => /^(get|post|put|patch|delete)$/.test(key))
        .map((method) => `${method.toUpperCase()} ${path}`),
    );
    const mounted = endpoints.map(({ method, path }) => `${method} ${path}`);
    assert.deepEqual(new Set(described), new Set(mounted));
    for (const { method, path } of endpoints) {
      const operation = paths[path]?.[method.toLowerCase()];
      assert.ok(operation?.summary, `${method} ${path} has no summary`);
      assert.ok(operation.responses, `${method} ${path} has no answers`);
      const names = [...path.matchAll(/\{([^}]+)\}/g)].map(([, name]) => name);
      const declared = (operation.parameters ?? []).map(({ name }) => name);
      assert.deepEqual(
        names.filter((name) => name === undefined || !declared.includes(name)),
        [],
        `${method} ${path}`,
      );
    }
  });

  test('is on the landing page with a curl line', async () => {
    const page = await server.admin.page('/');
    const forPeople = ({ path }: { path: string }) => path !== '/favicon.ico' && !path.startsWith('/.well-known/');
    for (const { path } of endpoints.filter(forPeople)) {
      assert.ok(page.includes(path), path);
    }
    assert.match(page, /curl /);
  });

  test('that takes GET answers or says plainly why not', async () => {
    for (const endpoint of endpoints.filter(({ method }) => method === 'GET')) {
      for (const accept of ['text/html', 'application/json', '*/*', 'image/tiff']) {
        const { status, text } = await server.admin.request(example(endpoint), { accept });
        assert.ok([200, 400, 404, 406, 422].includes(status), `${endpoint.path} as ${accept}: ${status} ${text}`);
      }
    }
  });
});
