import assert from 'node:assert/strict';
import { cp, mkdir, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { pino } from 'pino';
import type { AuditEntry, AuditQuery } from '../../../../core/contracts/http-records.js';
import { AuditFile } from '../../../../core/http/shell/audit.js';
import { auditPath } from '../../../../core/log/file.js';
import { DatabaseAudit } from '../../../../plugins/cluster/shared/database-audit.js';
import { rememberingLog } from '../../../core/spool/remembering-log.js';
import { isThe } from '../../../kit/relay-queue/harness.js';
import { auditReaderContract } from '../../../support/cluster-contracts.js';
import { type Ending, suiteEnding } from '../../../support/ending.js';
import { HttpClient } from '../../../support/http-client.js';
import { skipWithout } from '../../../support/peers.js';
import { Postgres } from '../../../support/postgres.js';
import { adminPassword, freeListeners, ServerProcess } from '../../../support/server-process.js';
import { temporaryFolder } from '../../../support/temporary-folder.js';
import { untilTrue } from '../../../support/until.js';
import { emptyTables, fillTables, nodeOf } from '../cluster-fixture.js';

const entry = (number: number, more: Partial<AuditEntry> = {}): AuditEntry => ({
  at: new Date(Date.UTC(2026, 10, 21, 12, 0, number)).toISOString(),
  by: 'anna',
  from: '192.0.2.1',
  requestId: `request-${number}`,
  method: 'POST',
  route: '/users/{username}',
  params: { username: `user${number}` },
  status: 200,
  ...more,
});
const range = (from: number, to: number) => Array.from({ length: to - from }, (_, index) => from + index);
const numbersOf = (items: readonly AuditEntry[]) =>
  items.map(({ requestId }) => Number(requestId.slice('request-'.length)));

describe('the audit log of a cluster', { skip: skipWithout('postgres') }, () => {
  let server: Postgres;
  const ending = suiteEnding();
  before(async () => {
    server = await Postgres.start(ending, { durable: true, fill: fillTables });
  });
  const fresh = async (): Promise<void> => void (await server.psql(emptyTables, 'template'));

  /** A node without a session: the audit log needs none. */
  function auditOf(t: Ending, folder: string, node = 'mx1', maxBytes = Infinity): DatabaseAudit {
    const cluster = nodeOf(server, { node });
    t.after(() => cluster.leave());
    return new DatabaseAudit({ cluster, folder, maxBytes, log: rememberingLog().log });
  }
  async function write(folder: string, numbers: readonly number[], maxFileBytes = 1 << 20): Promise<void> {
    const file = new AuditFile(folder, pino({ level: 'silent' }), { maxFileBytes, keepFiles: 50 });
    for (const number of numbers) file.write(JSON.stringify(entry(number)));
    await file.close();
  }
  const all = async (audit: DatabaseAudit, query: Partial<AuditQuery> = {}): Promise<readonly number[]> =>
    numbersOf((await audit.read({ limit: 1000, ...query })).items);

  auditReaderContract('the database', async (t, entries) => {
    await fresh();
    const folder = await temporaryFolder(t);
    await writeFile(auditPath(folder, 0), entries.map((one) => `${JSON.stringify(one)}\n`).join(''));
    return auditOf(t, folder);
  });

  test('has the lines of all nodes with their names, and a cursor stays good while lines come', async (t) => {
    await fresh();
    const [one, other] = [await temporaryFolder(t), await temporaryFolder(t)];
    await write(one, [0, 2, 4, 6]);
    await write(other, [1, 3, 5, 7]);
    const audit = auditOf(t, one);
    await auditOf(t, other, 'mx2').copy();
    const first = await audit.read({ limit: 3 });
    assert.deepEqual(
      first.items.map(({ requestId, node }) => `${requestId} ${node}`),
      ['request-7 mx2', 'request-6 mx1', 'request-5 mx2'],
    );
    assert.equal(first.total, 8);
    await write(one, [8, 9]);
    const second = await audit.read({ limit: 3, cursor: first.nextCursor ?? '' });
    assert.deepEqual(numbersOf(second.items), [4, 3, 2]);
    assert.equal((await audit.read({ limit: 9, cursor: second.nextCursor ?? '' })).nextCursor, null);
    assert.deepEqual(await all(audit, { node: 'mx2' }), [7, 5, 3, 1]);
    assert.deepEqual((await all(audit)).slice(0, 2), [9, 8]);
  });

  test('has every line once: over files that are set aside, a half line, a new process and a database that was away', async (t) => {
    await fresh();
    const folder = await temporaryFolder(t);
    await write(folder, range(0, 40), 1000);
    await auditOf(t, folder).copy();
    await write(folder, range(40, 45), 1000);
    await writeFile(auditPath(folder, 0), '{"at":"2026-', { flag: 'a' });
    const again = auditOf(t, folder);
    await again.copy();
    await server.stop('immediate');
    await write(folder, range(45, 100), 1000);
    await assert.rejects(again.copy());
    await assert.rejects(again.read({ limit: 1 }), isThe('unavailable'));
    await server.start();
    await untilTrue('it is copied', () =>
      again.copy().then(
        () => true,
        () => false,
      ),
    );
    assert.deepEqual(await all(again), range(0, 100).toReversed());
  });

  test('copies at once what one connection, another process and a lost answer copy too', async (t) => {
    await fresh();
    const folder = await temporaryFolder(t);
    await write(folder, range(0, 3000), 100_000);
    const copies = Array.from({ length: 3 }, () => auditOf(t, folder));
    await Promise.allSettled(copies.map((audit) => audit.copy()));
    for (const audit of copies) await audit.copy();
    assert.equal(
      await server.psql('select count(*), count(distinct line) from postern.audit', 'template'),
      '3000|3000',
    );
  });

  test('takes a restored database and a restored data folder for what they are', async (t) => {
    await fresh();
    const [folder, backup] = [await temporaryFolder(t), join(await temporaryFolder(t), 'backup')];
    await write(folder, range(0, 10));
    await auditOf(t, folder).copy();
    const place = await server.psql('select place from postern.audit_copied', 'template');
    await cp(folder, backup, { recursive: true });
    await write(folder, range(10, 20));
    await auditOf(t, folder).copy();
    const until10 = entry(10).at;
    await server.psql(
      `delete from postern.audit where at >= ${Date.parse(until10)}; update postern.audit_copied set place = '${place}'`,
      'template',
    );
    assert.deepEqual(await all(auditOf(t, folder)), range(0, 20).toReversed(), 'the database forgot');
    await rm(folder, { recursive: true });
    await cp(backup, folder, { recursive: true });
    await write(folder, range(20, 40));
    assert.deepEqual(await all(auditOf(t, folder)), range(0, 40).toReversed(), 'the folder is older');
  });

  test('keeps of each node what fits into its files', async (t) => {
    await fresh();
    const [one, other] = [await temporaryFolder(t), await temporaryFolder(t)];
    await write(one, range(0, 100));
    await write(other, range(200, 210));
    const length = Buffer.byteLength(`${JSON.stringify(entry(99))}\n`);
    await auditOf(t, other, 'mx2', 20 * length).copy();
    const audit = auditOf(t, one, 'mx1', 20 * length);
    assert.deepEqual(await all(audit), [...range(200, 210).toReversed(), ...range(80, 100).toReversed()]);
  });

  test('finds words in any script, and stores what a database cannot hold', async (t) => {
    await fresh();
    const folder = await temporaryFolder(t);
    const lines = [
      entry(1, { by: 'ÅSA' }),
      entry(2, { by: 'nul\0', action: '\ud800' }),
      entry(3, { params: { username: "o'neil%_\\" } }),
    ];
    await writeFile(auditPath(folder, 0), lines.map((one) => `${JSON.stringify(one)}\n`).join(''));
    const audit = auditOf(t, folder);
    assert.deepEqual(await all(audit, { who: 'åsa' }), [1]);
    assert.deepEqual(await all(audit, { who: 'nul' }), [2]);
    assert.deepEqual(await all(audit, { path: "O'NEIL%_\\" }), [3]);
  });
});

describe('nodes that are killed', { skip: skipWithout('postgres') }, () => {
  const ending = suiteEnding();
  let server: Postgres;
  before(async () => {
    server = await Postgres.start(ending, { durable: true, fill: fillTables });
    await server.database('killed');
  });

  const configOf = (node: string): string => `{
    log: { auditFileBytes: 65536, keepAuditFiles: 1000 }, smtp: { listeners: ${freeListeners} },
    plugins: { cluster: { node: '${node}', sessionSeconds: 2, database: { hosts: ['${server.folder}'], name: 'killed', user: 'postgres', tls: 'off' } } },
  }`;

  /** Lines in the files of a node. */
  async function linesIn(folder: string): Promise<readonly string[]> {
    const logs = join(folder, 'data', 'logs');
    const names = (await readdir(logs)).filter((name) => name.startsWith('audit'));
    const texts = await Promise.all(names.map((name) => readFile(join(logs, name), 'utf8')));
    return texts.flatMap((text) => text.split('\n')).filter((line) => line.endsWith('}'));
  }

  test('have each line of their files once in the database', async (t) => {
    const nodes = await Promise.all(
      ['mx1', 'mx2'].map(async (node) => {
        const folder = await temporaryFolder(t);
        const logs = join(folder, 'data', 'logs');
        await mkdir(logs, { recursive: true });
        // Of the time before the cluster: the next lines need another file.
        const earlier = range(0, 1000).map((number) => `${JSON.stringify(entry(number))}\n`);
        await writeFile(auditPath(logs, 0), earlier.join('').slice(0, 65_500));
        return { node, folder };
      }),
    );
    const killed = async ({ node, folder }: { node: string; folder: string }): Promise<void> => {
      const process = await ServerProcess.start(t, { folder, config: configOf(node) });
      const admin = HttpClient.admin(process.http);
      const sent = Array.from({ length: 4 }, async (_, worker) => {
        for (let number = 0; ; number += 1)
          await admin.request(`/users/nobody${worker}-${number}@${'x'.repeat(150)}.example`, { method: 'DELETE' });
      });
      const isOver = Promise.allSettled(sent);
      const seen = `select count(*) from postern.audit where node = '${node}'`;
      const count = await server.psql(seen, 'killed');
      await untilTrue('lines are copied', async () => (await server.psql(seen, 'killed')) !== count, 60_000);
      await server.psql(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'postern/%/pages'",
        'killed',
      );
      await process.kill('SIGKILL');
      await isOver;
    };
    for (let round = 0; round < 4; round += 1) await Promise.all(nodes.map(killed));
    for (const { node, folder } of nodes) {
      const process = await ServerProcess.start(t, { folder, config: configOf(node) });
      const admin = new HttpClient(process.http, { username: 'admin', password: adminPassword });
      const lines = await linesIn(folder);
      assert.ok((await readdir(join(folder, 'data', 'logs'))).includes('audit.1.log'));
      assert.equal(new Set(lines).size, lines.length);
      await untilTrue(
        `all of ${node} is copied`,
        async () => {
          const query = `/audit?limit=1&result=all&node=${node}`;
          const { total } = (await admin.json(query)) as { total: number };
          return total === lines.length;
        },
        60_000,
      );
      const stored = await server.psql(
        `select count(*), count(distinct line), count(distinct position) from postern.audit where node = '${node}'`,
        'killed',
      );
      assert.equal(stored, [lines.length, lines.length, lines.length].join('|'));
    }
  });
});
