import assert from 'node:assert/strict';
import { request as httpRequest } from 'node:http';
import { connect, type Socket } from 'node:net';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { suiteEnding } from '../support/ending.js';
import { startInProcess, type InProcessServer } from '../support/in-process-server.js';
import { SmtpClient } from '../support/smtp-client.js';
import { adminPassword } from '../support/server-process.js';
import { until } from '../support/until.js';

const suite = suiteEnding();
const attacker = '127.0.0.2';
const operator = '127.0.0.3';
/** Far more than it takes, for the attackers are in this process; without the limits there is no answer at all. */
const boundMs = 6000;

const mail = `smtp: { listeners: [{ mode: 'mx', port: 0 }] }`;
const configuration = (http: object = {}): string =>
  `{
    http: { limits: { exemptLoopback: false, ...${JSON.stringify(http)} } },
    smtp: {
      limits: { exemptLoopback: false },
      listeners: [{ mode: 'mx', port: 0 }, { mode: 'submission', port: 0, allowPlaintextAuth: true }],
    },
  }`.replace(/\.\.\.\{(.*)\}/, '$1');

interface Asked {
  readonly from: string;
  readonly method?: string;
  readonly path?: string;
  readonly user?: string;
  readonly password?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** The status; a connection that breaks is 0. */
function ask(server: InProcessServer, asked: Asked): Promise<number> {
  const { from, method = 'GET', path = '/', user, password = '', headers = {} } = asked;
  const { port } = new URL(server.base);
  return new Promise((resolve) => {
    const request = httpRequest(
      {
        port,
        method,
        path,
        localAddress: from,
        agent: false,
        timeout: 20_000,
        headers: { Host: '127.0.0.1', ...headers },
        ...(user !== undefined && { auth: `${user}:${password}` }),
      },
      (response) => {
        response.resume();
        response.once('close', () => resolve(response.statusCode ?? 0));
      },
    );
    request.on('error', () => resolve(0));
    request.end();
  });
}

async function timed<T>(work: Promise<T>): Promise<readonly [T, number]> {
  const began = performance.now();
  return [await work, performance.now() - began];
}

describe('a stranger with many connections', () => {
  test('F-S1 that are never closed takes no place from others, and each socket is destroyed after its answer', async (t) => {
    const server = await startInProcess(t, configuration({ headersSeconds: 2 }));
    const port = Number(new URL(server.base).port);
    const sockets: Socket[] = Array.from({ length: 1000 }, (_, index) => {
      const socket = connect({ port, host: '127.0.0.1', localAddress: attacker, allowHalfOpen: true });
      socket.on('error', () => undefined).resume();
      socket.write(index % 2 === 0 ? '\u0000garbage\r\n\r\n' : 'G');
      return socket;
    });
    t.after(() => sockets.forEach((socket) => socket.destroy()));
    const [status, ms] = await timed(ask(server, { from: operator, user: 'admin', password: adminPassword }));
    assert.equal(status, 200);
    assert.ok(ms < boundMs, `${ms} ms`);
    // What was answered is gone on our side though the clients keep their side open.
    const open = async (): Promise<number> => {
      const health = (await server.admin.json('/health/extended')) as {
        components: { http: { figures: { connections: number } } };
      };
      return health.components.http.figures.connections;
    };
    await until('the answered connections to be destroyed', async () => ((await open()) <= 2 ? true : undefined));
  });

  test('F-R11 leaves everybody an answer when kept connections take all places', async (t) => {
    const server = await startInProcess(t, configuration({ maxConnections: 50, connectionsPerClient: 1000 }));
    const port = Number(new URL(server.base).port);
    const sockets = await Promise.all(
      Array.from({ length: 50 }, () => {
        const socket = connect({ port, host: '127.0.0.1', localAddress: attacker });
        socket.on('error', () => undefined).write('GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n');
        return new Promise<Socket>((resolve) => socket.once('data', () => resolve(socket)));
      }),
    );
    t.after(() => sockets.forEach((socket) => socket.destroy()));
    assert.equal(await ask(server, { from: operator, path: '/health' }), 200);
    assert.equal(
      await ask(server, { from: operator, path: '/metrics/prometheus', user: 'admin', password: adminPassword }),
      200,
    );
    assert.equal(await ask(server, { from: operator, path: '/', user: 'admin', password: adminPassword }), 200);
  });
});

describe('a stranger who guesses passwords with ever new names', () => {
  let server: InProcessServer;

  before(async () => {
    server = await startInProcess(suite, configuration({ connectionsPerClient: 1000 }));
    await server.admin.json('/users', { json: { username: 'anna@localhost', password: 'the password of anna' } }, 201);
  });

  test('F-S2 does not block the sign-in of others, neither over HTTP nor over SMTP', async () => {
    const guesses = Array.from({ length: 140 }, (_, number) =>
      ask(server, { from: attacker, path: '/store', user: `name${number}`, password: 'guess' }),
    );
    const [page, pageMs] = await timed(ask(server, { from: operator, user: 'admin', password: adminPassword }));
    assert.equal(page, 200);
    assert.ok(pageMs < boundMs, `the page took ${pageMs} ms`);
    const client = await SmtpClient.greeted({ port: server.portOf('submission'), localAddress: '127.0.0.4' });
    const token = Buffer.from('\0anna@localhost\0the password of anna').toString('base64');
    const [reply, signInMs] = await timed(client.command(`AUTH PLAIN ${token}`));
    client.close();
    assert.equal(reply.code, 235);
    assert.ok(signInMs < boundMs, `the sign-in took ${signInMs} ms`);
    const statuses = await Promise.all(guesses);
    assert.ok(statuses.every((status) => [401, 429, 503].includes(status)));
    assert.ok(statuses.includes(503), 'those beyond its share are refused');
  });

  test('F-S2 must wait after fifty failures, whatever the names', async (t) => {
    const other = await startInProcess(t, configuration({ loginFailuresPerClient: 5 }));
    const statuses: number[] = [];
    for (let number = 0; number < 7; number += 1) {
      statuses.push(await ask(other, { from: attacker, path: '/store', user: `name${number}`, password: 'guess' }));
    }
    assert.deepEqual(statuses, [401, 401, 401, 401, 401, 429, 429]);
    assert.equal(await ask(other, { from: attacker, path: '/health', user: 'x', password: 'y' }), 200);
    assert.equal(await ask(other, { from: operator, path: '/store', user: 'admin', password: adminPassword }), 200);
  });
});

describe('a stranger who changes nothing', () => {
  test('F-S3 writes no line of the audit trail', async (t) => {
    const server = await startInProcess(t, configuration());
    await server.admin.json('/users', { json: { username: 'kept@localhost' } }, 201);
    const long = 'A'.repeat(7000);
    for (let number = 0; number < 20; number += 1) {
      assert.equal(await ask(server, { from: attacker, method: 'DELETE', path: `/users/${long}` }), 401);
    }
    await server.admin.request(`/users/${long}`, { method: 'DELETE' });
    const lines = async (): Promise<readonly string[]> =>
      (await readFile(join(server.folder, 'data', 'logs', 'audit.log'), 'utf8')).trim().split('\n');
    await until('the second line', async () => ((await lines()).length >= 2 ? true : undefined));
    const [added, refused, ...others] = await lines();
    assert.match(added ?? '', /kept@localhost/);
    assert.ok((refused ?? '').length < 1000, 'a long parameter is cut');
    assert.deepEqual(others, []);
    const metrics = (await server.admin.request('/metrics/prometheus')).text;
    assert.match(metrics, /^postern_http_anonymous_changes_total\{status="4xx"\} 20$/m);
  });
});

describe('behind a reverse proxy', () => {
  const failing = (server: InProcessServer, client: string, from = '127.0.0.1'): Promise<number> =>
    ask(server, { from, path: '/store', user: 'admin', password: 'guess', headers: { 'X-Forwarded-For': client } });
  const right = { path: '/store', user: 'admin', password: adminPassword };

  test('F-S5 each client of a trusted proxy is counted by itself, by the rightmost address that no proxy has', async (t) => {
    const server = await startInProcess(t, `{ ${mail}, http: { trustedProxies: ['127.0.0.1'] } }`);
    for (let number = 0; number < 10; number += 1) {
      assert.equal(await failing(server, `10.9.9.${number}, 192.0.2.66`), 401);
    }
    assert.equal(await failing(server, '10.1.1.1, 192.0.2.66'), 429);
    const headers = { 'X-Forwarded-For': '192.0.2.1' };
    assert.equal(await ask(server, { from: '127.0.0.1', ...right, headers }), 200);
    assert.equal(await failing(server, '192.0.2.1'), 401);
  });

  test('F-S5 a local proxy that is not trusted brings no guesses past the limit', async (t) => {
    const server = await startInProcess(t, `{ ${mail} }`);
    for (let number = 0; number < 10; number += 1) assert.equal(await failing(server, `192.0.2.${number}`), 401);
    assert.equal(await failing(server, '192.0.2.99'), 429);
    assert.equal(await ask(server, { from: '127.0.0.1', ...right }), 200, 'who is local and not forwarded is exempt');
  });

  test('F-S5 what a trusted proxy forwards without an address that can be read counts for the proxy', async (t) => {
    const server = await startInProcess(t, `{ ${mail}, http: { trustedProxies: ['127.0.0.1'] } }`);
    for (let number = 0; number < 10; number += 1) assert.equal(await failing(server, `unknown-${number}`), 401);
    assert.equal(await failing(server, 'unknown'), 429);
  });

  test('F-S6 an IPv6 network counts as one client', async (t) => {
    const server = await startInProcess(t, `{ ${mail}, http: { trustedProxies: ['127.0.0.1'] } }`);
    for (let number = 0; number < 10; number += 1) assert.equal(await failing(server, `2001:db8::${number + 1}`), 401);
    assert.equal(await failing(server, '[2001:db8::ffff]:4711'), 429);
    assert.equal(await failing(server, '2001:db8:0:1::1'), 401);
  });
});

describe('a request with odd encodings', () => {
  test('F-I5 F-S13 gets an answer that is no server error', async (t) => {
    const server = await startInProcess(t, `{ ${mail} }`);
    for (const encoding of ['identity;q=0', '*;q=0', 'br;q=0, *;q=0', 'gzip, identity;q=0']) {
      const { status } = await server.admin.request('/openapi.json', { headers: { 'Accept-Encoding': encoding } });
      assert.equal(status, 200, encoding);
    }
    const headers = { 'Content-Encoding': 'gzip', 'Content-Type': 'application/x-www-form-urlencoded' };
    const { status } = await server.admin.request('/users', { method: 'POST', headers, body: 'junk' });
    assert.equal(status, 415);
  });
});

describe('an account of one endpoint', () => {
  test('F-S11 opens no other method of the same path', async (t) => {
    const rules = `access: [
      { match: 'GET /client/destinations/*', username: 'getter', password: 'of one endpoint' },
      { match: 'PUT /client/destinations/*', role: 'read' },
    ]`;
    const server = await startInProcess(t, `{ ${mail}, http: { ${rules} } }`);
    const answer = await fetch(`${server.base}/client/destinations/far.test`, {
      method: 'POST',
      headers: {
        Authorization: `Basic ${Buffer.from('getter:of one endpoint').toString('base64')}`,
        'Content-Type': 'application/x-www-form-urlencoded',
      },
      body: '_method=PUT&maxConnections=1',
    });
    assert.equal(answer.status, 401);
  });
});
