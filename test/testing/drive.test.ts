import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { test } from 'node:test';
import { change, defer, defineEndpoint, definePlugin, discard, dns, hold, next, reject, z } from '../../core/plugin.js';
import { drive, FakeDns, message } from '../kit/index.js';

const policy = definePlugin({
  name: 'policy',
  options: z.strictObject({ senders: z.array(z.string()).default([]) }),
  uses: { dns },
  setup({ smtp, http, metrics, every, log, clock, health }, { options, dns }) {
    const refused = metrics.counter('policy_refused_total', 'Refused', ['why']);
    const seen: string[] = [];
    let ticks = 0;
    smtp.on('connect', async ({ session }) => {
      const { address } = session.remote;
      const list = await dns?.lookup(`${address.split('.').toReversed().join('.')}.bl.example`, 'A');
      return list?.status === 'found' ? reject(554, '5.7.1', 'Listed') : next();
    });
    smtp.on('mailFrom', ({ transaction }) => {
      if (!options.senders.includes(transaction.reversePath?.address ?? '')) return next();
      refused.inc({ why: 'sender' });
      log.info({ ip: transaction.session.remote.address }, 'refused a sender');
      return reject(550, '5.7.1', 'Not welcome');
    });
    smtp.on('rcptTo', ({ address }) => {
      if (address.local === 'later') return defer(451, '4.7.1', 'Later');
      if (address.local === 'throw') throw new Error('oops');
      if (address.local === 'nobody') return discard('nobody wants it');
      if (address.local === 'hang') return new Promise(() => undefined);
      return next();
    });
    smtp.on('message', ({ message }) => {
      if (message.headers.some(([name]) => name === 'X-Hold')) return hold('asked for');
      return change({ change: 'add-header', name: 'X-Checked', value: 'yes' });
    });
    smtp.watch('delivered', ({ recipient }) => void seen.push(recipient.address.address));
    every(60, async () => {
      await Promise.resolve();
      ticks += 1;
    });
    health.check('policy', () => ({ status: 'up' }));
    http.mount([
      defineEndpoint({
        method: 'GET',
        path: '/policy',
        summary: 'State',
        group: 'Site',
        access: 'operate',
        handle: () => ({ seen, ticks, now: clock.now() }),
      }),
    ]);
  },
});

test('each stage is answered as a client would be', async (t) => {
  const dns = new FakeDns({ '9.2.0.192.bl.example A': ['127.0.0.2'] });
  const site = await drive(policy, { test: t, dns, options: { senders: ['spam@example.com'] }, timeLimitMs: 50 });

  assert.equal((await site.connect()).code, 220);
  assert.deepEqual(await site.connect({ ip: '192.0.2.9' }), {
    verdict: 'reject',
    code: 554,
    status: '5.7.1',
    text: 'Listed',
    stage: 'connect',
    plugin: 'policy',
  });
  assert.deepEqual(await site.mailFrom({ from: 'spam@example.com' }), {
    verdict: 'reject',
    code: 550,
    status: '5.7.1',
    text: 'Not welcome',
    stage: 'mailFrom',
    plugin: 'policy',
  });
  assert.equal(await site.metric('policy_refused_total', { why: 'sender' }), 1);
  assert.deepEqual(await site.rcpt({ to: 'bob@example.org' }), {
    verdict: 'accept',
    code: 250,
    status: '2.1.5',
    text: 'Recipient OK',
    stage: 'rcptTo',
    plugin: null,
  });
  assert.equal((await site.rcpt({ to: 'later@example.org' })).verdict, 'defer');
  for (const to of ['throw@example.org', 'hang@example.org']) {
    const { verdict, code, status, plugin } = await site.rcpt({ to });
    assert.deepEqual(
      { verdict, code, status, plugin },
      { verdict: 'defer', code: 451, status: '4.3.0', plugin: 'policy' },
    );
  }
  assert.equal((await site.rcpt({ to: 'nobody@example.org' })).reason, 'nobody wants it');
  assert.equal((await site.rcpt({ to: 'bob@elsewhere.example' })).text, 'Relaying denied');
  assert.equal((await site.rcpt({ to: 'bob@elsewhere.example', user: 'anna@example.org', tls: true })).code, 250);

  const { verdict, stage } = await site.data({ eml: message({ subject: 'One' }) });
  assert.deepEqual({ verdict, stage }, { verdict: 'accept', stage: 'deliver' });
  const [mail] = site.mailbox('bob@example.org');
  assert.deepEqual(mail?.headers[0], ['X-Checked', 'yes']);
  const held = await site.data({ eml: message({ headers: { 'X-Hold': '1' } }) });
  assert.deepEqual([held.verdict, held.reason], ['hold', 'asked for']);
  await site.clock.advance({ minutes: 10 });
  assert.deepEqual((await site.call('GET', '/policy')).body, {
    seen: ['bob@example.org', 'bob@example.org'],
    ticks: 10,
    now: site.clock.now(),
  });
  assert.equal((await site.call('GET', '/policy', { role: 'read' })).status, 403);
  assert.equal((await site.call('GET', '/policy', { role: null })).status, 401);
  assert.match((await site.page('/docs')).text, /State/);
  assert.equal(site.health('policy').status, 'up');
  assert.match(JSON.stringify(site.log), /refused a sender/);
  const replies = await site.session(`
    EHLO client.example.com
    MAIL FROM:<anna@example.com>
    RCPT TO:<bob@example.org>
    DATA
    Subject: two

    Hello
    .
    QUIT
  `);
  assert.deepEqual(
    replies.map(({ code }) => code),
    [220, 250, 250, 250, 354, 250, 221],
  );
  const { folder } = site;
  await site.close();
  assert.equal(existsSync(folder), false);
});
