import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { builtIns } from '../../core/main.js';
import type { Plugin } from '../../core/plugin.js';
import { builtInCommands } from '../../plugins/commands.js';
import { withoutJson } from '../support/commands.js';
import { suiteEnding } from '../support/ending.js';
import { HttpClient } from '../support/http-client.js';
import {
  adminPassword,
  freeListeners,
  runPostern,
  ServerProcess,
  type CommandResult,
} from '../support/server-process.js';
import { temporaryFolder } from '../support/temporary-folder.js';
import { untilTrue } from '../support/until.js';

const suite = suiteEnding();
const routes = JSON.stringify({ dead: { mx: ['127.0.0.1'], port: 1, domains: ['dead.example', 'gone.example'] } });
const config = `{ smtp: { listeners: ${freeListeners} }, plugins: { 'client-queue': { routes: ${routes} } } }`;

const succeeds = ({ code, stdout, stderr }: CommandResult): string => {
  assert.equal(code, 0, `${stdout}${stderr}`);
  return stdout;
};

const fails = ({ code, stdout, stderr }: CommandResult, status: 1 | 2, sentence: RegExp): void => {
  assert.equal(code, status, `${stdout}${stderr}`);
  assert.match(stderr, sentence);
  assert.doesNotMatch(stderr, /^\s+at /m);
};

describe('commands that ask the running server', () => {
  let folder: string;
  let admin: HttpClient;
  const postern = (...args: readonly string[]) => runPostern(args, { cwd: folder });

  before(async () => {
    folder = await temporaryFolder(suite);
    const server = await ServerProcess.start(suite, { folder, config });
    admin = HttpClient.admin(server.http);
  });

  /** Queues a message and waits for its first attempt. */
  async function queued(rcpt: string): Promise<string> {
    const query = new URLSearchParams({ mail: 'anna@localhost', rcpt });
    const text = `From: anna@localhost\r\nSubject: to ${rcpt}\r\n\r\nx\r\n`;
    const eml = { method: 'POST', body: text, headers: { 'content-type': 'message/rfc822' } };
    const { uid } = (await admin.json(`/client/queue?${query.toString()}`, eml, 202)) as { uid: string };
    await untilTrue('the first attempt', async () => {
      const { state } = (await admin.json(`/client/queue/${uid}`)) as { state: string };
      return state === 'deferred';
    });
    return uid;
  }

  test('queue lists, shows, holds, releases, retries, bounces and deletes by id or by filter', async () => {
    const [one, two] = [await queued('bob@dead.example'), await queued('eve@gone.example')];
    const list = succeeds(await postern('queue', 'list', 'domain=dead.example'));
    assert.match(
      list,
      new RegExp(`^${one}  deferred  <anna@localhost> → bob@dead\\.example  1 attempt, next .*451 4\\.4\\.1`),
    );
    assert.match(list, /\n1 entry\.\n$/);
    assert.match(succeeds(await postern('queue', 'show', one)), /^Subject: to bob@dead\.example$/m);
    const json = JSON.parse(succeeds(await postern('queue', 'list', '--json'))) as { items: { uid: string }[] };
    assert.deepEqual(new Set(json.items.map(({ uid }) => uid)), new Set([one, two]));
    assert.match(succeeds(await postern('queue', 'hold', one)), /^1 recipient in 1 message held\./);
    assert.match(succeeds(await postern('queue', 'release', 'state=held')), /^1 recipient in 1 message released\./);
    assert.match(succeeds(await postern('queue', 'retry', one, two)), /^2 recipients in 2 messages retried\./);
    const dry = succeeds(await postern('queue', 'delete', 'domain=gone.example', '--dry-run'));
    assert.equal(dry, '1 recipient in 1 message would be deleted.\n');
    assert.match(succeeds(await postern('queue', 'delete', two)), /^1 recipient in 1 message deleted\./);
    assert.match(succeeds(await postern('queue', 'bounce', one)), /^1 recipient in 1 message bounced\./);
    assert.match(succeeds(await postern('queue', 'retry', 'unknown-1')), /unknown-1: not found/);
    fails(await postern('queue', 'list', 'nokey=1'), 1, /nokey/);
  });

  test('queue takes ids or a filter, never both or neither', async () => {
    for (const words of [
      [],
      ['retry'],
      ['retry', 'id', 'state=held'],
      ['list', 'id'],
      ['show'],
      ['show', 'id', '--dry-run'],
    ])
      fails(await postern('queue', ...words), 2, /^Usage:\n {2}postern queue list/);
  });

  test('trace shows the messages of an address, and each step of one', async () => {
    const uid = await queued('joe@dead.example');
    const steps = succeeds(await postern('trace', 'joe@dead.example'));
    assert.match(steps, /Queued .*joe@dead\.example[\s\S]*Deferred .*joe@dead\.example by relay, attempt 1/);
    const { traces } = JSON.parse(succeeds(await postern('trace', uid, '--json'))) as { traces: unknown[] };
    assert.equal(traces.length, 1);
    assert.match(succeeds(await postern('trace', 'none@dead.example')), /^Nothing is known/);
    fails(await postern('trace'), 2, /^Usage:/);
  });

  test('status and call print what the server answers', async () => {
    assert.match(succeeds(await postern('status')), /^(?:UP|DEGRADED), Postern \d[\s\S]*\n {2}disk +up/);
    assert.match(succeeds(await postern('status', '--json')), /^\{\n {2}"status"/);
    assert.match(succeeds(await postern('call', 'get', '/users')), /"count": \d/);
    assert.match(succeeds(await postern('call', 'GET', '/metrics/prometheus')), /^# HELP /m);
    const held = '{"uid": "unknown-1"}';
    assert.match(succeeds(await postern('call', 'POST', '/client/queue/hold', held)), /"notFound"/);
    fails(await postern('call', 'GET', '/nothing'), 1, /\S/);
    fails(await postern('call', 'POST', '/client/queue/hold', '{'), 1, /not valid JSON/);
    fails(await postern('call', 'FETCH', '/users'), 2, /no method FETCH/);
    fails(await postern('call', 'GET'), 2, /Usage: postern call METHOD PATH \[JSON\]/);
  });

  test('reload applies the file, or says why not', async () => {
    assert.equal(succeeds(await postern('reload')), 'Nothing has changed.\n');
    const changed = config.replace('{ smtp: {', '{ smtp: { limits: { recipients: 7 },');
    await writeFile(join(folder, 'postern.json5'), changed);
    assert.match(succeeds(await postern('reload', '--dry-run')), /^Would change: smtp\.limits\.recipients$/m);
    assert.match(succeeds(await postern('reload')), /^In force: smtp\.limits\.recipients$/m);
    await writeFile(join(folder, 'postern.json5'), '{ smtp: 1 }');
    fails(await postern('reload', '--data', 'data', '--config', join(folder, 'postern.json5')), 1, /smtp/);
    await writeFile(join(folder, 'postern.json5'), config);
  });
});

/** Words of every command that prints data; in this order, in a folder that `init` has filled. */
const calls: Readonly<Record<string, string>> = {
  init: 'example.org',
  zone: 'example.org',
  'dkim list': '',
  'dkim show': 'example.org',
  'dkim create': 'example.org',
  'config show': 'http.port',
  'config check': '',
  doctor: '',
  'doctor outbound': 'nowhere.example',
  'plugin new': 'doorman',
  'plugin check': './doorman',
  'plugin list': '',
  'password hash': '',
  status: '',
  reload: '--dry-run',
  'account add': 'ben read',
  'account list': '',
  'account role': 'ben operate',
  'account password': 'ben',
  'account remove': 'ben',
  'cluster init': '--print',
  'user add': 'anna@example.org',
  'user list': '',
  'user password': 'anna@example.org',
  'user remove': 'anna@example.org',
  'mailbox remove': 'anna@example.org',
  'queue list': 'state=held',
  'queue show': 'ID',
  'queue hold': 'ID',
  'queue retry': 'ID',
  'queue release': 'state=held',
  'queue bounce': 'state=held --dry-run',
  'queue delete': 'all=true',
  'queue recover': '',
  trace: 'ID',
};
/** They need a database: test/plugins/cluster. */
const elsewhere = [
  'cluster migrate',
  'cluster status',
  'cluster drain',
  'cluster undrain',
  'cluster forget',
  'cluster import-queue',
  'cluster export-queue',
  'cluster move-mailbox',
  'cluster config',
];
/** They find something wrong on a machine of tests. */
const complaining = ['doctor', 'doctor outbound', 'config check'];

test('every command that prints data prints nothing but JSON with --json, and never colours into a pipe', async (t) => {
  const folder = await temporaryFolder(t);
  const postern = (...words: readonly string[]) =>
    runPostern(words, { cwd: folder, input: 'a long enough secret\n', env: { POSTERN_ADMIN_PASSWORD: adminPassword } });
  let id = '';
  for (const [words, args] of Object.entries(calls)) {
    if (words === 'status') {
      const server = await ServerProcess.start(t, { folder, config: `{ domains: ['example.org'], ${config.slice(1)}` });
      const query = 'mail=postmaster@example.org&rcpt=bob@dead.example';
      const headers = { 'content-type': 'message/rfc822' };
      const mail = { method: 'POST', body: 'From: postmaster@example.org\r\n\r\nx\r\n', headers };
      ({ uid: id } = (await HttpClient.admin(server.http).json(`/client/queue?${query}`, mail, 202)) as {
        uid: string;
      });
    } else if (words === 'doctor') {
      const file = join(folder, 'postern.json5');
      // No name server answers there.
      const text = (await readFile(file, 'utf8')).replace('{', "{ dns: { servers: ['127.0.0.1:1'] },");
      await writeFile(file, text);
    } else if (words === 'mailbox remove') {
      for (const part of ['cur', 'new', 'tmp'])
        await mkdir(join(folder, 'data', 'mail', 'example.org', 'anna', part), { recursive: true, mode: 0o700 });
    }
    const typed = [...words.split(' '), ...args.replace('ID', id).split(' ').filter(Boolean)];
    const { code, stdout, stderr } = await postern(...typed, '--json');
    assert.ok(code === 0 || (code === 1 && complaining.includes(words)), `${typed.join(' ')}: ${stderr}${stdout}`);
    assert.ok(typeof JSON.parse(stdout) === 'object', typed.join(' '));
    assert.ok(!`${stdout}${stderr}`.includes('\u001B'), typed.join(' '));
    assert.equal(stderr, '', typed.join(' '));
  }
  const printed = [...builtInCommands.map(({ words }) => words), ...builtIns.flatMap(wordsOfPlugin)];
  assert.deepEqual(
    printed.filter(
      (words) => ![calls, withoutJson].some((known) => Object.hasOwn(known, words)) && !elsewhere.includes(words),
    ),
    [],
  );
});

/** `queue list`, of the lines of its usage. */
const wordsOfPlugin = ({ commands }: Plugin): readonly string[] =>
  commands.flatMap(({ usage }) => usage.map((line) => /^postern (\w+(?: [a-z][a-z-]*)?)/.exec(line)?.[1] ?? line));

describe('every command', { concurrency: 2 }, () => {
  test('says what it needs: a server, its words, an option that it has', async (t) => {
    const folder = await temporaryFolder(t);
    await mkdir(join(folder, 'data'), { mode: 0o700 });
    const postern = (...args: readonly string[]) => runPostern(args, { cwd: folder });
    for (const words of [
      ['queue', 'list'],
      ['status'],
      ['reload'],
      ['trace', 'x'],
      ['call', 'GET', '/'],
      ['mailbox', 'remove', 'a@b.c'],
    ])
      fails(await postern(...words), 1, /No server runs over this data folder/);
    for (const words of [
      ['user'],
      ['mailbox'],
      ['nothing'],
      ['status', '--typescript'],
      ['--port', '1'],
      ['completion', 'tcsh'],
    ])
      fails(await postern(...words), 2, /\S/);
  });

  test('of a plugin of the site has flags, help and completion', async (t) => {
    const folder = await temporaryFolder(t);
    const plugin = `import { definePlugin } from 'postern/plugin';
      export default definePlugin({ name: 'report', setup() {}, commands: [{
        name: 'report', summary: 'Prints a report', usage: ['postern report make NAME [--since DATE] [--all]'],
        ownFlags: { since: { value: 'DATE', summary: 'from that day' }, all: { summary: 'of all domains' } },
        async run({ args, values, terminal }) { terminal.print(JSON.stringify({ args, ...values })); },
      }] });`;
    await writeFile(join(folder, 'report.mjs'), plugin);
    await writeFile(join(folder, 'postern.json5'), `{ sitePlugins: ['./report.mjs'], data: 'data' }`);
    await mkdir(join(folder, 'data'), { mode: 0o700 });
    const postern = (...args: readonly string[]) => runPostern(args, { cwd: folder });
    const words = ['report', 'make', '--since', '2026-01-01', 'x', '--all'];
    assert.equal(succeeds(await postern(...words)), '{"args":["make","x"],"since":"2026-01-01","all":true}\n');
    fails(await postern('report', '--until', 'x'), 2, /--until/);
    fails(await postern('report', '--json'), 2, /postern report takes no --json\./);
    fails(await postern('status', '--since', 'x'), 2, /--since/);
    fails(await postern('--since', 'x'), 2, /--since/);
    const help = succeeds(await postern('report', '--since', 'x', '--help'));
    assert.match(help, /^Prints a report\n\nUsage:\n.*\n\nOptions\n {2}--since DATE {2}from that day\n {2}--all /);
    for (const [shell, own] of [
      ['bash', 'report) words="$words --since --all"'],
      ['zsh', 'report) compadd -- --since --all'],
      ['fish', `'__fish_seen_subcommand_from report' -l since`],
    ] as const)
      assert.ok(succeeds(await postern('completion', shell)).includes(own), shell);
  });

  test('has help of its own', async (t) => {
    const folder = await temporaryFolder(t);
    const help = succeeds(await runPostern(['queue', '--help'], { cwd: folder }));
    assert.match(help, /^Mail that waits: .*\n\nUsage:\n {2}postern queue list /);
    assert.doesNotMatch(help, /postern user/);
    assert.match(succeeds(await runPostern(['help', 'doctor'], { cwd: folder })), /^Usage:\n {2}postern doctor /);
    assert.match(succeeds(await runPostern(['--help'], { cwd: folder })), /^ {2}completion SHELL/m);
  });

  test('is completed by the shell', async (t) => {
    const folder = await temporaryFolder(t);
    const script = succeeds(await runPostern(['completion', 'bash'], { cwd: folder }));
    const completed = (...words: readonly string[]): string => {
      const line = ['postern', ...words].map((word) => `'${word}'`).join(' ');
      const ask = `COMP_WORDS=(${line}) COMP_CWORD=${words.length}; _postern; echo "\${COMPREPLY[*]}"`;
      return execFileSync('bash', ['-c', `${script}\n${ask}`], { encoding: 'utf8' }).trim();
    };
    assert.equal(completed('que'), 'queue');
    assert.equal(completed('queue', 're'), 'retry release recover');
    assert.equal(completed('config', ''), 'show schema reference check');
    assert.equal(completed('queue', '--j'), '--json');
    assert.match(succeeds(await runPostern(['completion', 'fish'], { cwd: folder })), /-a queue -d 'Mail that waits/);
    assert.match(succeeds(await runPostern(['completion', 'zsh'], { cwd: folder })), /3:queue\) compadd -- list/);
  });
});
