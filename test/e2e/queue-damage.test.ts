import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdir, open, readdir, readFile, rename, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { HttpClient } from '../support/http-client.js';
import { runPostern, ServerProcess } from '../support/server-process.js';
import { SmtpSink } from '../support/smtp-sink.js';
import { temporaryFolder } from '../support/temporary-folder.js';
import { until, untilTrue } from '../support/until.js';

const messages = 5;

interface Fixture {
  readonly data: string;
  readonly sink: SmtpSink;
  readonly start: () => Promise<{ readonly server: ServerProcess; readonly admin: HttpClient }>;
  /** The next attempts are accepted. */
  readonly relent: () => void;
}

async function fixtureOf(t: Parameters<typeof temporaryFolder>[0]): Promise<Fixture> {
  const folder = await temporaryFolder(t);
  let isStubborn = true;
  const sink = await SmtpSink.start(t, { steps: { rcpt: () => (isStubborn ? '451 4.3.0 Later' : undefined) } });
  const config = `{
    smtp: { listeners: [{ mode: 'mx', port: 0 }] },
    plugins: { 'client-queue': {
      routes: { next: { mx: ['127.0.0.1'], port: ${sink.port}, tls: 'never' } },
      defaultRoute: 'next',
      housekeepingInterval: 1,
    } },
  }`;
  return {
    data: join(folder, 'data'),
    sink,
    relent: () => {
      isStubborn = false;
    },
    start: async () => {
      const server = await ServerProcess.start(t, { folder, config });
      return { server, admin: HttpClient.admin(server.http) };
    },
  };
}

interface List {
  readonly total: number;
  readonly items: readonly { readonly uid: string; readonly state: string; readonly reason?: string }[];
}

const listOf = async (admin: HttpClient, path: string) => (await admin.json(path)) as List;

/** Messages that the other server has put off. */
async function deferred(admin: HttpClient): Promise<readonly string[]> {
  for (let n = 0; n < messages; n += 1) {
    const envelope = { mail: 'postmaster@localhost', rcpt: [`bob${n}@far.example`], text: 'Hello.' };
    await admin.json('/client/queue', { json: { envelopes: [envelope] } }, 202);
  }
  const list = await until('the attempts', async () => {
    const found = await listOf(admin, '/client/queue/list?state=deferred');
    return found.total === messages ? found : undefined;
  });
  return list.items.map(({ uid }) => uid).sort();
}

async function componentOf(admin: HttpClient, name: string): Promise<{ status: string; why: string | null }> {
  const health = (await admin.json('/health/extended')) as {
    components: Record<string, { status: string; why: string | null }>;
  };
  return health.components[name] ?? { status: 'none', why: null };
}

async function largestSegment(folder: string): Promise<string> {
  const list = JSON.parse(await readFile(join(folder, 'segments.json'), 'utf8')) as { segments: { name: string }[] };
  return join(folder, list.segments.at(-1)?.name ?? '');
}

async function overwrite(path: string, at: number, bytes: Buffer): Promise<void> {
  const file = await open(path, 'r+');
  await file.write(bytes, 0, bytes.length, at);
  await file.close();
}

for (const [title, harm] of [
  ['removed', (path: string) => rm(path)],
  ['emptied', (path: string) => truncate(path, 0)],
  ['zero in its first 4 KiB', (path: string) => overwrite(path, 0, Buffer.alloc(4096))],
] as const) {
  test(`F-R1: a segment of the journal of the queue is ${title}: no message is lost over two starts, and all can be recovered`, async (t) => {
    const fixture = await fixtureOf(t);
    const first = await fixture.start();
    const uids = await deferred(first.admin);
    await first.server.kill('SIGKILL');
    await harm(await largestSegment(join(fixture.data, 'queue', 'journal')));
    const second = await fixture.start();
    await second.server.kill('SIGTERM');

    const { admin, server } = await fixture.start();
    const missing = await until('every message in the queue or in quarantine', async () => {
      const [entries, aside] = [
        await listOf(admin, '/client/queue/list'),
        await listOf(admin, '/client/queue/quarantine'),
      ];
      return entries.total + aside.total >= messages ? aside.items : undefined;
    });
    const health = await componentOf(admin, 'queue');
    assert.equal(health.status, 'degraded');
    assert.match(health.why ?? '', /postern queue recover|rm queue\/journal\/aside/);
    assert.match(await admin.page('/client/queue/list'), /in quarantine|was damaged/);
    const metrics = (await admin.request('/metrics', { accept: 'text/plain' })).text;
    assert.match(metrics, new RegExp(`^postern_queue_quarantined_files ${missing.length}$`, 'm'));

    assert.match(await admin.page('/client/queue/quarantine'), /Recover messages/);

    const cwd = join(fixture.data, '..');
    const doctor = await runPostern(['doctor'], { cwd });
    assert.equal(doctor.code, 1);
    assert.match(doctor.stdout, /postern queue recover|queue\/journal\/aside/);
    const dry = await runPostern(['queue', 'recover', '--dry-run'], { cwd });
    assert.match(dry.stdout, new RegExp(`^${missing.length} messages? can be queued again`));
    const { total } = await listOf(admin, '/client/queue/list');
    assert.equal(total, messages - missing.length, 'a dry run changes nothing');
    const answer = await admin.json('/client/queue/recover', { method: 'POST', json: {} });
    assert.deepEqual(
      [(answer as { recovered: number }).recovered, (answer as { left: unknown[] }).left],
      [missing.length, []],
    );
    fixture.relent();
    await admin.json('/client/queue/retry', { method: 'POST', json: { filter: { all: true } } }).catch(() => undefined);
    const entries = await listOf(admin, '/client/queue/list?state=queued,active,deferred,delivered');
    assert.deepEqual(entries.items.map(({ uid }) => uid).sort(), uids);
    assert.equal((await listOf(admin, '/client/queue/quarantine')).total, 0);
    await server.kill('SIGTERM');

    const stopped = await runPostern(['doctor'], { cwd });
    assert.match(stopped.stdout, /queue\/journal\/aside/, 'damage is known until an operator clears it');
  });
}

test('F-R5: a byte of a queued message that changed, or a message that was cut, is noticed at the attempt', async (t) => {
  const fixture = await fixtureOf(t);
  const first = await fixture.start();
  const uids = await deferred(first.admin);
  await first.server.kill('SIGTERM');
  const files: string[] = [];
  for (const shard of '0123456789abcdef') {
    const folder = join(fixture.data, 'queue', shard);
    files.push(...(await readdir(folder)).map((name) => join(folder, name)));
  }
  assert.equal(files.length, messages);
  const [flipped = '', cut = '', gone = ''] = files;
  const bytes = await readFile(flipped);
  await overwrite(flipped, bytes.indexOf('Hello'), Buffer.from('J'));
  await truncate(cut, (await stat(cut)).size - 3);
  await rm(gone);
  fixture.relent();
  const { admin } = await fixture.start();
  await admin.json('/client/queue/retry', { method: 'POST', json: { uids } });
  await untilTrue('three held messages', async () => {
    const held = await listOf(admin, '/client/queue/list?state=held');
    return held.total === 3;
  });
  await untilTrue('two sent messages', () => fixture.sink.messages.length === 2);
  const health = await componentOf(admin, 'queue');
  assert.deepEqual([health.status, /3 messages are held/.test(health.why ?? '')], ['degraded', true], health.why ?? '');
  const doctor = await runPostern(['doctor'], { cwd: join(fixture.data, '..') });
  assert.equal(doctor.code, 1);
  assert.match(doctor.stdout, /held/);
  assert.ok(fixture.sink.messages.every(({ text }) => text.includes('Hello')));
});

for (const what of ['users.json', 'format.json', 'destinations.json', 'postern.lock'] as const) {
  test(`F-R19: a pipe in the place of ${what} does not hang the start`, async (t) => {
    const folder = await temporaryFolder(t);
    await mkdir(join(folder, 'data'));
    execFileSync('mkfifo', [join(folder, 'data', what)]);
    await writeFile(join(folder, 'postern.json5'), '{ smtp: { listeners: [{ port: 0 }] } }');
    const { code, stderr } = await runPostern(['start', '--http-port', '0'], { cwd: folder });
    assert.equal(code, 1);
    assert.match(stderr, new RegExp(`${what.replace('.', '\\.')}.*not a regular file`));
  });
}

test('F-R19: a pipe in the place of a queued message holds up neither start nor stop', async (t) => {
  const fixture = await fixtureOf(t);
  const first = await fixture.start();
  const [uid = ''] = await deferred(first.admin);
  await first.server.kill('SIGTERM');
  for (const shard of '0123456789abcdef') {
    const path = join(fixture.data, 'queue', shard, `${uid}.eml`);
    if ((await stat(path).catch(() => undefined)) === undefined) continue;
    await rename(path, `${fixture.data}/was.eml`);
    execFileSync('mkfifo', [path]);
  }
  const { server, admin } = await fixture.start();
  await untilTrue('the held message', async () => {
    const held = await listOf(admin, '/client/queue/list?state=held');
    return held.total === 1;
  });
  const before = performance.now();
  await server.kill('SIGTERM');
  assert.ok(performance.now() - before < 8000);
});
