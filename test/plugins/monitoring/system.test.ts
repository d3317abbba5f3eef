import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { chmod, mkdir, readdir, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { test, type TestContext } from 'node:test';
import { pino } from 'pino';
import { systemClock } from '../../../core/clock.js';
import { WatchdogOptions } from '../../../core/watchdog/options.js';
import { noWatchdog, Watchdog } from '../../../core/watchdog/watchdog.js';
import { Environment } from '../../../plugins/monitoring/system/environment.js';
import { HeapDumps, type HeapDumpsInput } from '../../../plugins/monitoring/system/heap-dumps.js';
import { monitoring } from '../../../plugins/monitoring/index.js';
import { argumentsOf } from '../../../plugins/monitoring/system/system-properties.js';
import { StallRecorder } from '../../../plugins/monitoring/system/stalls.js';
import { ThreadDumps, threadDumpText } from '../../../plugins/monitoring/system/thread-dump.js';
import { plantedSecrets } from '../../core/log/planted-secrets.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { configurationOf, openPluginSite } from '../plugin-site.js';

const configuration = configurationOf([]);
const pages = ['/system/props', '/system/env', '/system/threads'];
const accepts = ['*/*', 'text/html', 'application/json'];

test('text is for scripts, and all of it is for admins only', async (t) => {
  const site = await openPluginSite(t, monitoring, { configuration });
  for (const path of [...pages, '/system/heapdumps']) {
    assert.equal((await site.get(path, { as: 'operator' })).status, 403, path);
    await site.page(path);
  }
  const props = await (await site.get('/system/props')).text();
  assert.match(props, /^node\.version=v\d+\.\d+\.\d+$/m);
  assert.match(props, /^v8\.heap_size_limit=\d+$/m);
  assert.match(props, /^postern\.package\.folder=\/./m);
  if (process.platform === 'linux') assert.match(props, /^limits\.open\.files\.soft=\d+ files$/m);
  assert.match(props, /^locale\.timeZone=\S+$/m);
  for (const line of props.trimEnd().split('\n')) assert.match(line, /^[a-z0-9]+\.[\w.]+=/);
  assert.match(await (await site.get('/system/env')).text(), /^PATH=\//m);
  assert.equal((await site.get('/system/env')).headers.get('cache-control'), 'no-store');
});

test('no planted secret of the environment is on any page, whatever its name', async (t) => {
  const planted = plantedSecrets.slice(0, 20).map(({ plain }, i) => [`SITE_SETTING_${i}`, plain] as const);
  assert.equal(planted.length >= 15, true);
  for (const [name, value] of planted) process.env[name] = value;
  t.after(() => {
    for (const [name] of planted) delete process.env[name];
  });
  const site = await openPluginSite(t, monitoring, { configuration });
  for (const path of [...pages, '/system/heapdumps', '/metrics', '/metrics/prometheus', '/health/extended', '/']) {
    for (const accept of accepts) {
      const body = await (await site.get(path, { headers: { accept } })).text();
      for (const [name, value] of planted) assert.ok(!body.includes(value), `${path} as ${accept} shows ${name}`);
    }
  }
  const text = await (await site.get('/system/env')).text();
  for (const [name] of planted) assert.match(text, new RegExp(`^${name}=••••$`, 'm'));
});

test('values are shown for harmless names and those that were allowed, never under the name of a secret', () => {
  const environment = new Environment({
    PATH: '/bin\nFORGED=1',
    SITE: 'berlin',
    API_TOKEN: 'abc',
    UPSTREAM: 'smtp://mail:geheim@mx.example',
  });
  assert.deepEqual(
    environment.list(['SITE', 'API_TOKEN', 'UPSTREAM']).map(({ name, value }) => `${name}=${value}`),
    ['API_TOKEN=••••', 'PATH=/bin\ufffdFORGED=1', 'SITE=berlin', 'UPSTREAM=smtp://••••@mx.example'],
  );
  assert.ok(environment.list([]).every(({ name, shown }) => shown === (name === 'PATH')));
});

test('of the arguments only what is known to be harmless is shown', () => {
  const given = ['postern.cjs', 'start', '--data', '/srv/mail', '--http-port=80', '--secret', 'x1', '--key=x2', 'x3'];
  assert.equal(argumentsOf(given), 'postern.cjs start --data /srv/mail --http-port=80 --secret •••• --key=•••• ••••');
});

async function watchdogOf(t: TestContext): Promise<Watchdog> {
  const watchdog = await Watchdog.open({
    data: await temporaryFolder(t),
    settings: WatchdogOptions.parse({}),
    log: pino({ level: 'silent' }),
    clock: systemClock,
  });
  t.after(() => watchdog.close());
  return watchdog;
}

function busyInTheMainThread(ms: number): void {
  const end = performance.now() + ms;
  while (performance.now() < end) Math.sqrt(end);
}

test('a stall of the event loop is recorded with what ran', async (t) => {
  let counted = 0;
  const count = (): void => void (counted += 1);
  const recorder = new StallRecorder({ stallWatch: await watchdogOf(t), count });
  t.after(() => recorder.close());
  recorder.watch(300);
  // The thread that watches has to have started, and to hear afterwards that the loop turns again.
  for (let tries = 0; tries < 20 && !recorder.list().some(({ stacks }) => stacks.length > 0); tries += 1) {
    busyInTheMainThread(800);
    await new Promise((resolve) => setTimeout(resolve, 300));
  }
  const stall = recorder.list().find(({ stacks }) => stacks.length > 0);
  assert.ok(stall !== undefined && stall.ms >= 300, JSON.stringify(stall));
  assert.ok(stall.stacks.some(({ frames }) => frames.some((frame) => frame.startsWith('busyInTheMainThread '))));
  assert.match(stall.at, /^\d{4}-.*Z$/);
  assert.equal(counted, recorder.list().length);
  recorder.watch(0);
  assert.equal(recorder.aboveMs, 10_000);
});

test('a deliberate block is not recorded as a stall, but a later one is', async (t) => {
  const watchdog = await watchdogOf(t);
  const recorder = new StallRecorder({ stallWatch: watchdog, count: () => undefined });
  t.after(() => recorder.close());
  recorder.watch(200);
  const turns = (): Promise<unknown> => new Promise((resolve) => setTimeout(resolve, 300));
  const untilRecorded = async (): Promise<void> => {
    const before = recorder.list().length;
    for (let tries = 0; tries < 20 && recorder.list().length === before; tries += 1) {
      busyInTheMainThread(300);
      await turns();
    }
    assert.ok(recorder.list().length > before);
  };
  await untilRecorded();
  watchdog.runDeliberateStall(() => busyInTheMainThread(1500));
  await turns();
  assert.deepEqual(
    recorder.list().filter(({ ms }) => ms >= 1200),
    [],
  );
  assert.throws(() =>
    watchdog.runDeliberateStall(() => {
      throw new Error('no');
    }),
  );
  await untilRecorded();
});

test('the stack of the main thread is seen while it is busy', async () => {
  const dumps = new ThreadDumps(systemClock);
  const taking = dumps.take();
  const dumped = { yet: false };
  void taking.then(() => (dumped.yet = true));
  for (let rounds = 0; rounds < 100 && !dumped.yet; rounds += 1) {
    busyInTheMainThread(60);
    await new Promise((resolve) => setImmediate(resolve));
  }
  const { threads, resources, handles } = await taking;
  const frames = threads[0]?.stacks.flatMap((stack) => stack.frames) ?? [];
  assert.ok(
    frames.some((frame) => /^busyInTheMainThread \(file:.*system\.test\.js:\d+:\d+\)$/.test(frame)),
    frames.join('\n'),
  );
  assert.ok(Object.keys(resources).length > 0);
  assert.ok(handles.every(({ active, total }) => active <= total));
  const text = threadDumpText(await taking);
  assert.match(text, /^"main" #0\n {3}State: RUNNABLE\n {3}- seen \d+ times?\n\tat /m);
});

async function openDumps(t: TestContext, given: Partial<HeapDumpsInput> = {}) {
  const folder = join(await temporaryFolder(t), 'heapdumps');
  await mkdir(folder);
  const log = pino({ level: 'silent' });
  const dumps = new HeapDumps({
    folder,
    keep: () => 2,
    clock: systemClock,
    log,
    stallWatch: noWatchdog,
    write: () => undefined,
    ...given,
  });
  return { folder, dumps };
}

test('one dump at a time, kept to its number, readable by its owner alone', async (t) => {
  const site = await openPluginSite(t, monitoring, { configuration });
  const post = (): Promise<Response> => site.get('/system/heapdump', { method: 'POST' });
  const answers = await Promise.all([post(), post(), post(), post()]);
  assert.deepEqual(
    answers.map(({ status }) => status).toSorted((a, b) => a - b),
    [201, 409, 409, 409],
  );
  const taken = (await answers.find(({ status }) => status === 201)?.json()) as { file: string; size: number };
  const path = join(site.data, 'heapdumps', taken.file);
  assert.equal((await stat(path)).mode & 0o777, 0o600);
  assert.equal((await stat(join(site.data, 'heapdumps'))).mode & 0o777, 0o700);
  assert.equal((await stat(path)).size, taken.size);
  const list = await site.json('/system/heapdumps');
  assert.deepEqual([list['total'], (list['items'] as { file: string }[])[0]?.file], [1, taken.file]);
  const part = await site.get(`/system/heapdumps/${taken.file}`, { headers: { range: 'bytes=0-9' } });
  assert.deepEqual([part.status, await part.text()], [206, '{"snapshot']);
  assert.equal((await site.get(`/system/heapdumps/${taken.file}`, { as: 'operator' })).status, 403);
  assert.equal((await site.get(`/system/heapdumps/${taken.file}`, { method: 'DELETE' })).status, 204);
  assert.equal((await site.get(`/system/heapdumps/${taken.file}`)).status, 404);
  assert.deepEqual(
    site.audit.filter(({ status }) => status !== 409).map(({ action }) => action),
    ['take heap dump', 'delete heap dump'],
  );
});

test('a form asks for confirmation, and the page shows the cost', async (t) => {
  const site = await openPluginSite(t, monitoring, { configuration });
  assert.match(await site.page('/system/heapdumps'), /accepts no mail for about \d+ s/);
  const asked = await site.get('/system/heapdump', {
    method: 'POST',
    headers: { accept: 'text/html', 'content-type': 'application/x-www-form-urlencoded' },
    body: '',
  });
  assert.match(await asked.text(), /passwords included/);
  assert.deepEqual(await readdir(join(site.data, 'heapdumps')), []);
});

test('without room on the disk nothing is written', async (t) => {
  const { dumps, folder } = await openDumps(t, { free: () => Promise.resolve(1000) });
  await assert.rejects(dumps.take(), { problem: 'storage-full' });
  assert.deepEqual(await readdir(folder), []);
});

test('a dump that fails leaves no file', async (t) => {
  const { dumps, folder } = await openDumps(t, {
    write: () => {
      throw new Error('no memory');
    },
  });
  await assert.rejects(dumps.take(), /no memory/);
  assert.deepEqual(await readdir(folder), []);
});

test('a dump of a killed process is removed, and a missing folder is created again', async (t) => {
  const { dumps, folder } = await openDumps(t, { write: (path) => writeFileSync(path, '{}') });
  await writeFile(join(folder, '.heap-20261121T120000-abcdefghijkl.heapsnapshot.tmp'), 'secret');
  await writeFile(join(folder, 'kept.tmp'), 'of somebody else');
  await mkdir(join(folder, '.heap-folder.heapsnapshot.tmp'));
  await dumps.sweep();
  assert.deepEqual((await readdir(folder)).toSorted(), ['.heap-folder.heapsnapshot.tmp', 'kept.tmp']);
  await rm(folder, { recursive: true });
  assert.deepEqual(await dumps.list(), []);
  const { file } = await dumps.take();
  assert.deepEqual(await readdir(folder), [file]);
});

test('links are not followed and no other file can be named', async (t) => {
  const { dumps, folder } = await openDumps(t);
  const outside = join(folder, '..', 'outside');
  await writeFile(outside, 'secret');
  const name = 'heap-20261121T120000-abcdefghijkl.heapsnapshot';
  await symlink(outside, join(folder, name));
  for (const file of [name, '../outside', '..%2foutside', 'outside', '.']) {
    await assert.rejects(dumps.source(file), { problem: 'not-found' });
    await assert.rejects(dumps.remove(file), { problem: 'not-found' });
  }
  assert.deepEqual(await dumps.list(), []);
  await chmod(folder, 0o755);
  const linked = new HeapDumps({
    folder: join(folder, '..', 'link'),
    keep: () => 1,
    clock: systemClock,
    log: pino({ level: 'silent' }),
    stallWatch: noWatchdog,
  });
  await symlink(folder, join(folder, '..', 'link'));
  await assert.rejects(linked.take(), { problem: 'unavailable' });
});
