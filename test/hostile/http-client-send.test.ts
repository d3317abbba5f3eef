import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, symlink, writeFile } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { statusOf } from '../core/http/raw-exchange.js';
import { atEnd, suiteEnding } from '../support/ending.js';
import { bodyOf, HttpFixture, json } from './http-fixture.js';

const suite = suiteEnding();
const secret = 'planted-in-a-file';
const envelope = { mail: 'ann@example.org', rcpt: ['bob@elsewhere.example'] };

/** Hosts that lead back to this machine or to its neighbours, however they are written. */
const hosts = [
  '127.0.0.1',
  '127.1',
  '0.0.0.0',
  '::1',
  '[::1]',
  '::ffff:127.0.0.1',
  '[::ffff:7f00:1]',
  '0x7f000001',
  '0x7f.1',
  '2130706433',
  '017700000001',
  'localhost',
  'localhost.',
  'LOCALHOST',
  '169.254.169.254',
  '10.0.0.1',
  'unix:/var/run/docker.sock',
  '127.0.0.1#@allowed.example',
  'allowed.example.evil.example',
];

describe('what scripts hand in to be sent by the whole server', () => {
  let fixture: HttpFixture;
  let port: number;
  let calls = 0;
  before(async () => {
    const listener = createServer((socket) => {
      calls += 1;
      socket.destroy();
    });
    listener.listen(0, '127.0.0.1');
    await once(listener, 'listening');
    atEnd(suite, () => void listener.close());
    port = (listener.address() as AddressInfo).port;
    const targets = [{ host: 'allowed.example', ports: [port] }];
    fixture = await HttpFixture.start(suite, { rest: { plugins: { 'client-queue': { cases: 'cases', targets } } } });
    const folder = join(fixture.server.folder, 'data', 'cases');
    await mkdir(join(folder, 'below'), { recursive: true });
    await writeFile(join(fixture.server.folder, 'secret'), `Subject: ${secret}\r\n\r\n${secret}\r\n`);
    await symlink(join(fixture.server.folder, 'secret'), join(folder, 'link'));
    await symlink(fixture.server.folder, join(folder, 'linked'));
    await symlink('/dev/zero', join(folder, 'zero'));
    execFileSync('mkfifo', [join(folder, 'fifo')]);
  });

  const post = (path: string, body: object) =>
    fixture.ask('POST', path, { headers: json, body: Buffer.from(JSON.stringify(body)).toString('latin1') });

  test('H09 a host that is not allowed is not called, however it is written', async () => {
    for (const mx of hosts) {
      for (const where of [
        { mx: [mx], port },
        { mx: [mx], port, tls: 'implicit' },
        { mx: ['allowed.example', mx], port },
      ]) {
        const answer = await post('/client/send', { ...where, envelopes: [envelope] });
        assert.ok([403, 422].includes(statusOf(answer)), `${JSON.stringify(where)}: ${answer.slice(-300)}`);
      }
    }
    assert.equal(calls, 0);
  });

  test('H09 an allowed host is called at its own ports only, and raw messages are no way around', async () => {
    for (const other of [22, 25, 80, 6379, port + 1]) {
      const answer = await post('/client/send', { mx: ['allowed.example'], port: other, envelopes: [envelope] });
      assert.ok([403, 422].includes(statusOf(answer)), String(other));
    }
    const query = `mail=a%40b.example&rcpt=c%40d.example&mx=127.0.0.1&port=${port}`;
    const raw = { headers: ['Content-Type: message/rfc822'], body: 'Subject: x\r\n\r\n' };
    assert.equal(statusOf(await fixture.ask('POST', `/client/send?${query}`, raw)), 403);
    assert.equal(statusOf(await post('/client/send', { route: '__proto__', envelopes: [envelope] })), 422);
    assert.equal(calls, 0);
  });

  const files = [
    '/etc/passwd',
    '../../secret',
    '..',
    '.',
    'below',
    'below/../../../secret',
    'link',
    'linked/secret',
    'zero',
    'fifo',
    '/proc/self/environ',
    '/dev/zero',
    'file:///etc/passwd',
    'http://127.0.0.1/',
    'a\0b',
    '',
  ];
  for (const file of files) {
    test(`H10 ${JSON.stringify(file)} is no file of a case`, async () => {
      for (const path of ['/client/send', '/client/queue']) {
        const answer = await post(path, { envelopes: [{ ...envelope, file }] });
        assert.ok([403, 422].includes(statusOf(answer)), `${path}: ${answer.slice(-300)}`);
        assert.ok(!answer.includes(secret) && !answer.includes('root:x:'));
      }
    });
  }

  test('H10 no field of a message names a file or an address to read it from', async () => {
    const sources = [{ path: '/etc/passwd' }, { href: 'http://127.0.0.1/' }, { raw: '/etc/passwd' }];
    for (const source of sources) {
      for (const fields of [
        { html: source },
        { text: source },
        { attachments: [{ filename: 'x', ...source }] },
        source,
      ]) {
        const answer = await post('/client/queue', { envelopes: [{ ...envelope, ...fields }] });
        assert.equal(statusOf(answer), 422, JSON.stringify(fields));
      }
    }
  });

  test('H11 a case without bounds is refused', async () => {
    const many = Array.from({ length: 20_000 }, () => envelope);
    const cases: readonly object[] = [
      { envelopes: many },
      { envelopes: [{ ...envelope, repeat: 1e6 }] },
      { envelopes: [{ ...envelope, repeat: -1 }] },
      { envelopes: Array.from({ length: 100 }, () => ({ ...envelope, repeat: 1000 })) },
      { timeout: 1e9, envelopes: [envelope] },
      { delay: 1e9, envelopes: [envelope] },
      { retry: 1e9, envelopes: [envelope] },
      { $: { a: '{$b}{$b}', b: '{$a}{$a}' }, envelopes: [{ ...envelope, text: '{$c}' }] },
      { envelopes: [{ ...envelope, text: '{$constructor}' }] },
      { envelopes: [{ ...envelope, rcpt: Array.from({ length: 100_000 }, () => 'a@b.example') }] },
      { include: ['/etc/passwd'], envelopes: [envelope] },
    ];
    for (const definition of cases) {
      for (const path of ['/client/send', '/client/queue']) {
        const status = statusOf(await post(path, definition));
        assert.ok([413, 422].includes(status), `${path} ${JSON.stringify(definition).slice(0, 100)}: ${status}`);
      }
    }
  });

  test('H11 what looks like a template of another language is text', async () => {
    const text = '{{7*7}} ${7*7} {% include "/etc/passwd" %} <%= 7*7 %> #{7*7}';
    const answer = await post('/client/queue', { envelopes: [{ ...envelope, subject: text, text }] });
    assert.equal(statusOf(answer), 202, answer.slice(-500));
    const { uid } = JSON.parse(bodyOf(answer)) as { uid: string };
    const message = bodyOf(await fixture.ask('GET', `/client/queue/${uid}/message`));
    assert.ok(message.includes(`\r\n\r\n${text}\r\n`), message);
  });
});
