import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test, type TestContext } from 'node:test';
import { sha256Of } from '../../../core/config/layer-folder.js';
import type { SourceRequest, SourceSnapshot } from '../../../core/contracts/configuration-source.js';
import { isProblem } from '../../../core/problem.js';
import { WebSource } from '../../../plugins/config/sync/web-source.js';

type Answer = (request: IncomingMessage, response: ServerResponse) => void;

async function serve(t: TestContext, answers: Readonly<Record<string, Answer>>): Promise<string> {
  const server = createServer((request, response) => {
    const answer = answers[request.url ?? ''];
    if (answer === undefined) response.writeHead(404).end();
    else answer(request, response);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const text =
  (body: string | Buffer): Answer =>
  (_, response) =>
    response.end(body);

const redirect =
  (location: string): Answer =>
  (_, response) =>
    response.writeHead(302, { Location: location }).end();

const open = (address: string, more: Partial<SourceRequest> = {}): WebSource =>
  new WebSource({
    address,
    folder: '/',
    token: undefined,
    username: undefined,
    password: undefined,
    defaultName: 'base.json5',
    ...more,
  });

const bounds = (ms = 10_000, maxBytes = 10_000) => ({ maxBytes, signal: AbortSignal.timeout(ms) });

const is = (kind: 'unavailable' | 'invalid', sentence: RegExp) => (error: unknown) => {
  assert.ok(isProblem(error), String(error));
  assert.equal(error.problem, kind);
  assert.match(error.message, sentence);
  return true;
};

async function contents(snapshot: SourceSnapshot): Promise<readonly string[]> {
  return Promise.all(snapshot.files.map(async ({ name }) => `${name}: ${(await snapshot.read(name)).toString()}`));
}

test('a URL of one file is the base layer', async (t) => {
  const base = await serve(t, { '/postern.json5': text('{ domains: ["a.example"] }') });
  const source = open(`${base}/postern.json5`);
  assert.deepEqual(await contents(await source.look(bounds())), ['base.json5: { domains: ["a.example"] }']);
});

test('a manifest names files that lie beside it, and each must have its hash', async (t) => {
  const files = [
    { name: 'base.json5', sha256: sha256Of('{}') },
    { name: 'servers/mail1.json5', sha256: sha256Of('{ a: 1 }').toUpperCase() },
    { name: 'mail2.json5', sha256: sha256Of('something else') },
  ];
  const base = await serve(t, {
    '/c/manifest.json': text(JSON.stringify({ files })),
    '/c/base.json5': text('{}'),
    '/c/servers/mail1.json5': text('{ a: 1 }'),
    '/c/mail2.json5': text('{ a: 2'),
  });
  const snapshot = await open(`${base}/c/manifest.json`).look(bounds());
  assert.equal((await snapshot.read('servers/mail1.json5')).toString(), '{ a: 1 }');
  await assert.rejects(snapshot.read('mail2.json5'), is('invalid', /mail2\.json5 is not what the manifest says/));
});

test('a manifest with a name that leads elsewhere, without a hash or with too many files is refused', async (t) => {
  const sha256 = sha256Of('{}');
  const manifests = [
    { files: [{ name: '../base.json5', sha256 }] },
    { files: [{ name: 'https://elsewhere.example/x', sha256 }] },
    { files: [{ name: '/etc/passwd', sha256 }] },
    { files: [{ name: 'base.json5' }] },
    { files: [{ name: 'base.json5', sha256: 'x' }] },
    { files: 'base.json5' },
    { files: Array.from({ length: 1001 }, (_, number) => ({ name: `${number}.json5`, sha256 })) },
  ];
  const base = await serve(
    t,
    Object.fromEntries(manifests.map((manifest, index) => [`/${index}`, text(JSON.stringify(manifest))])),
  );
  for (const index of manifests.keys()) {
    const source = open(`${base}/${index}`);
    await assert.rejects(source.look(bounds(10_000, 1_000_000)), is('invalid', /manifest cannot be used/), `${index}`);
  }
});

test('a manifest that says a thing twice is refused with both lines; a file beside it is for whoever checks it', async (t) => {
  const file = `{ name: 'base.json5', sha256: '${sha256Of('{}')}' }`;
  const base = await serve(t, {
    '/twice': text(`{\n files: [${file}],\n "files": [${file}] }`),
    '/inner': text(`{ files: [${file}, ${file.replace('name', "name: 'a.json5', name")}] }`),
    '/base.json5': text('{ domains: [], domains: [] }'),
  });
  await assert.rejects(
    open(`${base}/twice`).look(bounds()),
    is('invalid', /manifest cannot be used: files: line 3, column 2: .* line 2;/),
  );
  await assert.rejects(open(`${base}/inner`).look(bounds()), is('invalid', /: files\.1\.name: line 1, /));
  assert.equal((await contents(await open(`${base}/base.json5`).look(bounds()))).length, 1);
});

test('what has not changed is not sent again', async (t) => {
  const asked: (string | undefined)[] = [];
  const base = await serve(t, {
    '/x': (request, response) => {
      asked.push(request.headers['if-none-match']);
      if (request.headers['if-none-match'] === '"1"') response.writeHead(304).end();
      else response.writeHead(200, { ETag: '"1"' }).end('{}');
    },
  });
  const source = open(`${base}/x`);
  await source.look(bounds());
  assert.deepEqual(await contents(await source.look(bounds())), ['base.json5: {}']);
  assert.deepEqual(asked, [undefined, '"1"']);
});

test('temporary errors are distinguished from those that need an operator', async (t) => {
  const status =
    (code: number): Answer =>
    (_, response) =>
      response.writeHead(code).end('{}');
  const base = await serve(t, {
    '/500': status(500),
    '/503': status(503),
    '/429': status(429),
    '/403': status(403),
    '/410': status(410),
    '/204': status(204),
    '/304': status(304),
    '/large': text('x'.repeat(10_001)),
    '/broken': (_, response) => {
      response.writeHead(200, { 'Content-Length': '100' }).write('{ "ha');
      setImmediate(() => response.destroy());
    },
    '/slow': () => undefined,
    '/trickle': (_, response) => {
      response.writeHead(200);
      const timer = setInterval(() => response.write(' '), 5);
      response.on('close', () => clearInterval(timer));
    },
  });
  for (const code of [500, 503, 429]) {
    await assert.rejects(open(`${base}/${code}`).look(bounds()), is('unavailable', new RegExp(`answers ${code}`)));
  }
  for (const code of [403, 404, 410, 204, 304]) {
    await assert.rejects(open(`${base}/${code}`).look(bounds()), is('invalid', new RegExp(`${code}`)), `${code}`);
  }
  await assert.rejects(open(`${base}/large`).look(bounds()), is('invalid', /larger than 10000 bytes/));
  await assert.rejects(open(`${base}/broken`).look(bounds()), is('unavailable', /cannot be reached/));
  await assert.rejects(open(`${base}/slow`).look(bounds(50)), is('unavailable', /does not answer in time/));
  await assert.rejects(open(`${base}/trickle`).look(bounds(50)), is('unavailable', /does not answer in time/));
  await assert.rejects(open('http://127.0.0.1:1/x').look(bounds()), is('unavailable', /cannot be reached/));
});

test('redirects are followed five times, to http and https only, and credentials stay with their host', async (t) => {
  const authorizations: (string | undefined)[] = [];
  const note: Answer = (request, response) => {
    authorizations.push(request.headers.authorization);
    response.end('{}');
  };
  const other = await serve(t, { '/x': note });
  const base = await serve(t, {
    '/loop': redirect('/loop'),
    '/file': redirect('file:///etc/passwd'),
    '/none': (_, response) => response.writeHead(302).end(),
    '/away': redirect(`${other}/x`),
    '/near': redirect('/x'),
    '/x': note,
  });
  await assert.rejects(open(`${base}/loop`).look(bounds()), is('invalid', /redirects more than 5 times/));
  await assert.rejects(open(`${base}/file`).look(bounds()), is('invalid', /not as safe/));
  await assert.rejects(open(`${base}/none`).look(bounds()), is('invalid', /redirects to no address/));
  await open(`${base}/away`, { token: 'planted-token' }).look(bounds());
  await open(`${base}/near`, { token: 'planted-token' }).look(bounds());
  await open(`${base.replace('//', '//anna:planted%20word@')}/x`).look(bounds());
  const basic = `Basic ${Buffer.from('anna:planted word').toString('base64')}`;
  assert.deepEqual(authorizations, [undefined, 'Bearer planted-token', basic]);
});

test('the address is shown without its secrets', () => {
  const { shown } = open('https://anna:planted@config.example.org/x.json5?token=planted');
  assert.equal(shown, 'https://config.example.org/x.json5?…');
});
