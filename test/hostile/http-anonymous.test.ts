import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { readdir, readFile, stat } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import fc from 'fast-check';
import { longestHoldMs } from '../fuzz/held-loop.js';
import { attempt } from '../fuzz/trial.js';
import { examplePath, HttpFixture, parameters } from './http-fixture.js';

const fileBytes = 64 * 1024;
const keptFiles = 3;
/** Log and audit log, and a line each that is written before the file is closed. */
const maxLogBytes = (keptFiles + 1) * fileBytes + 2 * 16 * 1024;
const budgetMs = 12_000;

const word = fc.oneof(
  fc.constantFrom(
    'x',
    'a',
    '..',
    '%2e%2e',
    '%00',
    '%0d%0a',
    '{}',
    'INBOX',
    'postmaster@localhost',
    'ä',
    '*',
    '//x',
    '?',
  ),
  fc.string({ unit: 'binary', maxLength: 40 }),
  fc.integer({ min: 100, max: 9000 }).map((length) => 'A'.repeat(length)),
);
const header = fc.oneof(
  fc.constantFrom(
    'Content-Type: application/json',
    'Content-Type: application/x-www-form-urlencoded',
    'Content-Type: multipart/form-data; boundary=b',
    'Content-Type: message/rfc822',
    'Transfer-Encoding: chunked',
    'Content-Encoding: gzip',
    'Expect: 100-continue',
    'Range: bytes=0-1,3-',
    'Accept: text/html',
    'HX-Request: true',
    'Upgrade: websocket',
    'Host: other.example',
    'X-Forwarded-For: 192.0.2.1',
    'Authorization: Basic Ym9zczp3cm9uZw==',
  ),
  fc
    .tuple(fc.constantFrom('Authorization', 'X-Request-Id', 'Cookie', 'Referer', 'If-Match', 'X-Any'), word)
    .map((pair) => pair.join(': ')),
);
const body = fc.oneof(
  fc.constantFrom(
    '',
    '{}',
    '{"username":"x@localhost"}',
    '_method=DELETE&confirm=yes',
    '--b\r\n\r\n',
    '5\r\nhello\r\n0\r\n\r\n',
  ),
  fc.string({ unit: 'binary', maxLength: 300 }),
  fc.integer({ min: 1000, max: 300_000 }).map((length) => '['.repeat(length)),
);

interface Sent {
  /** So many at once. */
  readonly times: number;
  /** Null for the method of the endpoint. */
  readonly method: string | null;
  readonly place: number;
  readonly words: readonly string[];
  readonly headers: readonly string[];
  readonly body: string;
  /** Named as Content-Length, more or less than there is. */
  readonly further: number;
  /** The part that is sent; all of it for 1. */
  readonly part: number;
  readonly ending: 'wait' | 'fin' | 'reset';
}
const request: fc.Arbitrary<Sent> = fc.record({
  times: fc.integer({ min: 1, max: 20 }),
  method: fc.option(
    fc.constantFrom('GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'OPTIONS', 'TRACE', 'CONNECT', 'PROPFIND', 'ä'),
  ),
  place: fc.nat(10_000),
  words: fc.array(word, { minLength: 1, maxLength: 5 }),
  headers: fc.array(header, { maxLength: 3 }),
  body,
  further: fc.constantFrom(0, 0, 0, -1, 50),
  part: fc.oneof(
    { weight: 3, arbitrary: fc.constant(1) },
    { weight: 1, arbitrary: fc.double({ min: 0, max: 1, noNaN: true }) },
  ),
  ending: fc.constantFrom('wait', 'fin', 'reset'),
});

/** A quarter of the paths is made of words alone. */
function textOf({ method, place, words, headers, body: content, further }: Sent, fixture: HttpFixture): string {
  const endpoint = fixture.endpoints[place % fixture.endpoints.length];
  assert.ok(endpoint !== undefined);
  const values = Object.fromEntries(parameters(endpoint.path).map((name, index) => [name, words[index] ?? 'x']));
  const path = place % 4 === 0 ? `/${words.join('/')}` : examplePath(endpoint.path, values);
  const length = Math.max(0, Buffer.byteLength(content, 'latin1') + further);
  const lines = [
    `${method ?? endpoint.method} ${path} HTTP/1.1`,
    `Host: 127.0.0.1:${fixture.port}`,
    `Content-Length: ${length}`,
    ...headers,
  ];
  return `${lines.join('\r\n')}\r\n\r\n${content}`;
}

/** Resolves when the server has answered or closed, or has had a moment for what it does not understand yet. */
function send(port: number, bytes: Buffer, ending: Sent['ending']): Promise<void> {
  return new Promise((resolve) => {
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
    const end = () => {
      socket.destroy();
      resolve();
    };
    socket.once('data', end).once('close', end).on('error', end).setTimeout(10, end);
    socket.write(bytes);
    if (ending === 'fin') socket.end();
    if (ending === 'reset') setTimeout(() => socket.resetAndDestroy(), 2);
  });
}

async function auditLines(folder: string): Promise<ReadonlySet<string>> {
  const names = (await readdir(folder)).filter((name) => name.startsWith('audit'));
  const texts = await Promise.all(names.map((name) => readFile(join(folder, name), 'utf8')));
  return new Set(
    texts
      .join('')
      .split('\n')
      .filter((line) => line !== ''),
  );
}

async function sizeOf(folder: string): Promise<number> {
  const sizes = (await readdir(folder)).map(
    async (name) => (await stat(join(folder, name)).catch(() => ({ size: 0 }))).size,
  );
  return (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0);
}

test('F-S17 whatever an anonymous client sends, no line of the audit trail goes, the logs stay within their bounds and the event loop is not held', async (t) => {
  const log = { maxFileBytes: fileBytes, keepFiles: keptFiles, auditFileBytes: fileBytes, keepAuditFiles: 1 };
  const fixture = await HttpFixture.start(t, { rest: { log } });
  const logs = join(fixture.server.folder, 'data', 'logs');
  // Templates and descriptions are made at their first use.
  for (const { path } of fixture.endpoints.filter(({ method }) => method === 'GET')) {
    await fixture.ask('GET', examplePath(path), { headers: ['Accept: text/html'] });
  }
  for (let n = 0; n < 20; n += 1) {
    const content = JSON.stringify({ username: `user${n}@localhost` });
    await fixture.ask('POST', '/users', { headers: ['Content-Type: application/json'], body: content });
  }
  const before = await auditLines(logs);
  assert.ok(before.size >= 20, `${before.size} lines`);

  const property = fc.asyncProperty(fc.array(request, { minLength: 1, maxLength: 10 }), async (requests) => {
    await Promise.all(
      requests.flatMap((one) => {
        const bytes = Buffer.from(textOf(one, fixture), 'latin1');
        const sent = bytes.subarray(0, Math.ceil(bytes.length * one.part));
        return Array.from({ length: one.times }, () => send(fixture.port, sent, one.ending));
      }),
    );
    const after = await auditLines(logs);
    assert.ok(
      [...before].every((line) => after.has(line)),
      'lines of the audit trail are gone',
    );
    const size = await sizeOf(logs);
    assert.ok(size <= maxLogBytes, `the logs take ${size} bytes`);
  });
  const seed = randomInt(2 ** 31);
  const target = { name: 'anonymous', quickRuns: 10_000, property };
  const again = { seed, runs: target.quickRuns, timeLimitMs: budgetMs };
  const { failure, hold, runs } = await attempt(target, again);
  const counted = await fixture.ask('GET', '/metrics/prometheus');
  const reached = /^postern_http_anonymous_changes_total\{status="4xx"\} (\d+)$/m.exec(counted)?.[1] ?? 0;
  t.diagnostic(
    `seed ${seed}, ${runs} runs, ${reached} refused changes, event loop held for ${Math.round(hold.ms)} ms at most, in run ${hold.run}`,
  );
  assert.equal(failure, undefined, failure?.report);
  if (hold.ms <= longestHoldMs) return;
  const { hold: second } = await attempt(target, again);
  assert.ok(second.ms <= longestHoldMs, `seed ${seed}: the event loop was held for ${Math.round(second.ms)} ms`);
});
