import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { before, describe, test } from 'node:test';
import { processLimits } from '../../core/net/process-limits.js';
import { basic } from '../core/http/opened-shell.js';
import { rawExchange, statusOf } from '../core/http/raw-exchange.js';
import { suiteEnding } from '../support/ending.js';
import { deliver } from '../support/delivery.js';
import { examplePath, HttpFixture, json } from './http-fixture.js';
import { until } from '../support/until.js';
import { smuggling } from './http-smuggling.js';

const suite = suiteEnding();
const authorization = `Authorization: ${basic('boss', 'boss-secret')}`;

/** Bodies that are no object of ours. */
const hostileJson: Readonly<Record<string, string>> = {
  'a million arrays': '['.repeat(1_000_000),
  '150,000 objects': '{"a":'.repeat(150_000),
  '500,000 arrays with their ends': `${'['.repeat(500_000)}${']'.repeat(500_000)}`,
  NaN: '{"username":NaN}',
  'a byte order mark': '\xef\xbb\xbf{}',
  'UTF-16': '\xff\xfe{\0}\0',
  'an array': '[]',
  null: 'null',
  'a number': '1e400',
  'a cut object': '{"username":"a',
  'two objects': '{}{}',
  'arrays for texts': '{"username":["a","b"],"password":["c"]}',
  'objects for texts': '{"username":{"$ne":""},"password":{"$ne":""}}',
  prototypes: '{"__proto__":{"admin":true},"constructor":{"prototype":{"admin":true}}}',
  'unknown keys': '{"username":"a@localhost","password":"b","role":"admin"}',
  'a key twice':
    '{"username":"a@localhost","username":"b@localhost","password":"rye bread and cheese","subject":"a","subject":"b"}',
};

describe('requests to the whole server that are not what they seem', () => {
  let fixture: HttpFixture;
  before(async () => {
    fixture = await HttpFixture.start(suite, { http: { limits: { headersSeconds: 1, requestSeconds: 2 } } });
  });

  /** What a dump of the process is made by takes no body. */
  const withBody = () =>
    fixture.endpoints.filter(({ method, path }) => /^(?:POST|PUT|PATCH)$/.test(method) && !path.startsWith('/system/'));

  for (const [name, body] of Object.entries(hostileJson)) {
    test(`H31 ${name} as JSON is refused by every endpoint, and changes nothing`, async () => {
      const tree = await fixture.tree();
      for (const { method, path } of withBody()) {
        const answer = await fixture.ask(method, examplePath(path), { headers: json, body });
        assert.ok(
          [400, 404, 409, 413, 415, 422].includes(statusOf(answer)),
          `${method} ${path}: ${answer.slice(0, 200)}`,
        );
      }
      assert.equal(await fixture.tree(), tree);
      assert.equal(Object.hasOwn(Object.prototype, 'admin'), false);
    });
  }

  test('H31 a body over the limit is 413 before it is sent', async () => {
    const head = ['POST /users HTTP/1.1', 'Host: localhost', authorization, ...json, 'Content-Length: 999999999', ''];
    const answer = await rawExchange(fixture.port, `${head.join('\r\n')}\r\n`);
    assert.equal(statusOf(answer), 413);
  });

  test('H33 pages, limits and cursors that are none are 400', async () => {
    const lists = ['/users', '/store', '/store/localhost', '/store/localhost/postmaster/folders/INBOX'];
    const queries = ['limit=-1', 'limit=0', 'limit=1001', 'limit=1000000000', 'limit=1e3', 'limit=NaN', 'limit=1.5'];
    const others = ['cursor=junk', 'cursor=%00', 'order=sideways', 'sort=__proto__', 'page=-1', 'nothing=1'];
    for (const path of lists) {
      for (const query of [...queries, ...others, 'limit=1&limit=2']) {
        const status = statusOf(await fixture.ask('GET', `${path}?${query}`));
        assert.ok([400, 422].includes(status), `${path}?${query}: ${status}`);
      }
    }
  });

  const hidden = 'GET /users HTTP/1.1\r\nHost: localhost\r\n\r\n';
  for (const [name, [headers, body]] of Object.entries(smuggling(hidden))) {
    test(`H34 ${name} is one 400 and the end`, async () => {
      const head = ['POST /users HTTP/1.1', 'Host: localhost', authorization, ...json, ...headers].join('\r\n');
      const answer = await rawExchange(fixture.port, `${head}\r\n\r\n${body}`);
      assert.equal(statusOf(answer), 400, answer.slice(0, 200));
      assert.equal(answer.split('HTTP/1.1 ').length - 1, 1);
    });
  }

  test('H35 slow heads and slow bodies are 408, and ten thousand pipelined requests are answered', async () => {
    const slow = [
      'GET /health HTTP/1.1\r\nHost: localhost\r\n',
      `POST /users HTTP/1.1\r\nHost: localhost\r\n${authorization}\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{`,
    ];
    // A head in the middle of so many waits longer than the second that the others get.
    const patient = await HttpFixture.start(suite);
    const [head, body, many] = await Promise.all([
      ...slow.map((text) => rawExchange(fixture.port, text)),
      rawExchange(
        patient.port,
        `${'GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n'.repeat(9999)}GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`,
      ),
    ]);
    assert.deepEqual(
      [head, body].map((answer) => statusOf(answer ?? '')),
      [408, 408],
    );
    assert.equal((many ?? '').split('HTTP/1.1 200 ').length - 1, 10_000);
  });

  test('H12 an upload that is slow is 408, and nothing of it stays', async () => {
    const tree = await fixture.tree();
    const store = '/store/localhost/postmaster';
    const form = 'multipart/form-data; boundary=b';
    const began = '--b\r\nContent-Disposition: form-data; name="files"; filename="../../x"\r\n\r\nx';
    const answers = await Promise.all(
      (
        [
          [`${store}/folders/INBOX/messages`, 'message/rfc822', 'Subject: x\r\n\r\n'],
          [`${store}/drafts`, 'message/rfc822', 'Subject: x\r\n\r\n'],
          [`${store}/drafts`, form, began],
        ] as const
      ).map(([path, type, body]) =>
        fixture.ask('POST', path, { headers: [`Content-Type: ${type}`, 'Content-Length: 100000'], body }),
      ),
    );
    for (const answer of answers) assert.ok([408, 415].includes(statusOf(answer)), answer.slice(0, 300));
    assert.ok(answers.filter((answer) => statusOf(answer) === 408).length >= 2);
    await until('nothing of them', async () => ((await fixture.tree()) === tree ? true : undefined));
  });

  test('H36 a form leads to another site by no field and no header', async () => {
    const form = ['Content-Type: application/x-www-form-urlencoded', 'Accept: text/html'];
    const places = ['//evil.example', '/\\evil.example', 'https://evil.example', 'javascript:alert(1)', '/%0d%0aX:y'];
    for (const place of places) {
      const body = `username=nobody%40localhost&password=x&next=${encodeURIComponent(place)}`;
      const headers = [...form, `Referer: ${place}`, 'Sec-Fetch-Site: same-origin'];
      const answer = await fixture.ask('POST', '/users/authenticate', { headers, body });
      assert.doesNotMatch(answer, /\r\n(?:Location|HX-Redirect|Refresh): (?!\/[^/\\])/i, place);
    }
  });

  test('H39 SMTP on the HTTP port is one 400 and the end', async () => {
    for (const text of ['EHLO localhost\r\n', 'MAIL FROM:<a@b>\r\nDATA\r\n', '\x16\x03\x01\x00\xa5\x01']) {
      const answer = await rawExchange(fixture.port, text);
      assert.equal(statusOf(answer), 400, text);
      assert.equal(answer.split('HTTP/1.1 ').length - 1, 1);
    }
  });
});

describe('more HTTP connections than there may be', () => {
  test('H35 five thousand idle ones leave mail its ports, and a fifth of them, the limit, are kept', async (t) => {
    // Each has two ends in this process; where fewer files may be open, there are fewer.
    const files = Number.parseInt(processLimits()['open.files.soft'] ?? '', 10) || Infinity;
    const count = Math.min(5000, Math.floor(files / 3));
    const maxConnections = Math.floor(count / 5);
    // One client, which may have them all but those that are reserved.
    const limits = { maxConnections, connectionsPerClient: 100_000, exemptLoopback: false };
    const fixture = await HttpFixture.start(t, { http: { limits } });
    const request = 'GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n';
    let answered = 0;
    let ended = 0;
    const idle = Array.from({ length: count }, () => {
      const socket = connect(fixture.port, '127.0.0.1');
      socket.on('error', () => undefined).once('data', () => (answered += 1));
      socket.once('close', () => (ended += 1)).write(request);
      return socket;
    });
    t.after(() => idle.forEach((socket) => socket.destroy()));
    // Five thousand connections with both ends in this process take their time on a busy machine.
    for (let tries = 0; tries < 600 && idle.length - ended > maxConnections; tries += 1) await pause(100);
    const kept = idle.length - ended;
    t.diagnostic(`${kept} kept, ${answered} answered`);
    assert.ok(
      kept <= maxConnections && kept >= 0.9 * maxConnections && answered >= kept,
      `${kept} kept, ${answered} answered`,
    );
    const began = performance.now();
    await deliver(fixture.server.portOf('mx'), 'Subject: through\r\n\r\nall the same\r\n');
    assert.ok(performance.now() - began < 5000);
    for (const socket of idle) socket.destroy();
    await until('an answer', async () =>
      (await fixture.ask('GET', '/health').catch(() => '')).includes('"status":"UP"') ? true : undefined,
    );
  });

  test('H35 are closed, and mail comes in all the same', async (t) => {
    const fixture = await HttpFixture.start(t, { http: { limits: { maxConnections: 5 } } });
    const idle = Array.from({ length: 50 }, () => connect(fixture.port, '127.0.0.1'));
    const ended = idle.map(
      (socket) =>
        new Promise<void>((resolve) => {
          socket.on('error', () => undefined).on('close', () => resolve());
        }),
    );
    await Promise.race(ended);
    await deliver(fixture.server.portOf('mx'), 'Subject: through\r\n\r\nall the same\r\n');
    for (const socket of idle) socket.destroy();
    await Promise.all(ended);
    await until('an answer', async () =>
      (await fixture.ask('GET', '/health').catch(() => '')).includes('"status":"UP"') ? true : undefined,
    );
  });
});
