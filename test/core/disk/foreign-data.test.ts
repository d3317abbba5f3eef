import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdir, rm, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import { pino } from 'pino';
import { watchDataFolder } from '../../../core/disk/foreign-data.js';
import { unknownInFolders } from '../../../core/disk/unknown-entries.js';
import { HealthRegistry } from '../../../core/host/health.js';
import { HandClock } from '../../support/hand-clock.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { until } from '../../support/until.js';

const id = '01m81eqb9n000fcnbjw1';
const hex = '0123456789abcdef'.repeat(4);

const own: readonly string[] = [
  'users.json',
  'postern.lock',
  `idempotency/${hex}.json`,
  `idempotency/.${hex}.json.${id}.tmp`,
  'logs/audit.log',
  'logs/audit.12.log',
  'logs/postern-2026-11-21.log',
  'logs/postern-2026-11-21.3.log',
  `config/${id}/base.json5`,
  `spool/${id}`,
  `spool/.probe-${id}`,
  `uploads/${id}`,
];

async function opened(t: TestContext) {
  const data = await temporaryFolder(t);
  for (const path of own) await put(join(data, path));
  await symlink(id, join(data, 'config/current'));
  await symlink(id, join(data, `config/${id}.link`));
  const clock = new HandClock();
  const health = new HealthRegistry({ clock });
  const foreign = watchDataFolder({ data, health, clock, log: pino({ level: 'silent' }) });
  return { data, clock, foreign };
}

async function put(path: string): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, '');
}

describe('what is foreign in the folders of the server', () => {
  test('is nothing of what the server writes there', async (t) => {
    const { foreign } = await opened(t);
    await foreign.look();
    assert.deepEqual(foreign.report(), { status: 'up' });
  });

  for (const path of ['notes.txt', 'config/notes.txt', 'idempotency/notes', 'logs/notes.log', 'spool/x', 'uploads/x']) {
    test(`is ${path}, told until it is gone`, async (t) => {
      const { data, clock, foreign } = await opened(t);
      await put(join(data, path));
      await foreign.look();
      assert.deepEqual(foreign.report(), {
        status: 'degraded',
        why: `1 entry of the data folder is of nobody here, and is left alone: "${path}".`,
      });
      await rm(join(data, path));
      clock.advance(9);
      assert.equal(foreign.report().status, 'degraded');
      clock.advance(1);
      await until('nothing foreign', () => (foreign.report().status === 'up' ? true : undefined));
    });
  }

  test('is counted: two are entries', async (t) => {
    const { data, foreign } = await opened(t);
    for (const name of ['a', 'b']) await put(join(data, name));
    await foreign.look();
    const why = '2 entries of the data folder are of nobody here, and are left alone: "a", "b".';
    assert.deepEqual(foreign.report(), { status: 'degraded', why });
  });

  test('is what has a name of ours and is of another kind', async (t) => {
    const { data, foreign } = await opened(t);
    await rm(join(data, 'config/current'));
    await put(join(data, 'config/current'));
    await rm(join(data, 'logs/audit.log'));
    await symlink('/etc/hostname', join(data, 'logs/audit.log'));
    await rm(join(data, `uploads/${id}`));
    execFileSync('mkfifo', [join(data, `uploads/${id}`)]);
    await foreign.look();
    assert.match(foreign.report().why ?? '', /^3 entries .*: "config\/current", "logs\/audit\.log", "uploads\//);
  });
});

test('a folder that is missing, or no folder, has nothing foreign in it', async (t) => {
  const data = await temporaryFolder(t);
  await writeFile(join(data, 'file'), '');
  await symlink('loop', join(data, 'loop'));
  const nothing = () => false;
  assert.deepEqual(await unknownInFolders(data, { missing: nothing, file: nothing, loop: nothing }), []);
  assert.deepEqual(await unknownInFolders(data, { '': nothing }), ['file', 'loop']);
});
