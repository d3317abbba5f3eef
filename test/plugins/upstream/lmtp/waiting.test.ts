import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { directory, type Directory, type MailUser } from '../../../../core/contracts/directory.js';
import { provide } from '../../../../core/contracts/service.js';
import { lmtp } from '../../../../plugins/upstream/lmtp/index.js';
import { SmtpSink } from '../../../support/smtp-sink.js';
import { address, proxyFixture, said, send, text } from '../proxy/proxy-fixture.js';

const anna = 'anna@office.example';

/** Knows everybody. */
const people = {
  resolve: (asked): MailUser | undefined => ({
    username: asked.address,
    address: asked,
    aliases: [],
    quota: null,
    disabled: false,
  }),
} satisfies Pick<Directory, 'resolve'>;

test('a message without a free connection is deferred in time, and not sent after the reply', async (t) => {
  const gate = new EventEmitter();
  const held = { after: once(gate, 'open'), say: '250 2.0.0 At last' };
  const sink = await SmtpSink.start(t, { protocol: 'lmtp', steps: { dot: [held, undefined] } });
  const hosts = [`127.0.0.1:${sink.port}`];
  const route = { domains: ['office.example'], hosts, tls: 'never', verify: 'directory', maxConnections: 1 };
  const { client } = await proxyFixture(t, {
    plugin: lmtp,
    lent: [provide(directory, people as Directory)],
    options: { routes: [{ ...route, timeouts: { answerSeconds: 1 } }] },
  });
  const first = await client();
  await address(first, anna);
  const answer = first.data(text);
  await sink.until(({ messages }) => messages.length === 1);
  const second = await client();
  assert.match(await send(second, anna), /^451 4\.4\.1 /);
  gate.emit('open');
  assert.match(said(await answer), /^250 /);
  assert.match(await send(second, anna), /^250 /);
  assert.equal(sink.messages.length, 2);
});

test('a server that is slow with each of many recipients is not waited for longer than with one', async (t) => {
  const dot = () => ({ after: pause(400), say: '250 2.0.0 At last' });
  const sink = await SmtpSink.start(t, { protocol: 'lmtp', steps: { dot } });
  const hosts = [`127.0.0.1:${sink.port}`];
  for (const verify of ['rcpt', 'directory']) {
    const route = { domains: ['office.example'], hosts, tls: 'never', verify, timeouts: { dataSeconds: 1 } };
    const { client, holders } = await proxyFixture(t, {
      plugin: lmtp,
      lent: [provide(directory, people as Directory)],
      options: { routes: [route] },
    });
    const many = Array.from({ length: 6 }, (_, n) => `user${n}@office.example`);
    assert.match(await send(await client(), ...many), /^250 2\.0\.0 Ok: queued as /);
    assert.ok(holders().length >= 3, 'whose replies did not come in time are tried again');
  }
});
