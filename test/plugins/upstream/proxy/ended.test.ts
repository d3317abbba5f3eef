import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import { test } from 'node:test';
import { next } from '../../../../core/pipeline/verdict.js';
import { lmtp } from '../../../../plugins/upstream/lmtp/index.js';
import { proxy } from '../../../../plugins/upstream/proxy/index.js';
import { SmtpSink } from '../../../support/smtp-sink.js';
import { until } from '../../../support/until.js';
import { address, proxyFixture } from './proxy-fixture.js';

const partner = 'ben@partner.example';

for (const [plugin, protocol, optionsOf] of [
  [proxy, 'smtp', (server: object) => ({ rules: [{ rcpt: '.*@partner\\.example', ...server }] })],
  [lmtp, 'lmtp', (server: object) => ({ routes: [{ domains: ['partner.example'], ...server }] })],
] as const) {
  test(`${plugin.name}: clients that disconnect during another hook leak no connection`, async (t) => {
    const sink = await SmtpSink.start(t, { protocol });
    const server = { hosts: ['127.0.0.1'], port: sink.port, tls: 'never', maxConnections: 1 };
    const options = optionsOf({ ...server, timeouts: { answerSeconds: 2 } });
    const { client, pipeline } = await proxyFixture(t, { plugin, options });
    const gate = new EventEmitter();
    let asked = 0;
    let ended = 0;
    pipeline.watch('site', 'ended', () => {
      ended += 1;
    });
    pipeline.on('site', 'rcptTo', { order: 'policy' }, async () => {
      asked += 1;
      if (asked <= 3) await once(gate, 'open');
      return next();
    });
    for (let n = 1; n <= 3; n += 1) {
      const leaving = await client();
      await leaving.command('MAIL FROM:<anna@example.org>');
      leaving.write(`RCPT TO:<${partner}>\r\n`);
      await until('the hook', () => (asked === n ? true : undefined));
      leaving.reset();
      await until('the end of the transaction', () => (ended === n ? true : undefined));
    }
    gate.emit('open');
    assert.deepEqual(await address(await client(), partner), ['250 2.1.5 Recipient fine']);
    assert.equal(sink.commands.filter((line) => line.startsWith('MAIL')).length, 1, 'nobody asks for who has left');
  });
}
