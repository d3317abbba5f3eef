import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { request as plain, type IncomingMessage } from 'node:http';
import { request as secure } from 'node:https';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { describe, test } from 'node:test';
import { deliver, lines } from '../support/delivery.js';
import { startInProcess, type InProcessServer } from '../support/in-process-server.js';
import { listMessages } from '../support/mailbox-reader.js';
import { findPeer, skipWithout } from '../support/peers.js';
import { adminPassword } from '../support/server-process.js';
import { temporaryFolder, type Ending } from '../support/temporary-folder.js';
import { caddy, nginx, ReverseProxy, siteName, type ProxyKind } from './reverse-proxy.js';
import { deployFolder } from './unit-file.js';

/** As the comment in the snippets says. */
const config = `{
  http: {
    host: '127.0.0.1',
    port: 0,
    publicUrls: ['https://${siteName}'],
    trustedProxies: ['127.0.0.1'],
    // The clients of these tests are on loopback, too.
    limits: { exemptLoopback: false },
  },
  smtp: { listeners: [{ port: 0 }] },
}`;
const Authorization = `Basic ${Buffer.from(`admin:${adminPassword}`).toString('base64')}`;

interface Call {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Buffer | string;
  readonly from?: string;
}

/** Asks the proxy as a browser would that found it under its name. */
async function call(proxy: ReverseProxy, path: string, { method = 'GET', headers = {}, body, from }: Call = {}) {
  const request = secure({
    host: '127.0.0.1',
    port: proxy.httpsPort,
    ...(from !== undefined && { localAddress: from }),
    path,
    method,
    servername: siteName,
    rejectUnauthorized: false,
    agent: false,
    signal: AbortSignal.timeout(60_000),
    headers: { Host: siteName, Connection: 'keep-alive', Authorization, ...headers },
  });
  request.end(body);
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  // A proxy that has answered may cut a client that goes on sending.
  request.on('error', () => undefined);
  return response;
}

async function textOf(response: IncomingMessage): Promise<string> {
  let text = '';
  for await (const chunk of response.setEncoding('utf8')) text += chunk as string;
  return text;
}

async function start(t: Ending, kind: ProxyKind): Promise<{ server: InProcessServer; proxy: ReverseProxy }> {
  const server = await startInProcess(t, config);
  return { server, proxy: await ReverseProxy.start(t, kind, Number(new URL(server.base).port)) };
}

for (const kind of [nginx, caddy]) {
  describe(`behind ${kind.program}, with the snippet of deploy/`, { skip: skipWithout(kind.program) }, () => {
    test('pages come by TLS with one HSTS field, forms are taken, and http leads to https', async (t) => {
      const { proxy } = await start(t, kind);
      const page = await call(proxy, '/', { headers: { Accept: 'text/html' } });
      assert.equal(page.statusCode, 200);
      assert.equal(page.headers['strict-transport-security'], 'max-age=31536000');
      assert.match(await textOf(page), new RegExp(`https://${siteName}`));
      const form = { 'Content-Type': 'application/x-www-form-urlencoded', Origin: `https://${siteName}` };
      const reload = { method: 'POST', headers: form, body: '' };
      assert.equal((await call(proxy, '/config/reload?dryRun=true', reload)).statusCode, 200);
      const foreign = { ...reload, headers: { ...form, Origin: 'https://elsewhere.example' } };
      assert.equal((await call(proxy, '/config/reload?dryRun=true', foreign)).statusCode, 403);

      const request = plain({
        host: '127.0.0.1',
        port: proxy.httpPort,
        path: '/logs',
        headers: { Host: siteName },
      }).end();
      const [redirect] = (await once(request, 'response')) as [IncomingMessage];
      assert.equal(redirect.statusCode, 308);
      assert.equal(redirect.headers.location?.replace(`:${proxy.httpsPort}`, ''), `https://${siteName}/logs`);
    });

    test('F-S5 wrong passwords of one client lock out no other', async (t) => {
      const { proxy } = await start(t, kind);
      const wrong = {
        Authorization: `Basic ${Buffer.from('admin:guess').toString('base64')}`,
        'X-Forwarded-For': '127.0.0.8',
      };
      const guesses: (number | undefined)[] = [];
      for (let number = 0; number < 11; number += 1) {
        guesses.push((await call(proxy, '/store', { from: '127.0.0.7', headers: wrong })).statusCode);
      }
      assert.deepEqual(guesses, [...Array<number>(10).fill(401), 429]);
      assert.equal((await call(proxy, '/store', { from: '127.0.0.7' })).statusCode, 429);
      assert.equal((await call(proxy, '/store', { from: '127.0.0.8' })).statusCode, 200);
    });

    test('a message of 40 MB is uploaded, and one beyond the limit is refused', async (t) => {
      const { server, proxy } = await start(t, kind);
      const line = `${'x'.repeat(998)}\r\n`;
      const upload = (megabytes: number) =>
        call(proxy, '/store/localhost/postmaster/folders/INBOX/messages', {
          method: 'POST',
          headers: { 'Content-Type': 'message/rfc822' },
          body: lines('Subject: large', '') + line.repeat(megabytes * 1000),
        });
      assert.equal((await upload(40)).statusCode, 201);
      // Or one of the two is cut before it has read the answer; a proxy says 502 then.
      const refusal = await upload(60).catch((error: NodeJS.ErrnoException) => error.code);
      assert.match(`${typeof refusal === 'object' ? refusal.statusCode : refusal}`, /^(?:413|502|ECONNRESET|EPIPE)$/);
      assert.deepEqual(
        (await listMessages(server.admin)).map(({ subject }) => subject),
        ['large'],
      );
    });
  });
}

test('lines of the log come through nginx while the stream is open', { skip: skipWithout('nginx') }, async (t) => {
  const { server, proxy } = await start(t, nginx);
  const end = new AbortController();
  const ended = end.signal;
  const opening = call(proxy, '/logs/stream?level=debug', { headers: { Accept: 'text/event-stream' } });
  // Too few to fill a buffer; the first may come before the stream is open.
  const sending = (async () => {
    for (let count = 0; count < 10 && !ended.aborted; count += 1) {
      await deliver(server.portOf('mx'), lines('Subject: x', '', 'y'));
      await pause(500);
    }
  })();
  const stream = await opening;
  t.after(() => stream.destroy());
  assert.equal(stream.statusCode, 200);
  let text = '';
  for await (const chunk of stream.setEncoding('utf8')) {
    text += chunk as string;
    if (/^data: .*\n\n/m.test(text)) break;
  }
  end.abort();
  assert.match(text, /^data: /m);
  await sending;
});

test('caddy finds no fault with its file as it is', { skip: skipWithout('caddy') }, async (t) => {
  const words = ['validate', '--adapter', 'caddyfile', '--config', join(deployFolder, 'proxy', 'Caddyfile')];
  const { status, stderr } = spawnSync(findPeer('caddy') ?? '', words, {
    encoding: 'utf8',
    env: { HOME: await temporaryFolder(t) },
  });
  assert.equal(status, 0, stderr);
});
