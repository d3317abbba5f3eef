import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { z } from 'zod';
import { DnsServer } from '../../support/dns-server.js';
import { startInProcess } from '../../support/in-process-server.js';
import { freeListeners } from '../../support/server-process.js';
import { SmtpSink } from '../../support/smtp-sink.js';

const Queued = z.object({ uid: z.string() });
const Entry = z.object({ state: z.string() });

test('resolver, bounds and housekeeping change while the queue is open, and what cannot be used changes nothing', async (t) => {
  const sink = await SmtpSink.start(t);
  const broken = await DnsServer.start(t, { 'far.example': { rcode: 'SERVFAIL' } });
  const good = await DnsServer.start(t, {
    'far.example': { MX: [[10, 'mx.far.example']] },
    'mx.far.example': { A: ['127.0.0.1'] },
  });
  const configured = (options: object) => {
    const usual = { port: sink.port, tls: 'never', allowPrivateAddresses: true };
    const plugins = JSON.stringify({ 'client-queue': { ...usual, ...options } });
    return `{ domains: ['example.org'], plugins: ${plugins}, smtp: { listeners: ${freeListeners} } }`;
  };
  const before = { resolver: { servers: [broken.address] }, maxEntries: 1, housekeepingInterval: 3600 };
  const { admin, folder } = await startInProcess(t, configured(before));
  const queue = (status: number) => {
    const envelopes = [{ mail: 'ann@example.org', rcpt: ['bob@far.example'], subject: 'Hello', text: 'Hi' }];
    return admin.json('/client/queue', { json: { envelopes } }, status);
  };
  const until = async (uid: string, state: string) => {
    while (Entry.parse(await admin.json(`/client/queue/${uid}`)).state !== state) await pause(20);
  };
  const { uid } = Queued.parse(await queue(202));
  await until(uid, 'deferred');
  await queue(503);

  const reload = async (options: object, status: number) => {
    await writeFile(join(folder, 'postern.json5'), configured(options));
    return admin.json('/config/reload', { method: 'POST', json: {} }, status);
  };
  await reload({ ...before, maxEntries: 5, resolver: { servers: ['not an address'] } }, 422);
  await queue(503);
  const after = { resolver: { servers: [good.address] }, maxEntries: 5, housekeepingInterval: 1, keepFinished: 0 };
  const { restartRequired } = z.object({ restartRequired: z.array(z.string()) }).parse(await reload(after, 200));
  assert.deepEqual(restartRequired, []);
  const second = Queued.parse(await queue(202));
  await admin.json('/client/queue/retry', { json: { uids: [uid] } });
  await sink.until(({ messages }) => messages.length === 2);
  while ((await admin.request(`/client/queue/${second.uid}`)).status !== 404) await pause(100);
});

test('without name servers of its own the queue asks those of the server, also when a reload brings others', async (t) => {
  const sink = await SmtpSink.start(t);
  const broken = await DnsServer.start(t, { 'far.example': { rcode: 'SERVFAIL' } });
  const good = await DnsServer.start(t, {
    'far.example': { MX: [[10, 'mx.far.example']] },
    'mx.far.example': { A: ['127.0.0.1'] },
  });
  const configured = ({ address }: DnsServer) => {
    const plugins = JSON.stringify({ 'client-queue': { port: sink.port, tls: 'never', allowPrivateAddresses: true } });
    return `{ dns: { servers: ['${address}'] }, plugins: ${plugins}, smtp: { listeners: ${freeListeners} } }`;
  };
  const { admin, folder } = await startInProcess(t, configured(broken));
  const envelopes = [{ mail: 'ann@example.org', rcpt: ['bob@far.example'], subject: 'Hello', text: 'Hi' }];
  const { uid } = Queued.parse(await admin.json('/client/queue', { json: { envelopes } }, 202));
  const state = async () => Entry.parse(await admin.json(`/client/queue/${uid}`)).state;
  while ((await state()) !== 'deferred') await pause(20);
  await writeFile(join(folder, 'postern.json5'), configured(good));
  await admin.json('/config/reload', { method: 'POST', json: {} });
  await admin.json('/client/queue/retry', { json: { uids: [uid] } });
  await sink.until(({ messages }) => messages.length === 1);
});
