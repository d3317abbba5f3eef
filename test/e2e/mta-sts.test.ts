import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { z } from 'zod';
import { selfSigned } from '../support/certificate.js';
import { DnsServer } from '../support/dns-server.js';
import { HttpClient } from '../support/http-client.js';
import { adminPassword, freeListeners, ServerProcess } from '../support/server-process.js';
import { SmtpSink } from '../support/smtp-sink.js';
import { temporaryFolder } from '../support/temporary-folder.js';
import { until } from '../support/until.js';

const Queued = z.object({ uid: z.string() });
const Entry = z.object({
  state: z.string(),
  recipients: z.array(z.object({ lastReply: z.object({ text: z.string() }).nullable() })),
});
const Destination = z.object({ mtaSts: z.object({ mode: z.string(), mx: z.array(z.string()) }).nullable() });

const policy = (mx: string) => ({ id: 'one', mode: 'enforce', mx: [mx], maxAge: 86_400, fetchedAt: Date.now() });

test('under a policy that is known at the start mail goes with a good certificate, or waits', async (t) => {
  const folder = await temporaryFolder(t);
  const pair = selfSigned('mx.good.example');
  const sink = await SmtpSink.start(t, { tls: pair });
  const dns = await DnsServer.start(t, {
    'good.example': { MX: [[10, 'mx.good.example']] },
    'mx.good.example': { A: ['127.0.0.1'] },
    // The same server: its certificate is for another name.
    'bad.example': { MX: [[10, 'mx.bad.example']] },
    'mx.bad.example': { A: ['127.0.0.1'] },
  });
  const ca = join(folder, 'ca.pem');
  await writeFile(ca, pair.cert);
  await mkdir(join(folder, 'data'), { mode: 0o700 });
  const policies = { 'good.example': policy('mx.good.example'), 'bad.example': policy('mx.bad.example') };
  await writeFile(join(folder, 'data', 'mta-sts.json'), JSON.stringify({ policies }));
  const options = { port: sink.port, allowPrivateAddresses: true, resolver: { servers: [dns.address] } };
  const plugins = JSON.stringify({ 'client-queue': options });
  const { http } = await ServerProcess.start(t, {
    folder,
    config: `{ domains: ['example.org'], plugins: ${plugins}, smtp: { listeners: ${freeListeners} } }`,
    env: { POSTERN_ADMIN_PASSWORD: adminPassword, NODE_EXTRA_CA_CERTS: ca },
  });
  const admin = HttpClient.admin(http);
  const send = async (to: string) => {
    const envelopes = [{ mail: 'ann@example.org', rcpt: [to], subject: 'Hello', text: 'Hi' }];
    return Queued.parse(await admin.json('/client/queue', { json: { envelopes } }, 202)).uid;
  };
  const settled = (uid: string) =>
    until('an outcome', async () => {
      const entry = Entry.parse(await admin.json(`/client/queue/${uid}`));
      return ['queued', 'active'].includes(entry.state) ? undefined : entry;
    });
  assert.equal((await settled(await send('bob@good.example'))).state, 'delivered');
  assert.deepEqual(
    sink.messages.map(({ encrypted }) => encrypted),
    [true],
  );
  const waiting = await settled(await send('bob@bad.example'));
  assert.equal(waiting.state, 'deferred');
  assert.match(waiting.recipients[0]?.lastReply?.text ?? '', /the MTA-STS policy of the domain demands it/);
  assert.equal(sink.messages.length, 1);

  const { mtaSts } = Destination.parse(await admin.json('/client/destinations/good.example'));
  assert.deepEqual([mtaSts?.mode, mtaSts?.mx], ['enforce', ['mx.good.example']]);
  assert.match(await admin.page('/client/destinations/bad.example'), /enforced[\s\S]*only to mx\.bad\.example/);

  const now = {
    tls: 'never',
    verify: false,
    envelopes: [{ mail: 'ann@example.org', rcpt: ['bob@bad.example'], text: 'Hi' }],
  };
  const sent = z.object({ outcome: z.string() }).parse(await admin.json('/client/send', { json: now }));
  assert.equal(sent.outcome, 'failed');
  assert.equal(sink.messages.length, 1, 'no caller takes away what the domain demands');
});
