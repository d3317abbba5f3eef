import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { appendFile, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { configure } from '../../core/main.js';
import { offerTls } from '../plugins/cluster/cluster-site.js';
import { selfSigned } from '../support/certificate.js';
import { findPeer, skipWithout } from '../support/peers.js';
import { Postgres } from '../support/postgres.js';
import { temporaryFolder } from '../support/temporary-folder.js';
import { deployFolder } from './unit-file.js';

const read = (name: string): Promise<string> => readFile(join(deployFolder, 'cluster', name), 'utf8');

describe('the example of a cluster', () => {
  test('the configuration of a node has no mistakes', async (t) => {
    const folder = await temporaryFolder(t);
    await mkdir(join(folder, 'etc'));
    await writeFile(join(folder, 'etc', 'db-password'), 'secret', { mode: 0o600 });
    const text = (await read('postern.json5')).replaceAll('/etc/postern', join(folder, 'etc'));
    await writeFile(join(folder, 'postern.json5'), text.replace('/var/lib/postern', join(folder, 'data')));
    const { options } = await configure({}, { cwd: folder, env: {}, print: () => undefined });
    const { node, database } = options.get('cluster') as { node: string; database: { user: string; password: string } };
    assert.deepEqual([node, database.user, database.password], ['mx1', 'postern_app', 'secret']);
  });

  test('HAProxy takes its file', { skip: skipWithout('haproxy') }, () => {
    const { status, stderr } = spawnSync(
      findPeer('haproxy') ?? '',
      ['-c', '-f', join(deployFolder, 'cluster', 'haproxy.cfg')],
      { encoding: 'utf8' },
    );
    assert.equal(status, 0, stderr);
  });

  test('PostgreSQL takes its files', { skip: skipWithout('postgres') }, async (t) => {
    const server = await Postgres.start(t, { tcp: true });
    await offerTls(server, selfSigned('localhost'));
    const data = join(server.folder, 'data');
    await writeFile(join(data, 'given.conf'), await read('postgresql.conf'), { mode: 0o644 });
    await writeFile(join(data, 'pg_hba.conf'), await read('pg_hba.conf'), { mode: 0o644 });
    await appendFile(join(data, 'postgresql.conf'), "include 'given.conf'\n");
    // Some would need a restart.
    const faults = `select name, error from pg_file_settings where error is not null and error <> 'setting could not be applied'`;
    assert.equal(await server.psql(faults), '');
    const names = await server.psql(
      "select count(distinct name) from pg_file_settings where sourcefile like '%given.conf'",
    );
    assert.equal(Number(names), (await read('postgresql.conf')).split('\n').filter((line) => /^\w/.test(line)).length);
    const rules = await server.psql('select count(*) from pg_hba_file_rules where error is not null');
    assert.equal(rules, '0');
  });
});
