import assert from 'node:assert/strict';
import { once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import { connect } from 'node:tls';
import { before, describe, test } from 'node:test';
import { caddy, nginx, ReverseProxy, siteName } from '../deploy/reverse-proxy.js';
import { smuggling } from '../hostile/http-smuggling.js';
import { suiteEnding } from '../support/ending.js';
import { startInProcess, type InProcessServer } from '../support/in-process-server.js';
import { skipWithout } from '../support/peers.js';
import { adminPassword } from '../support/server-process.js';

const suite = suiteEnding();
const config = `{
  http: { host: '127.0.0.1', port: 0, publicUrls: ['https://${siteName}'] },
  smtp: { listeners: [{ port: 0 }] },
}`;

/** Request line and fields of an administrator; the last ones are still to come. */
const head = (line: string): string =>
  [
    `${line} HTTP/1.1`,
    `Host: ${siteName}`,
    `Authorization: Basic ${Buffer.from(`admin:${adminPassword}`).toString('base64')}`,
    'Content-Type: application/json',
    '',
  ].join('\r\n');
const hidden = `${head('GET /users')}\r\n`;

/** Sends the bytes by TLS; resolves with what came back until the proxy closed, or said no more for a while. */
async function exchange({ httpsPort }: ReverseProxy, bytes: string): Promise<string> {
  const socket = connect({ host: '127.0.0.1', port: httpsPort, servername: siteName, rejectUnauthorized: false });
  let received = '';
  socket.on('error', () => undefined);
  socket.on('data', (chunk: Buffer) => (received += chunk.toString('latin1')));
  const closed = once(socket, 'close');
  await once(socket, 'secureConnect');
  socket.write(Buffer.from(bytes, 'latin1'));
  for (let quiet = 0, length = 0; quiet < 6; quiet += 1) {
    await Promise.race([closed, pause(50)]);
    if (socket.closed) break;
    if (received.length !== length || received === '') quiet = 0;
    length = received.length;
  }
  socket.destroy();
  return received;
}

for (const kind of [nginx, caddy]) {
  describe(`a request hidden in another behind ${kind.program}`, { skip: skipWithout(kind.program) }, () => {
    let server: InProcessServer;
    let proxy: ReverseProxy;
    before(async () => {
      server = await startInProcess(suite, config);
      proxy = await ReverseProxy.start(suite, kind, Number(new URL(server.base).port));
    });

    /** How many requests the server has seen but those of this function. */
    let own = 0;
    async function seen(): Promise<number> {
      const { text } = await server.admin.request('/metrics/prometheus');
      const counts = [...text.matchAll(/^postern_http_requests_total\S* (\d+)/gm)].map(([, count]) => Number(count));
      own += 1;
      return counts.reduce((sum, count) => sum + count, 1 - own);
    }

    test('would be seen if it were obeyed', async () => {
      const before = await seen();
      assert.match(await exchange(proxy, hidden), /^HTTP\/1\.1 200 /);
      assert.equal((await seen()) - before, 1);
    });

    for (const [name, [headers, body]] of Object.entries(smuggling(hidden))) {
      test(`H34 ${name}: we see no more requests than the proxy does, and nobody gets the answer to another one`, async () => {
        const before = await seen();
        const answer = await exchange(
          proxy,
          `${head('POST /users/authenticate')}${headers.join('\r\n')}\r\n\r\n${body}`,
        );
        // A proxy may find two requests in it, and answers both; or refuse what we never see.
        const answers = answer.split('HTTP/1.1 ').length - 1;
        assert.ok(answers > 0 && (await seen()) - before <= answers, answer);
        for (let n = 0; n < 3; n += 1) {
          const next = await exchange(proxy, `GET /health HTTP/1.1\r\nHost: ${siteName}\r\nConnection: close\r\n\r\n`);
          assert.match(next, /^HTTP\/1\.1 200 [^]*"status":"UP"/);
          assert.equal(next.split('HTTP/1.1 ').length - 1, 1);
        }
      });
    }
  });
}
