import assert from 'node:assert/strict';
import { test } from 'node:test';
import { config } from '../../../plugins/config/index.js';
import { configurationOf, openPluginSite, sessionFrom, transactionIn } from '../plugin-site.js';

test('the sessions of relay networks are marked, others are not', async (t) => {
  const relayNetworks = ['192.0.2.0/24', '2001:db8::/32'];
  const { pipeline } = await openPluginSite(t, config, { configuration: configurationOf([], { relayNetworks }) });
  const marks: unknown[] = [];
  for (const address of ['192.0.2.9', '::ffff:192.0.2.9', '2001:db8::1', '198.51.100.1', '127.0.0.1']) {
    const session = sessionFrom(address);
    const decision = await pipeline.snapshot().decide('mailFrom', { transaction: transactionIn(session) });
    assert.equal(decision.outcome, 'pass');
    marks.push(session.notes.get('config.relay'));
  }
  assert.deepEqual(marks, [true, true, true, undefined, undefined]);
});

test('in maintenance mode sessions and messages are deferred, and health says so', async (t) => {
  const site = await openPluginSite(t, config, {
    configuration: configurationOf([], { relayNetworks: ['192.0.2.0/24'] }),
    options: { maintenance: true, maintenanceText: 'Moving to the new machine' },
  });
  const session = sessionFrom('192.0.2.1');
  const chain = site.pipeline.snapshot();
  const lines = ['Moving to the new machine'];
  const atConnect = await chain.decide('connect', { session });
  assert.deepEqual('reply' in atConnect && atConnect.reply, { code: 421, status: '4.3.2', lines });
  const atSender = await chain.decide('mailFrom', { transaction: transactionIn(session) });
  assert.deepEqual('reply' in atSender && atSender.reply, { code: 451, status: '4.3.2', lines });
  assert.equal(session.notes.has('config.relay'), false);
  assert.equal(site.health.status(), 'degraded');
  assert.match(await site.page('/config'), /Maintenance mode is on/);
});

test('maintenance mode is switched while the server runs', async (t) => {
  const site = await openPluginSite(t, config, { configuration: configurationOf([]) });
  const connect = async (): Promise<string> =>
    (await site.pipeline.snapshot().decide('connect', { session: sessionFrom('192.0.2.1') })).outcome;
  assert.equal(await connect(), 'pass');
  await site.running.reconfigure?.(config.options.parse({ maintenance: true }));
  assert.equal(await connect(), 'refuse');
  await site.running.reconfigure?.(config.options.parse({}));
  assert.equal(await connect(), 'pass');
  assert.equal(site.health.status(), 'up');
});

test('a text that would break the reply is refused with the configuration', () => {
  for (const maintenanceText of ['', 'two\r\nlines', 'ä', 'x'.repeat(401)])
    assert.equal(config.options.safeParse({ maintenanceText }).success, false);
});
