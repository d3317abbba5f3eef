import assert from 'node:assert/strict';
import { access, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { pino } from 'pino';
import { systemClock } from '../../core/clock.js';
import { type AttemptLimits, undividedShares } from '../../core/contracts/cluster.js';
import type { KeptAnswers } from '../../core/contracts/http-records.js';
import { fileDocuments } from '../../core/disk/document.js';
import { FileAnswers } from '../../core/http/shell/idempotency.js';
import { openUserRecords } from '../../plugins/users/user-records.js';
import { suiteEnding } from '../support/ending.js';
import { startInProcess, type InProcessServer } from '../support/in-process-server.js';
import { freeListeners } from '../support/server-process.js';
import { temporaryFolder } from '../support/temporary-folder.js';
import { until } from '../support/until.js';

const suite = suiteEnding();

/** What the plugin below provides and is given. */
const cluster: { limits?: AttemptLimits; services?: Readonly<Record<string, unknown>> } = {};
Object.assign(globalThis, { clusterOfTest: cluster });

const plugin = `
import { definePlugin, service, z } from 'postern/plugin';
export const cluster = definePlugin({
  name: 'shared',
  options: z.strictObject({}),
  needs: { limits: service('postern.attempt-limits') },
  provides: {
    documents: service('postern.documents'),
    siteShares: service('postern.site-shares'),
    duties: service('postern.duties'),
    userRecords: service('postern.user-records'),
    keptAnswers: service('postern.kept-answers'),
    auditReader: service('postern.audit-reader'),
  },
  setup(context, { limits }) {
    globalThis.clusterOfTest.limits = limits;
    return globalThis.clusterOfTest.services;
  },
});`;

const config = `{
  smtp: { listeners: ${freeListeners} },
  sitePlugins: ['./cluster.mjs'],
  plugins: { 'client-queue': { housekeepingInterval: 1 } },
}`;

describe('a plugin that provides what the servers of a cluster share', () => {
  let server: InProcessServer;
  let elsewhere: string;
  const claimed: string[] = [];
  const duties = new Set<string>();

  before(async () => {
    elsewhere = await temporaryFolder(suite);
    const records = await openUserRecords(join(elsewhere, 'users.json'));
    const anna = { username: 'anna@localhost', aliases: [], quota: null, disabled: false };
    await records.add({ ...anna, passwordHash: null, createdAt: '2026-01-02T03:04:05.000Z' });
    const answers = new FileAnswers({ folder: elsewhere, clock: systemClock, log: pino({ level: 'silent' }) });
    const keptAnswers: KeptAnswers = {
      claim: (key) => {
        claimed.push(key);
        return answers.claim(key);
      },
      find: (key) => answers.find(key),
      keep: (key, answer) => answers.keep(key, answer),
    };
    cluster.services = {
      documents: fileDocuments(elsewhere),
      siteShares: undividedShares,
      duties: {
        has: (name: string) => {
          duties.add(name);
          return false;
        },
      },
      userRecords: Object.assign(records, { source: 'the cluster' }),
      keptAnswers,
      auditReader: { node: 'mx1', read: () => Promise.resolve({ items: [], total: 17, limit: 50, nextCursor: null }) },
    };
    server = await startInProcess(suite, config, {}, (folder) => writeFile(join(folder, 'cluster.mjs'), plugin));
  });

  const isInDataFolder = (name: string) =>
    access(join(server.folder, 'data', name)).then(
      () => true,
      () => false,
    );

  test('has the limits that an operator sets for a destination', async () => {
    await server.admin.json('/client/destinations', { json: { destination: 'example.net', maxConnections: 3 } });
    assert.match((await fileDocuments(elsewhere).get('destinations').read())?.text ?? '', /example\.net/);
    assert.equal(await isInDataFolder('destinations.json'), false);
  });

  test('has the users', async () => {
    const { source, users } = (await server.admin.json('/users')) as { source: string; users: readonly string[] };
    assert.deepEqual([source, users], ['the cluster', ['anna@localhost', 'postmaster@localhost']]);
    assert.equal(await isInDataFolder('users.json'), false);
  });

  test('has the answers by Idempotency-Key', async () => {
    const draft = () =>
      server.admin.request('/store/localhost/anna/drafts', {
        json: { subject: 'once' },
        headers: { 'Idempotency-Key': 'one', Accept: 'application/json' },
      });
    const [first, second] = [await draft(), await draft()];
    assert.deepEqual([first.status, second.status, second.text], [201, 201, first.text]);
    assert.equal(claimed.length, 2);
  });

  test('is asked for the audit log and for duties', async () => {
    assert.equal(((await server.admin.json('/audit')) as { total: number }).total, 17);
    await until('housekeeping', () => (duties.has('queue.housekeeping') ? true : undefined));
    assert.ok(duties.has('queue.notices'));
  });

  test('reads and adds to the failed sign-ins of every limit', async () => {
    const { limits } = cluster;
    assert.deepEqual([...(limits?.all().keys() ?? [])].toSorted(), ['http', 'http-clients', 'smtp', 'users']);
    const signIn = () =>
      server.admin.request('/users/authenticate', { json: { username: 'anna@localhost', password: 'wrong' } });
    assert.equal((await signIn()).status, 200);
    const users = limits?.all().get('users');
    const [counted, ...others] = users?.changes(10) ?? [];
    assert.ok(counted !== undefined && others.length === 0);
    assert.equal(counted.count, 1);
    users?.merge(counted.key, [{ window: counted.window, count: 1000 }]);
    assert.equal((await signIn()).status, 429);
  });
});
