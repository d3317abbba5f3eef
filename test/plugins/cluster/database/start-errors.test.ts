import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { unsafe } from '../../../../plugins/cluster/database/server-state.js';
import { selfSigned } from '../../../support/certificate.js';
import { suiteEnding } from '../../../support/ending.js';
import { skipWithout } from '../../../support/peers.js';
import { Postgres } from '../../../support/postgres.js';
import { temporaryFolder } from '../../../support/temporary-folder.js';
import {
  appPassword,
  cluster,
  joined,
  offerTls,
  openClusterSite,
  settingsOf,
  superuserPassword,
  wantPasswords,
} from '../cluster-site.js';

test('plain TCP is for loopback only', () => {
  assert.throws(() => settingsOf({ hosts: ['10.0.0.10'], tls: 'off' }), /may be off only where every host is/);
});

test('an old PostgreSQL and one that forgets are refused in plain words', () => {
  const well = { number: 150_018, version: '15.18', fsync: 'on', pages: 'on', commit: 'on', synchronous: '' };
  assert.equal(unsafe(well), undefined);
  assert.match(unsafe({ ...well, number: 130_012, version: '13.12' }) ?? '', /PostgreSQL 13\.12; 14 is the oldest/);
  assert.match(unsafe({ ...well, fsync: 'off' }) ?? '', /runs with fsync off/);
  assert.match(unsafe({ ...well, pages: 'off' }) ?? '', /runs with full_page_writes off/);
  assert.match(unsafe({ ...well, commit: 'off' }) ?? '', /synchronous_commit off/);
});

describe('a node does not start, and says why', { skip: skipWithout('postgres') }, () => {
  const ending = suiteEnding();
  let server: Postgres;
  const pair = selfSigned('localhost');
  const database = (more: object = {}) => ({
    hosts: [`localhost:${server.port}`],
    password: appPassword,
    tls: { ca: join(server.folder, 'data', 'server.crt') },
    ...more,
  });
  const refusal = (more: object = {}): Promise<unknown> =>
    openClusterSite(ending, { node: 'mx1', sessionSeconds: 2, database: database(more) }).then(
      () => 'it started',
      (error: Error) => error.message,
    );
  before(async () => {
    server = await Postgres.start(ending, { tcp: true, durable: true });
    await wantPasswords(server);
    await offerTls(server, pair);
    await server.psql('create database empty');
    const options = settingsOf(database());
    for (const words of ['init', 'migrate --user postgres'])
      assert.equal((await cluster(words, options, { answers: [superuserPassword] })).error, '');
  });

  test('over TLS with a checked certificate and SCRAM it starts', async (t) => {
    const site = await openClusterSite(t, { node: 'mx1', sessionSeconds: 2, database: database() });
    const { nodes } = (await site.json('/cluster')) as { nodes: { node: string }[] };
    assert.deepEqual(
      nodes.map(({ node }) => node),
      ['mx1'],
    );
  });

  test('when the tables are missing, or of another version', async () => {
    assert.match(
      String(await refusal({ name: 'empty' })),
      /tables of the cluster are missing.*postern cluster migrate/,
    );
    await server.psql("insert into postern.schema (version, least_reader, script_hash) values (99, 99, '')", 'postern');
    assert.match(String(await refusal()), /have version 99, which needs a newer server/);
    await server.psql('delete from postern.schema where version = 99', 'postern');
  });

  test('when password, role or database are wrong', async () => {
    assert.match(String(await refusal({ password: 'wrong' })), /refuses the password of postern_app/);
    assert.match(String(await refusal({ password: undefined })), /asks for the password of postern_app/);
    assert.match(String(await refusal({ name: 'nowhere' })), /database "nowhere" does not exist.*postern cluster init/);
    await server.psql("create role stranger login password 'x'");
    assert.match(
      String(await refusal({ user: 'stranger', password: 'x' })),
      /The role stranger has not all of its rights/,
    );
  });

  test('when the certificate is not trusted, is for another name, or is not offered', async (t) => {
    const folder = await temporaryFolder(t);
    const ca = join(folder, 'other.pem');
    await writeFile(ca, selfSigned('localhost').cert);
    assert.match(String(await refusal({ tls: { ca } })), /certificate of the database is not trusted/);
    assert.match(String(await refusal({ tls: {} })), /certificate of the database is not trusted/);
    assert.match(String(await refusal({ hosts: [`127.0.0.1:${server.port}`] })), /for another name/);
    assert.match(
      String(await refusal({ tls: { ca: join(folder, 'none.pem') } })),
      /file .*none\.pem .* cannot be read/,
    );
    await server.alter('set ssl = off');
    assert.match(String(await refusal()), /The database offers no TLS/);
    await server.alter('reset ssl');
  });

  test('when another server has its name', async (t) => {
    await joined(t, settingsOf(database(), { node: 'mx1' }));
    assert.match(String(await refusal()), /Another server of the cluster calls itself mx1/);
  });

  test('when the database would forget mail', async () => {
    await server.alter('set fsync = off');
    const told = await refusal();
    await server.alter('reset fsync');
    assert.match(String(told), /runs with fsync off/);
  });
});
