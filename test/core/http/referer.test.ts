import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { Context } from '../../../core/http/exchange.js';
import { isOwnPath } from '../../../core/http/referer.js';
import { auditTrail } from '../../../core/http/shell/audit.js';
import { systemClock } from '../../../core/clock.js';
import { Metrics } from '../../../core/metrics/metrics.js';
import { openShell, type OpenedShell } from './opened-shell.js';

let opened: OpenedShell;
before(async () => {
  opened = await openShell({ http: { access: [{ match: '/none', role: 'admin' }] } });
});
after(() => opened.close());

test('a Referer that cannot be read keeps neither the error page nor the audit line away', async () => {
  const before = opened.audit.length;
  for (const page of ['/items/%zz', '/items/%ff', '/items/%2e%2e']) {
    const answer = await opened.get('/items/kept', {
      as: 'reader',
      method: 'DELETE',
      headers: { Accept: 'text/html', Referer: `${opened.url}${page}` },
    });
    assert.equal(answer.status, 403, page);
    assert.match(answer.headers.get('content-security-policy') ?? '', /default-src 'none'/);
    assert.match(await answer.text(), /<h1>/);
  }
  assert.equal(opened.audit.length, before + 3);
});

test('a path that no Location can hold is no page of this server', () => {
  assert.equal(isOwnPath('/items/\ud800'), false);
  assert.equal(isOwnPath('/items/caf\u00e9'), true);
});

test('a request that fails in an unforeseen way has its audit line', async () => {
  const lines: string[] = [];
  const sink = { write: (line: string) => void lines.push(line) };
  const trail = auditTrail(sink as never, systemClock, new Metrics().scope('http'));
  const exchange = {
    account: { username: 'ann', role: 'operate' },
    route: { endpoint: { method: 'POST', path: '/x' } },
  };
  const ctx = { method: 'POST', status: 404, state: { exchange: { ...exchange, params: {}, id: '1', asked: false } } };
  await assert.rejects(trail(ctx as unknown as Context, () => Promise.reject(new Error('unforeseen'))));
  assert.deepEqual(
    lines.map((line) => (JSON.parse(line) as { status: number }).status),
    [500],
  );
});
