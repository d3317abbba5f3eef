import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type IncomingMessage, request as plainRequest } from 'node:http';
import { request } from 'node:https';
import { describe, it } from 'node:test';
import { text } from 'node:stream/consumers';
import { connect } from 'node:tls';
import type { Ending } from '../../support/ending.js';
import { adminPassword } from '../../support/server-process.js';
import { startInProcess } from '../../support/in-process-server.js';

async function start(test: Ending) {
  const config = {
    smtp: { listeners: [{ mode: 'mx', port: 0 }] },
    http: { https: { host: '127.0.0.1', port: 0 }, trustedProxies: ['127.0.0.1'] },
  };
  const site = await startInProcess(test, JSON.stringify(config));
  return { site, port: site.server.app.http.tlsAddress()?.port ?? 0 };
}

describe('the HTTPS listener', () => {
  it('serves what the plain one does, and asks browsers to stay with https', async (test) => {
    const { port } = await start(test);
    const auth = `admin:${adminPassword}`;
    const asked = request({ host: '127.0.0.1', port, path: '/acme', auth, rejectUnauthorized: false });
    asked.end();
    const [response] = (await once(asked, 'response')) as [IncomingMessage];
    assert.equal(response.statusCode, 200);
    assert.match(String(response.headers['strict-transport-security']), /^max-age=/);
    assert.equal((JSON.parse(await text(response)) as { state: string }).state, 'off');
  });

  it('refuses a challenge handshake for a name without an open challenge', async (test) => {
    const { port } = await start(test);
    const options = { ALPNProtocols: ['acme-tls/1'], servername: 'mail.example.org', rejectUnauthorized: false };
    const socket = connect({ host: '127.0.0.1', port, ...options });
    const [error] = (await once(socket, 'error')) as [NodeJS.ErrnoException];
    assert.match(error.message, /alert/i);
  });

  it('leads other machines from the plain listener to https, but not documents at well-known addresses', async (test) => {
    const { site } = await start(test);
    const { host, port } = site.server.app.http.address();
    const ask = async (path: string, method = 'GET') => {
      const headers = { Host: 'localhost', 'X-Forwarded-For': '192.0.2.7' };
      const asked = plainRequest({ host, port, path, method, headers });
      asked.end();
      const [response] = (await once(asked, 'response')) as [IncomingMessage];
      response.resume();
      return { status: response.statusCode, location: response.headers.location };
    };
    const led = await ask('/queue?a=b');
    assert.equal(led.status, 308);
    assert.match(led.location ?? '', /^https:\/\/localhost:0\/queue\?a=b$/);
    assert.equal((await ask('/acme/renew', 'POST')).status, 403);
    assert.equal((await ask('/.well-known/acme-challenge/abc')).status, 404);
  });
});
