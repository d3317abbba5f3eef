import assert from 'node:assert/strict';
import fc from 'fast-check';
import { statusOf } from '../core/http/raw-exchange.js';
import { examplePath, json, parameters, type HttpFixture } from '../hostile/http-fixture.js';
import type { FuzzTarget } from './target.js';

const atoms = [
  '..',
  '.',
  '/',
  '%2f',
  '%2F',
  '%5c',
  '\\',
  '%',
  '%2',
  '%zz',
  '%00',
  '%0d%0a',
  '%09',
  '%7f',
  '%c0%ae',
  '%ff',
  '%ed%a0%80',
  '%e2%80%ae',
  '%e2%80%8b',
  '%c3%a4',
  'e%cc%81',
  '%252e',
  '%20',
  '+',
  '~',
  ':',
  ';',
  '@',
  '&',
  '=',
  '*',
  "'",
  '%22',
  '%3C',
  'a',
  'INBOX',
  'inbox',
  'cur',
  'tmp',
  'localhost',
  'postmaster',
  '__proto__',
  'constructor',
  '{x}',
  '1.M1P1.host',
  '%2CS%3D1',
  'x'.repeat(255),
];
const segment = fc.array(fc.constantFrom(...atoms), { minLength: 1, maxLength: 5 }).map((parts) => parts.join(''));
const query = fc
  .array(fc.tuple(fc.constantFrom('limit', 'cursor', 'q', 'view', 'since', 'order', 'format', '__proto__'), segment), {
    maxLength: 3,
  })
  .map((pairs) => pairs.map(([key, value]) => `${key}=${value}`).join('&'));

/** A fuzz of path parameters and queries: an answer that blames the request, never one that blames us or tells a path. */
export function requestTarget(fixture: () => HttpFixture): FuzzTarget {
  return {
    name: 'request',
    quickRuns: 100,
    property: fc.asyncProperty(
      fc.nat(10_000),
      fc.array(segment, { minLength: 5, maxLength: 5 }),
      query,
      async (n, names, q) => {
        // A dump of the process is slow by its nature.
        const endpoints = fixture().endpoints.filter(({ path }) => !path.includes('heapdump'));
        const endpoint = endpoints[n % endpoints.length];
        assert.ok(endpoint !== undefined);
        const { method, path } = endpoint;
        const values = Object.fromEntries(parameters(path).map((name, index) => [name, names[index] ?? 'x']));
        const target = `${examplePath(path, values)}${q === '' ? '' : `?${q}`}`;
        const answer = await fixture().ask(method, target, { headers: json, body: method === 'GET' ? '' : '{"a":1}' });
        const status = statusOf(answer);
        // Health is 503 when something is down, which nothing here may bring about either.
        assert.ok(status >= 200 && status < 500, `${method} ${target}: ${answer.slice(0, 200)}`);
        if (status >= 400)
          assert.doesNotMatch(answer, /ENOENT|EINVAL|ENAMETOOLONG|ERR_[A-Z]|postern-test-|root:x:/, target);
      },
    ),
  };
}
