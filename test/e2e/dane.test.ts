import assert from 'node:assert/strict';
import { createHash, X509Certificate } from 'node:crypto';
import { test } from 'node:test';
import { z } from 'zod';
import { type KeyPair, selfSigned } from '../support/certificate.js';
import { DnsServer, type Zone } from '../support/dns-server.js';
import { HttpClient } from '../support/http-client.js';
import { adminPassword, freeListeners, ServerProcess } from '../support/server-process.js';
import { SmtpSink } from '../support/smtp-sink.js';
import { temporaryFolder } from '../support/temporary-folder.js';
import { until } from '../support/until.js';

const Queued = z.object({ uid: z.string() });
const Reply = z.object({ text: z.string() }).nullable();
const Entry = z.object({
  state: z.string(),
  recipients: z.array(z.object({ lastReply: Reply })),
  history: z.array(z.object({ tls: z.string().nullable(), reply: Reply })),
});
const Destination = z.object({
  dane: z.object({
    servers: z.array(z.object({ host: z.string(), records: z.array(z.string()), usable: z.int() })),
    skipped: z.array(z.string()),
  }),
});

function recordOf({ cert }: KeyPair): string {
  const key = new X509Certificate(cert).publicKey.export({ type: 'spki', format: 'der' });
  return `3 1 1 ${createHash('sha256').update(key).digest('hex')}`;
}

/** A signed domain whose server is the sink. */
const signed = (domain: string, TLSA: readonly string[]): Zone => ({
  [domain]: { MX: [[10, `mx.${domain}`]], secure: true },
  [`mx.${domain}`]: { A: ['127.0.0.1'], secure: true },
  [`_25._tcp.mx.${domain}`]: TLSA.length === 0 ? { rcode: 'SERVFAIL' } : { TLSA, secure: true },
});

test('mail goes as TLSA records demand, or waits; queue, trace and destination say so', async (t) => {
  const folder = await temporaryFolder(t);
  const pair = selfSigned('sink.example');
  const sink = await SmtpSink.start(t, { tls: pair });
  const dns = await DnsServer.start(t, {
    ...signed('good.example', [recordOf(pair)]),
    ...signed('bad.example', [recordOf(selfSigned('sink.example'))]),
    ...signed('bogus.example', []),
  });
  const options = { port: sink.port, allowPrivateAddresses: true, dane: true, resolver: { servers: [dns.address] } };
  const plugins = JSON.stringify({ 'client-queue': options });
  const { http } = await ServerProcess.start(t, {
    folder,
    config: `{ domains: ['example.org'], plugins: ${plugins}, smtp: { listeners: ${freeListeners} } }`,
    env: { POSTERN_ADMIN_PASSWORD: adminPassword },
  });
  const admin = HttpClient.admin(http);
  const outcome = async (to: string) => {
    const envelopes = [{ mail: 'ann@example.org', rcpt: [to], subject: 'Hello', text: 'Hi' }];
    const { uid } = Queued.parse(await admin.json('/client/queue', { json: { envelopes } }, 202));
    return until('an outcome', async () => {
      const entry = Entry.parse(await admin.json(`/client/queue/${uid}`));
      return ['queued', 'active'].includes(entry.state) ? undefined : { ...entry, uid };
    });
  };
  const good = await outcome('bob@good.example');
  assert.deepEqual([good.state, sink.messages.map(({ encrypted }) => encrypted)], ['delivered', [true]]);
  assert.deepEqual(good.history, [
    { tls: 'TLSv1.3', reply: { text: 'Sunk (DANE: the certificate matches a TLSA record)' } },
  ]);
  assert.match(JSON.stringify(await admin.json(`/trace/${good.uid}`)), /Sunk \(DANE: the certificate matches/);
  const bad = await outcome('bob@bad.example');
  assert.equal(bad.state, 'deferred');
  assert.match(bad.recipients[0]?.lastReply?.text ?? '', /matches none of the TLSA records \(DANE: its TLSA records/);
  const bogus = await outcome('bob@bogus.example');
  assert.equal(bogus.state, 'deferred');
  assert.match(
    bogus.recipients[0]?.lastReply?.text ?? '',
    /mx\.bogus\.example cannot be looked up, so nothing is sent/,
  );
  assert.equal(sink.messages.length, 1);

  const { dane } = Destination.parse(await admin.json('/client/destinations/good.example'));
  assert.deepEqual(dane.servers, [{ host: 'mx.good.example', records: [recordOf(pair)], usable: 1 }]);
  assert.match(
    await admin.page('/client/destinations/good.example'),
    /DANE[\s\S]*mx\.good\.example gets mail only under/,
  );
  const skipped = Destination.parse(await admin.json('/client/destinations/bogus.example')).dane;
  assert.deepEqual([skipped.servers, skipped.skipped], [[], ['mx.bogus.example']]);
  assert.match(
    await admin.page('/client/destinations/bogus.example'),
    /left out[\s\S]*the TLSA records cannot be looked up/,
  );

  const envelopes = [{ mail: 'ann@example.org', rcpt: ['bob@bad.example'], text: 'Hi' }];
  const now = { tls: 'never', verify: false, envelopes };
  assert.equal(
    z.object({ outcome: z.string() }).parse(await admin.json('/client/send', { json: now })).outcome,
    'failed',
  );
  assert.equal(sink.messages.length, 1, 'no caller takes away what the records demand');
});
