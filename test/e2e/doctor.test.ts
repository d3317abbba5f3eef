import assert from 'node:assert/strict';
import { once } from 'node:events';
import { chmod, chown, mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import type { ReportedFinding } from '../../plugins/doctor/doctor.js';
import { DnsServer } from '../support/dns-server.js';
import { freePort } from '../support/free-port.js';
import { projectRoot } from '../support/project.js';
import { adminPassword, freeListeners, runPostern, ServerProcess } from '../support/server-process.js';
import { SmallDisk } from '../support/small-disk.js';
import { SmtpClient } from '../support/smtp-client.js';
import { temporaryFolder } from '../support/temporary-folder.js';

const isRoot = process.getuid?.() === 0;
const asRoot = { skip: !isRoot && 'needs root' };

interface Looked {
  readonly code: number | null;
  readonly findings: readonly ReportedFinding[];
  /** States of a check, and its sentences. */
  of(check: string): string;
}

async function look(folder: string, launcher?: readonly string[], args: readonly string[] = []): Promise<Looked> {
  const { code, stdout, stderr } = await runPostern(['doctor', '--json', ...args], {
    cwd: folder,
    env: { POSTERN_ADMIN_PASSWORD: adminPassword },
    ...(launcher !== undefined && { launcher }),
  });
  assert.equal(stderr, '');
  const { counts, findings } = JSON.parse(stdout) as {
    counts: Record<string, number>;
    findings: readonly ReportedFinding[];
  };
  assert.equal(code, (counts['problem'] ?? 0) > 0 ? 1 : 0, stdout);
  return {
    code,
    findings,
    of: (check) =>
      findings
        .filter((finding) => finding.check === check)
        .map(({ state, is, todo }) => `${state}: ${is}${todo === undefined ? '' : ` → ${todo}`}`)
        .join('\n'),
  };
}

describe('postern doctor', { concurrency: 2 }, () => {
  test('in an empty folder: nothing is wrong, nothing is made, and it reads well', async (t) => {
    const cwd = await temporaryFolder(t);
    await writeFile(join(cwd, 'postern.json5'), `{ http: { port: 0 }, smtp: { listeners: ${freeListeners} } }`);
    const { code, stdout, stderr } = await runPostern(['doctor'], { cwd });
    assert.deepEqual([code, stderr], [0, '']);
    assert.match(stdout, /^Postern \S+, looked at 20\S+\n\nConfiguration\n {2}ok {7}/);
    assert.match(stdout, /\nNo problems, \w+ pieces? of advice; \d+ ok, \d+ skipped\.\n$/);
    assert.ok(!stdout.includes('\u001B'));
    assert.ok(stdout.split('\n').every((line) => line.length <= 80 || line.includes('/')));
    assert.deepEqual(await readdir(cwd), ['postern.json5']);
    const help = await runPostern(['--help'], { cwd });
    assert.match(help.stdout, /^ {2}doctor +check ports/m);
  });

  test('beside a healthy server: reports ports, health and queue, and no secret', async (t) => {
    const folder = await temporaryFolder(t);
    const dns = await DnsServer.start(t, { 'acme.org': { silent: true } });
    const config = `{
      domains: ['acme.org'], dns: { servers: ['${dns.address}'] },
      smtp: { listeners: [{ mode: 'mx', port: 0 }, { name: 'open', host: '0.0.0.0', port: 0 }] },
    }`;
    const server = await ServerProcess.start(t, { folder, config });
    const looked = await look(folder);
    assert.match(
      looked.of('ports'),
      new RegExp(`^ok: The pages listen on 127\\.0\\.0\\.1:${new URL(server.http).port} `),
    );
    assert.match(looked.of('server'), /^\w+: The server \(process \d+, started .*\) answers in \d+ ms/);
    assert.match(looked.of('queue'), /^ok: 0 message/);
    assert.match(looked.of('log'), /^ok: /);
    assert.match(looked.of('users'), /^advice: Nobody but postmaster has a mailbox.*postern user add NAME@acme\.org/);
    assert.match(looked.of('dns'), /^problem: The name servers do not answer in time/);
    assert.match(looked.of('rights'), /^ok: /);
    assert.ok(!JSON.stringify(looked.findings).includes(adminPassword));
    const probes = (await readdir(join(folder, 'data'))).filter((name) => name.startsWith('.probe-'));
    assert.deepEqual(probes, []);
  });

  test('beside a server whose port was named on its command line, and beside one whose configuration was changed', async (t) => {
    const folder = await temporaryFolder(t);
    const [configured, named, changed] = [await freePort(), await freePort(), await freePort()];
    const config = (second: number) =>
      `{ smtp: { listeners: [{ port: ${configured} }, { name: 'second', port: ${second} }] } }`;
    const args = ['--smtp-port', `${named}`];
    await ServerProcess.start(t, { folder, config: config(0), args });
    assert.match(
      (await look(folder)).of('ports'),
      new RegExp(`\nok: The SMTP listener mx listens on 127\\.0\\.0\\.1:${named} \\(process`),
    );
    await writeFile(join(folder, 'postern.json5'), config(changed));
    assert.match(
      (await look(folder)).of('ports'),
      new RegExp(`\nproblem: The SMTP listener second should listen on \\S+:${changed}, but does not\\. → If the`),
    );
  });

  test('a blocked server: whose code it is, its process, and what to do', async (t) => {
    const folder = await temporaryFolder(t);
    await mkdir(join(folder, 'looper'));
    await writeFile(
      join(folder, 'looper', 'index.js'),
      `import { definePlugin } from 'postern/plugin';
       export const looper = definePlugin({ name: 'looper', setup({ smtp }) { smtp.on('rcptTo', () => { for (;;); }); } });`,
    );
    const config = `{ sitePlugins: ['./looper'], watchdog: { stallSeconds: 1 }, smtp: { listeners: ${freeListeners} } }`;
    const server = await ServerProcess.start(t, { folder, config });
    const client = await SmtpClient.greeted({ port: server.smtpPort });
    await client.command('MAIL FROM:<anna@example.org>');
    client.write('RCPT TO:<postmaster@localhost>\r\n');
    let told = '';
    for (let tries = 0; tries < 20 && !told.includes('looper'); tries += 1) told = (await look(folder)).of('server');
    assert.match(
      told,
      new RegExp(
        `^problem: The server \\(process ${server.pid}\\) has answered nothing for .*hook rcptTo of the plugin looper`,
      ),
    );
    assert.match(told, new RegExp(`→ End it with kill -9 ${server.pid}; .*plugins: \\{ "looper": false \\}`));
    await server.kill('SIGKILL');
    const after = await look(folder);
    assert.match(after.of('server'), /^skipped: No server runs/);
    assert.match(after.of('stalls'), /^advice: A run of the server ended while nothing was answered.*looper/);
  });

  test('a port that another program has', async (t) => {
    const other = createServer().listen(0, '127.0.0.1');
    t.after(() => other.close());
    await once(other, 'listening');
    const { port } = other.address() as AddressInfo;
    const folder = await temporaryFolder(t);
    await writeFile(
      join(folder, 'postern.json5'),
      `{ http: { port: ${port} }, smtp: { listeners: ${freeListeners} } }`,
    );
    assert.match(
      (await look(folder)).of('ports'),
      new RegExp(`^problem: The pages cannot listen on .*process ${process.pid}`),
    );
  });

  test('a data folder of another user', asRoot, async (t) => {
    const folder = await temporaryFolder(t);
    await chmod(folder, 0o755);
    await writeFile(join(folder, 'postern.json5'), `{ http: { port: 0 }, smtp: { listeners: ${freeListeners} } }`);
    await mkdir(join(folder, 'data'), { mode: 0o700 });
    await chown(join(folder, 'data'), 4711, 4711);
    const stranger = ['setpriv', '--reuid=4712', '--regid=4712', '--clear-groups'];
    const looked = await look(folder, stranger);
    assert.equal(looked.code, 1);
    assert.match(
      looked.of('user'),
      /^problem: This runs as user 4712, and the data folder belongs to user 4711\. → .*sudo -u '#4711'/,
    );
    assert.match(looked.of('server'), /^problem: Who owns the data folder cannot be read \(EACCES\)/);
    assert.match(
      looked.of('disk-trial'),
      /^problem: The data folder .* cannot be written: this user may not write there/,
    );
    const owner = await look(folder, ['setpriv', '--reuid=4711', '--regid=4711', '--clear-groups']);
    assert.match(owner.of('disk-trial'), /Hard links and renames work/);
  });

  test('a small disk: what is left, and one that is full', asRoot, async (t) => {
    const folder = await temporaryFolder(t);
    const disk = await SmallDisk.mount(t, folder, 'data', 2);
    await writeFile(join(folder, 'postern.json5'), `{ http: { port: 0 }, smtp: { listeners: ${freeListeners} } }`);
    const small = await look(folder);
    assert.match(small.of('disk-space'), /^problem: 2 MiB are free/);
    assert.match(small.of('file-system'), /^advice: .* is on tmpfs, which is memory/);
    await writeFile(join(disk.path, 'fill'), Buffer.alloc(4 * 1024 * 1024)).catch(() => undefined);
    assert.match(
      (await look(folder)).of('disk-trial'),
      /^problem: .* cannot be written: the disk is full. → Make room/,
    );
    await disk.readOnly();
    assert.match((await look(folder)).of('disk-trial'), /^problem: .* cannot be written: the file system is read-only/);
    assert.ok((await stat(join(disk.path, 'fill'))).isFile());
  });

  test('the check of a plugin in the documents is one', async (t) => {
    const folder = await temporaryFolder(t);
    const text = await readFile(join(projectRoot, 'docs', 'doctor.md'), 'utf8');
    const [, code = ''] = /```js\n([\s\S]*?)```/.exec(text) ?? [];
    await mkdir(join(folder, 'greylist'));
    await writeFile(join(folder, 'greylist', 'index.js'), code);
    const config = (minutes: number) =>
      `{ sitePlugins: ['./greylist'], plugins: { greylist: { minutes: ${minutes} } }, http: { port: 0 }, smtp: { listeners: ${freeListeners} } }`;
    await writeFile(join(folder, 'postern.json5'), config(5));
    assert.equal((await look(folder)).of('greylist'), 'skipped: Only a running server knows which clients wait.');
    await writeFile(join(folder, 'postern.json5'), config(90));
    assert.match((await look(folder)).of('greylist'), /^advice: Greylisting takes longer than an hour/);
  });

  test('the outbound connection is tried only on request', async (t) => {
    const folder = await temporaryFolder(t);
    const dns = await DnsServer.start(t, { 'null.org': { MX: [[0, '.']] } });
    await writeFile(join(folder, 'postern.json5'), `{ dns: { servers: ['${dns.address}'] } }`);
    const { code, stdout } = await runPostern(['doctor', 'outbound', 'null.org'], { cwd: folder });
    assert.equal(code, 1, stdout);
    assert.match(stdout, /PROBLEM {2}There is no way to null\.org: null\.org takes no mail/);
    const bad = await runPostern(['doctor', 'outbound'], { cwd: folder });
    assert.deepEqual([bad.code, bad.stdout], [2, '']);
    assert.match(bad.stderr, /Usage: postern doctor outbound DOMAIN/);
  });
});
