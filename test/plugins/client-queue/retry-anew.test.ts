import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DnsServer } from '../../support/dns-server.js';
import { freePort } from '../../support/free-port.js';
import { startInProcess } from '../../support/in-process-server.js';
import { freeListeners } from '../../support/server-process.js';
import { SmtpSink } from '../../support/smtp-sink.js';

interface EntryAnswer {
  readonly state: string;
  readonly history: readonly unknown[];
}

test('after a retry by an operator a server that was dead is called for other mail as well', async (t) => {
  const port = await freePort();
  const routes = { back: { mx: ['127.0.0.1'], port, tls: 'never', domains: ['back.example'] } };
  const plugins = JSON.stringify({ 'client-queue': { routes } });
  const { admin } = await startInProcess(t, `{ plugins: ${plugins}, smtp: { listeners: ${freeListeners} } }`);

  const queue = async (): Promise<string> => {
    const envelopes = [{ mail: 'ann@elsewhere.example', rcpt: ['bob@back.example'], text: 'Hi' }];
    const { uid } = (await admin.json('/client/queue', { json: { envelopes } }, 202)) as { uid: string };
    return uid;
  };
  const tried = async (uid: string, times = 1): Promise<string> => {
    for (;;) {
      const { state, history } = (await admin.json(`/client/queue/${uid}`)) as EntryAnswer;
      if (history.length >= times && state !== 'active') return state;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  };

  const first = await queue();
  assert.equal(await tried(first), 'deferred');
  let connections = 0;
  const greeting = () => ((connections += 1) === 1 ? '421 4.3.2 In a moment' : undefined);
  const sink = await SmtpSink.start(t, { steps: { greeting } }, port);
  assert.equal(await tried(await queue()), 'deferred');
  assert.equal(sink.connections, 0, 'it is left alone');

  const later = new Date(Date.now() + 3_600_000).toISOString();
  await admin.json('/client/queue/retry', { json: { uid: first, at: later } });
  assert.equal(await tried(await queue()), 'deferred');
  assert.equal(sink.connections, 0, 'a retry that is for later changes nothing yet');

  await admin.json('/client/queue/retry', { json: { uid: first } });
  assert.equal(await tried(first, 2), 'deferred', 'the server has said 421');
  assert.equal(await tried(await queue()), 'delivered');
});

test('a retry by an operator asks the DNS anew, whatever it has said before', async (t) => {
  const sink = await SmtpSink.start(t);
  const zone = (host: string) => ({
    'far.example': { MX: [[10, host]] as const },
    'mx.far.example': { A: ['127.0.0.1'] },
  });
  const dns = await DnsServer.start(t, zone('gone.far.example'));
  const options = { port: sink.port, tls: 'never', allowPrivateAddresses: true, resolver: { servers: [dns.address] } };
  const plugins = JSON.stringify({ 'client-queue': options });
  const { admin } = await startInProcess(t, `{ plugins: ${plugins}, smtp: { listeners: ${freeListeners} } }`);
  const envelopes = [{ mail: 'ann@elsewhere.example', rcpt: ['bob@far.example'], text: 'Hi' }];
  const { uid } = (await admin.json('/client/queue', { json: { envelopes } }, 202)) as { uid: string };
  const tried = async (times: number): Promise<string> => {
    for (;;) {
      const { state, history } = (await admin.json(`/client/queue/${uid}`)) as EntryAnswer;
      if (history.length >= times && state !== 'active') return state;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  };
  assert.equal(await tried(1), 'deferred');
  dns.zone = zone('mx.far.example');
  await admin.json('/client/queue/retry', { json: { uid } });
  assert.equal(await tried(2), 'delivered');
});
