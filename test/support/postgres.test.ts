import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import pg from 'pg';
import { suiteEnding } from './ending.js';
import { Output } from './output.js';
import { skipWithout } from './peers.js';
import { Postgres } from './postgres.js';
import { until } from './until.js';

async function query(url: string, sql: string): Promise<readonly unknown[]> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => undefined);
  await client.connect();
  const { rows } = await client.query<Record<string, unknown>>(sql);
  await client.end();
  return rows.flatMap((row) => Object.values(row));
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

describe('PostgreSQL in tests', { skip: skipWithout('postgres') }, () => {
  const ending = suiteEnding();
  const started = (): Promise<Postgres> => (server ??= Postgres.start(ending, { tcp: true, durable: true, fill }));
  const fill = async (url: string): Promise<void> => {
    await query(url, 'create table job as select 7 as id');
  };
  let server: Promise<Postgres> | undefined;

  test('each database is a copy of the filled template, over TCP and over the socket', async () => {
    const postgres = await started();
    const url = await postgres.database('one');
    await query(url, 'update job set id = 8');
    assert.deepEqual(await query(url, 'select id from job'), [8]);
    const socket = `postgresql://postgres@/two?host=${postgres.folder}&port=${postgres.port}`;
    await postgres.database('two');
    assert.deepEqual(await query(socket, 'select id from job'), [7]);
    assert.equal(await postgres.psql('select id, 1 from job', 'two'), '7|1');
  });

  test('what was committed is there after an immediate stop, and after the death of a server process', async () => {
    const postgres = await started();
    const url = await postgres.database('three');
    await query(url, 'insert into job values (9)');
    await postgres.restart('immediate');
    assert.deepEqual(await query(url, 'select id from job'), [7, 9]);

    const client = new pg.Client({ connectionString: url });
    const broken = new Promise((resolve) => client.on('error', resolve));
    await client.connect();
    assert.equal(await postgres.killBackendProcess('three'), true);
    await broken;
    const rows = await until('the recovery', () => query(url, 'select id from job').catch(() => undefined));
    assert.deepEqual(rows, [7, 9]);
  });

  test('a killed test leaves neither a process nor a folder', async () => {
    const module = new URL('./postgres.js', import.meta.url).href;
    const script = `const { Postgres } = await import(${JSON.stringify(module)});
      const { folder } = await Postgres.start({ after: () => undefined });
      console.log('in ' + folder); setInterval(() => undefined, 1000);`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', script], { stdio: ['ignore', 'pipe', 'pipe'] });
    const [, folder = ''] = await new Output(child).find(/in (.*)/);
    const pid = Number((await readFile(join(folder, 'data', 'postmaster.pid'), 'utf8')).split('\n')[0]);
    const exit = once(child, 'exit');
    child.kill('SIGKILL');
    await exit;
    await until('the end of its folder', () => (existsSync(folder) ? undefined : true));
    await until('the end of the server', () => (isAlive(pid) ? undefined : true));
  });
});
