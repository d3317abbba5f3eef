import assert from 'node:assert/strict';
import { test } from 'node:test';
import { provide } from '../../../../core/contracts/service.js';
import { directory, type Directory } from '../../../../core/contracts/directory.js';
import { lmtp } from '../../../../plugins/upstream/lmtp/index.js';
import { SmtpSink } from '../../../support/smtp-sink.js';
import { proxyFixture, send } from '../proxy/proxy-fixture.js';

const anna = 'anna@office.example';
const people: Pick<Directory, 'resolve'> = {
  resolve: (asked) => ({ username: anna, address: asked, aliases: [], quota: null, disabled: false }),
};

test('a server that hangs after the final dot opens its breaker, even without an open transaction at RCPT', async (t) => {
  const sink = await SmtpSink.start(t, { protocol: 'lmtp', steps: { dot: { silent: true } } });
  const route = { name: 'office', domains: ['office.example'], hosts: [`127.0.0.1:${sink.port}`], tls: 'never' };
  const limits = { verify: 'directory', timeouts: { dataSeconds: 1 }, breaker: { failures: 2 } };
  const { client, health } = await proxyFixture(t, {
    plugin: lmtp,
    lent: [provide(directory, people as Directory)],
    options: { routes: [{ ...route, ...limits }] },
  });
  const session = await client();
  await send(session, anna);
  assert.equal(health.components()['lmtp']?.status, 'up');
  await send(session, anna);
  assert.equal(health.components()['lmtp']?.status, 'degraded');
  await send(session, anna);
  assert.equal(sink.connections, 2, 'the third message does not wait for it');
});
