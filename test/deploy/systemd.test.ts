import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmod, cp, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { giveTo, isRoot, mailAccount } from '../support/account.js';
import { deliver, lines } from '../support/delivery.js';
import { atEnd } from '../support/ending.js';
import { freePort } from '../support/free-port.js';
import { HttpClient } from '../support/http-client.js';
import { listMessages } from '../support/mailbox-reader.js';
import { Output } from '../support/output.js';
import { findPeer, skipWithout } from '../support/peers.js';
import { projectRoot } from '../support/project.js';
import { adminPassword, ServerProcess } from '../support/server-process.js';
import { temporaryFolder, type Ending } from '../support/temporary-folder.js';
import { systemdFolder, UnitFile } from './unit-file.js';
import { WriteTrace } from './write-trace.js';

const service = new UnitFile('postern.service');
const cli = join(projectRoot, 'dist', 'core', 'postern.cjs');
const message = lines('Subject: x', '', 'text');

/** What systemd takes from a hundred points; 15 of them are for listening on a network and running JavaScript. */
const mostExposure = 20;

/** The units with a command that is there. */
async function unitsIn(test: Ending): Promise<string> {
  const folder = await temporaryFolder(test);
  await cp(systemdFolder, folder, { recursive: true });
  for (const name of ['postern.service', 'postern@.service']) {
    const text = await readFile(join(folder, name), 'utf8');
    await writeFile(join(folder, name), text.replace('/usr/local/bin/postern', process.execPath));
  }
  await mkdir(join(folder, 'postern.service.d'));
  await cp(join(folder, 'admin-password.conf'), join(folder, 'postern.service.d', 'admin-password.conf'));
  return folder;
}

describe('the systemd units, statically', { skip: skipWithout('systemd-analyze') }, () => {
  const analyze = (...words: readonly string[]) =>
    spawnSync(findPeer('systemd-analyze') ?? '', words, {
      encoding: 'utf8',
      env: { ...process.env, SYSTEMD_COLORS: '0' },
    });

  test('systemd-analyze verify has nothing to say', async (t) => {
    const folder = await unitsIn(t);
    const { status, stderr } = analyze(
      'verify',
      '--man=no',
      join(folder, 'postern.service'),
      join(folder, 'postern.socket'),
    );
    assert.equal(stderr, '');
    assert.equal(status, 0);
    const several = analyze(
      'verify',
      '--man=no',
      join(folder, 'postern@1.service'),
      join(folder, 'postern-shared.socket'),
    );
    assert.deepEqual([several.stderr, several.status], ['', 0]);
    await writeFile(join(folder, 'postern.service'), '[Service]\nType=notify-me\nExecStart=/bin/true\n');
    assert.notEqual(analyze('verify', '--man=no', join(folder, 'postern.service')).stderr, '');
  });

  test(`systemd-analyze security gives less than ${mostExposure} of 100`, async (t) => {
    const folder = await unitsIn(t);
    const words = ['security', '--offline=true', '--no-pager', `--threshold=${mostExposure}`];
    const { status, stdout } = analyze(...words, join(folder, 'postern.service'));
    t.diagnostic(/Overall exposure level.*/.exec(stdout)?.[0] ?? '');
    assert.equal(status, 0, stdout);
  });

  test('systemd-sysusers makes the user', { skip: skipWithout('systemd-sysusers') }, async (t) => {
    const root = await temporaryFolder(t);
    await mkdir(join(root, 'etc'));
    const made = spawnSync(findPeer('systemd-sysusers') ?? '', [
      `--root=${root}`,
      join(systemdFolder, 'postern.sysusers'),
    ]);
    assert.equal(made.status, 0, made.stderr.toString());
    const user = service.one('User');
    assert.match(await readFile(join(root, 'etc', 'passwd'), 'utf8'), new RegExp(`^${user}:.*:/var/lib/postern:`, 'm'));
  });

  test('the unit of several processes allows no more than the other one', () => {
    const several = new UnitFile('postern@.service');
    const own = new Set(['Description', 'Sockets', 'ExecStart', 'StateDirectory', 'CacheDirectory']);
    for (const key of new Set([...service.keys, ...several.keys])) {
      if (own.has(key)) continue;
      const isRight = key === 'AmbientCapabilities' || key === 'CapabilityBoundingSet';
      assert.deepEqual(several.all(key), isRight ? [''] : service.all(key), key);
    }
    assert.equal(several.one('Sockets'), 'postern-shared.socket');
    assert.equal(several.one('StateDirectory'), 'postern-%i');
    assert.match(several.one('ExecStart'), / --data \/var\/lib\/postern-%i$/);
  });

  test('there is time for sessions to finish, and what V8 needs is allowed', () => {
    assert.ok(Number(service.one('TimeoutStopSec')) > 20, 'longer than shutdownSeconds');
    assert.equal(service.one('MemoryDenyWriteExecute'), 'no');
    assert.equal(service.one('Type'), 'exec');
    assert.match(service.one('ExecReload'), /kill -HUP \$MAINPID/);
    assert.equal(new UnitFile('postern.socket').one('FileDescriptorName'), 'smtp');
  });
});

/** System calls that the unit allows, from the groups that systemd knows. */
function allowedCalls(): ReadonlySet<string> {
  const { stdout } = spawnSync(findPeer('systemd-analyze') ?? '', ['syscall-filter'], { encoding: 'utf8' });
  const groups = new Map<string, readonly string[]>();
  for (const part of stdout.split(/^(?=@)/m)) {
    const [name = '', ...members] = part.split('\n').map((line) => line.trim());
    groups.set(
      name,
      members.filter((member) => /^@?\w[\w-]*$/.test(member)),
    );
  }
  const inGroup = (name: string): readonly string[] =>
    (groups.get(name) ?? []).flatMap((member) => (member.startsWith('@') ? inGroup(member) : [member]));
  const calls = new Set(inGroup('@default'));
  for (const filter of service.all('SystemCallFilter')) {
    const without = filter.startsWith('~');
    for (const group of filter.replace('~', '').split(' ')) {
      for (const call of inGroup(group)) {
        if (without) calls.delete(call);
        else calls.add(call);
      }
    }
  }
  // A list without a call keeps those of @default.
  for (const call of inGroup('@default')) calls.add(call);
  return calls;
}

const tracing = skipWithout('strace') || skipWithout('systemd-analyze');

describe('the command of the service', () => {
  test('works when each system call beyond the filter is refused', { skip: tracing }, async (t) => {
    const folder = await temporaryFolder(t);
    const calls = await knownToStrace(t, allowedCalls());
    assert.ok(calls.length > 200, `${calls.length} calls`);
    const rest = `!${calls.join(',')}`;
    const trace = join(folder, 'trace');
    const words = [
      '-f',
      '--seccomp-bpf',
      '-qq',
      '-o',
      trace,
      '-e',
      `trace=${rest}`,
      '-e',
      `inject=${rest}:error=EPERM`,
    ];
    const server = await ServerProcess.start(t, { folder, launcher: ['strace', ...words] });
    await deliver(server.smtpPort, message);
    const admin = HttpClient.admin(server.http);
    assert.equal((await listMessages(admin)).length, 1);
    for (const page of ['/', '/metrics', '/health/extended', '/system/props', '/logs']) await admin.page(page);
    const pid = pidIn(await readFile(join(folder, 'data', 'postern.lock'), 'utf8'));
    process.kill(pid, 'SIGHUP');
    await server.find(/SIGHUP: changed: nothing/);
    process.kill(pid, 'SIGTERM');
    assert.deepEqual(await server.exit, { code: 0, signal: null });
    const refused = [
      ...new Set([...(await readFile(trace, 'utf8')).matchAll(/^\d+\s+(\w+)\(.*INJECTED/gm)].map(([, name]) => name)),
    ];
    t.diagnostic(`refused: ${refused.join(', ') || 'none'}`);
  });

  const asUnit = tracing || skipWithout('setpriv') || skipWithout('systemd-socket-activate');
  test(
    'runs under its own user on the socket that systemd hands over, and writes nowhere but where it may',
    { skip: asUnit },
    async (t) => {
      const folder = await temporaryFolder(t);
      await chmod(folder, 0o755);
      const [state, cache] = [join(folder, 'state'), join(folder, 'cache')];
      for (const made of [state, cache]) {
        await mkdir(made, { mode: 0o700 });
        await giveTo(mailAccount(), made);
      }
      const config = join(folder, 'postern.json5');
      await writeFile(config, `{ http: { port: 0 }, smtp: { listeners: [{ socket: 'smtp' }] } }`);
      const port = await freePort();
      const trace = new WriteTrace(join(folder, 'trace'));
      const words = [
        ...trace.launcher,
        ...asUser(),
        findPeer('systemd-socket-activate') ?? '',
        `--listen=127.0.0.1:${port}`,
        '--fdname=smtp',
        `--setenv=POSTERN_ADMIN_PASSWORD=${adminPassword}`,
        `--setenv=CACHE_DIRECTORY=${cache}`,
        ...service.command({
          '/usr/local/bin/postern': [process.execPath, cli],
          '/etc/postern/postern.json5': [config],
          '/var/lib/postern': [state],
        }),
      ];
      const child = spawn('sh', ['-c', 'exec "$@" 2>&1', 'sh', ...words], {
        cwd: '/',
        detached: true,
        stdio: ['ignore', 'pipe', 'ignore'],
      });
      const output = new Output(child);
      const exit = once(child, 'exit');
      atEnd(t, async () => {
        if (child.exitCode === null && child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
        await exit;
      });
      await output.find(/^Listening on /m);
      await deliver(port, message);
      const [, http = ''] = await output.find(/^postern ready http=(\S+)/m);
      const admin = HttpClient.admin(http);
      assert.equal((await listMessages(admin)).length, 1);
      for (const page of ['/', '/metrics', '/system/props', '/logs']) await admin.page(page);
      const pid = pidIn(await readFile(join(state, 'postern.lock'), 'utf8'));
      const status = await readFile(`/proc/${pid}/status`, 'utf8');
      assert.match(status, new RegExp(`^Uid:\\s+${mailAccount().uid}\\b`, 'm'));
      assert.match(status, /^NoNewPrivs:\s+1$/m);
      process.kill(pid, 'SIGTERM');
      assert.deepEqual(await exit, [0, null]);
      const paths = await trace.paths();
      assert.ok(paths.includes(join(state, 'postern.lock')), paths.join(' '));
      const mayWrite = (path: string) =>
        path === '/dev/null' || [state, cache].some((place) => path === place || path.startsWith(`${place}/`));
      assert.deepEqual(
        paths.filter((path) => !mayWrite(path)),
        [],
      );
      assert.deepEqual(
        ['StateDirectory', 'CacheDirectory', 'ProtectSystem'].map((key) => service.one(key)),
        ['postern', 'postern', 'strict'],
      );
    },
  );

  test('what would be written elsewhere is seen', { skip: tracing }, async (t) => {
    const folder = await temporaryFolder(t);
    const trace = new WriteTrace(join(folder, 'trace'));
    const [program = '', ...words] = trace.launcher;
    const script = 'echo x >a; mkdir b; ln -s /etc/passwd c; mv a d; rm d; cat /dev/zero | head -c 1; rmdir b';
    spawnSync(program, [...words, 'sh', '-c', script], { cwd: folder });
    const own = (await trace.paths()).filter((path) => !path.startsWith('/dev/'));
    assert.deepEqual(own.toSorted(), ['a', 'b', 'c', 'd']);
  });
});

/** What makes a command run as the unit lets it. A checkout may be where only root can read: so may this user, but not write. */
function asUser(): readonly string[] {
  if (!isRoot()) return ['setpriv', '--no-new-privs'];
  const { uid, gid } = mailAccount();
  const right = 'dac_read_search';
  const rights = [`--bounding-set=-all,+${right}`, `--inh-caps=-all,+${right}`, `--ambient-caps=-all,+${right}`];
  return ['setpriv', `--reuid=${uid}`, `--regid=${gid}`, '--clear-groups', '--no-new-privs', ...rights];
}

const pidIn = (lock: string): number => (JSON.parse(lock) as { readonly pid: number }).pid;

/** Those of the calls whose names this strace knows; it refuses a list with another. */
async function knownToStrace(test: Ending, calls: ReadonlySet<string>): Promise<readonly string[]> {
  const folder = await temporaryFolder(test);
  const isKnown = (names: readonly string[]) =>
    spawnSync('strace', ['-o', join(folder, 'trace'), '-e', `trace=${names.join(',')}`, 'true']).status === 0;
  const known = (names: readonly string[]): readonly string[] => {
    if (isKnown(names)) return names;
    if (names.length === 1) return [];
    const half = Math.ceil(names.length / 2);
    return [...known(names.slice(0, half)), ...known(names.slice(half))];
  };
  return known([...calls]);
}
