import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdir, rm, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import { pino } from 'pino';
import { watchDataFolder } from '../../../core/host/data-folder.js';
import { UnknownEntries, unknownInFolders } from '../../../core/host/unknown-entries.js';
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
  const unknown = watchDataFolder(data, { health, clock, log: pino({ level: 'silent' }) });
  return { data, clock, unknown };
}

async function put(path: string): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, '');
}

describe('unknown entries of the data folder', () => {
  test('do not include what the server writes', async (t) => {
    const { unknown } = await opened(t);
    await unknown.look();
    assert.deepEqual(unknown.report(), { status: 'up' });
  });

  for (const path of ['notes.txt', 'config/notes.txt', 'idempotency/notes', 'logs/notes.log', 'spool/x', 'uploads/x']) {
    test(`include ${path}, reported until it is gone`, async (t) => {
      const { data, clock, unknown } = await opened(t);
      await put(join(data, path));
      await unknown.look();
      assert.deepEqual(unknown.report(), {
        status: 'degraded',
        why: `1 entry of the data folder is unknown, and is left alone: "${path}".`,
      });
      await rm(join(data, path));
      clock.advance(9);
      assert.equal(unknown.report().status, 'degraded');
      clock.advance(1);
      await until('no unknown entry', () => (unknown.report().status === 'up' ? true : undefined));
    });
  }

  test('are counted', async (t) => {
    const { data, unknown } = await opened(t);
    for (const name of ['a', 'b']) await put(join(data, name));
    await unknown.look();
    const why = '2 entries of the data folder are unknown, and are left alone: "a", "b".';
    assert.deepEqual(unknown.report(), { status: 'degraded', why });
  });

  test('include entries with a known name and another type', async (t) => {
    const { data, unknown } = await opened(t);
    await rm(join(data, 'config/current'));
    await put(join(data, 'config/current'));
    await rm(join(data, 'logs/audit.log'));
    await symlink('/etc/hostname', join(data, 'logs/audit.log'));
    await rm(join(data, `uploads/${id}`));
    execFileSync('mkfifo', [join(data, `uploads/${id}`)]);
    await unknown.look();
    assert.match(unknown.report().why ?? '', /^3 entries .*: "config\/current", "logs\/audit\.log", "uploads\//);
  });
});

test('a missing folder, and what is not a folder, has no unknown entries', async (t) => {
  const data = await temporaryFolder(t);
  await writeFile(join(data, 'file'), '');
  await symlink('loop', join(data, 'loop'));
  const nothing = () => false;
  assert.deepEqual(await unknownInFolders(data, { missing: nothing, file: nothing, loop: nothing }), []);
  assert.deepEqual(await unknownInFolders(data, { '': nothing }), ['file', 'loop']);
});

test('a slow look is repeated rarely, and looks never overlap', async () => {
  const clock = new HandClock();
  let looks = 0;
  let end: (names: readonly string[]) => void = () => undefined;
  const find = () => {
    looks += 1;
    return new Promise<readonly string[]>((resolve) => (end = resolve));
  };
  const unknown = new UnknownEntries({
    what: { one: 'entry', several: 'entries' },
    find,
    clock,
    log: pino({ level: 'silent' }),
  });
  const first = unknown.look();
  clock.advance(2);
  end(['notes']);
  await first;
  clock.advance(199);
  unknown.report();
  assert.equal(looks, 1);
  clock.advance(1);
  unknown.report();
  clock.advance(1000);
  unknown.report();
  assert.equal(looks, 2);
});
