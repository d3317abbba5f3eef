import assert from 'node:assert/strict';
import { test } from 'node:test';
import { deliver, lines } from '../support/delivery.js';
import { startInProcess } from '../support/in-process-server.js';
import { until } from '../support/until.js';

interface Extended {
  readonly status: string;
  readonly uptime: number;
  readonly versions: Readonly<Record<string, string>>;
  readonly components: Readonly<Record<string, { status: string; figures?: Readonly<Record<string, number>> }>>;
}

test('extended health carries the statistics of each part of the server; plain health does not', async (t) => {
  const server = await startInProcess(t);
  await deliver(server.portOf('mx'), lines('Subject: counted', '', 'hello'));
  const look = async () => (await server.admin.json('/health/extended')) as Extended;
  await until('counts of the queue', async () => (await look()).components['queue']?.figures?.['oldestSeconds']);
  const { status, versions, components } = await look();
  const figures = (name: string): Readonly<Record<string, number>> => components[name]?.figures ?? {};

  assert.equal(status, 'UP');
  assert.equal(versions['node'], process.versions.node);
  assert.deepEqual(figures('listener mx'), { sessions: 0, sessionsTotal: 1 });
  assert.deepEqual([figures('sessions')['open'], figures('sessions')['total']], [0, 1]);
  assert.deepEqual(figures('mailboxes'), { domains: 1, mailboxes: 1 });
  const expected: Readonly<Record<string, readonly string[]>> = {
    queue: ['open', 'queued', 'active', 'deferred', 'held', 'oldestSeconds'],
    scheduler: ['running', 'unrecorded'],
    pool: ['leased', 'idle', 'waiting', 'opened', 'reused', 'failed'],
    spool: ['freeBytes'],
    disk: ['freeBytes', 'totalBytes'],
    eventLoop: ['delayMs'],
    memory: ['residentBytes', 'heapUsedBytes'],
    http: ['connections', 'requestsTotal'],
    log: ['pendingBytes', 'droppedLines', 'fileBytes'],
  };
  for (const [component, names] of Object.entries(expected)) {
    for (const name of names) assert.ok(Number.isFinite(figures(component)[name]), `${component} has ${name}`);
  }
  assert.ok((figures('http')['requestsTotal'] ?? 0) >= 1);

  const plain = (await server.admin.json('/health')) as Extended;
  assert.deepEqual(Object.keys(plain.components), Object.keys(components));
  assert.ok(Object.values(plain.components).every((component) => !('figures' in component)));
  assert.match(await server.admin.page('/health'), /href="\/health\/extended"/);
  const page = await server.admin.page('/health/extended');
  assert.match(page, /<dt>heap used<\/dt><dd>[\d.]+ MB<\/dd>/);
  assert.match(page, new RegExp(`node ${process.versions.node}`));
});
