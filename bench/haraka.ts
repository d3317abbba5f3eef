import { execFileSync, spawn } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { freePort, listening, stopChild, type Peer } from './peer.js';

const version = '3.3.4';
/** Releases of what it stands on that registries have had for a while; the newest ones cannot be had everywhere. */
const overrides = { 'encoding-japanese': '2.4.0', libqp: '2.1.2' };

/** As durable as the others: a file with its own fsync, renamed into `new`, and an fsync of the folder that all who wait share. */
const plugin = (inbox: string): string => `
const fs = require('node:fs/promises');
const { join } = require('node:path');
const tmp = ${JSON.stringify(join(inbox, '..', 'tmp'))};
const inbox = ${JSON.stringify(inbox)};
let count = 0;
let running;
let next;
async function run() {
  const folder = await fs.open(inbox, 'r');
  try { await folder.sync(); } finally { await folder.close(); }
}
function syncFolder() {
  if (!running) return (running = run().finally(() => { running = undefined; }));
  return (next ??= running.catch(() => {}).then(() => { next = undefined; return syncFolder(); }));
}
async function store(data) {
  const name = Date.now() + '.' + (count += 1);
  const file = await fs.open(join(tmp, name), 'wx', 0o600);
  try { await file.write(data); await file.sync(); } finally { await file.close(); }
  await fs.rename(join(tmp, name), join(inbox, name));
  await syncFolder();
}
exports.hook_rcpt = (next) => next(OK);
exports.hook_queue = (next, connection) => {
  connection.transaction.message_stream.get_data((data) => {
    store(data).then(() => next(OK), (error) => next(DENYSOFT, error.message));
  });
};
`;

/** Haraka, put by npm into a cache folder at its first use. Undefined, with a sentence, when that does not work. */
export async function startHaraka(
  folder: string,
  [key, cert]: readonly [key: string, cert: string],
): Promise<Peer | undefined> {
  const script = installHaraka();
  if (script === undefined) return undefined;
  const inbox = join(folder, 'mail', 'new');
  for (const path of ['config', 'plugins', 'mail/tmp', 'mail/new', 'queue'])
    mkdirSync(join(folder, path), { recursive: true });
  const port = await freePort();
  const files = {
    'smtp.ini': `listen=127.0.0.1:${port}\nnodes=0\n`,
    plugins: 'tls\nmaildir\n',
    me: 'localhost\n',
    host_list: 'localhost\n',
    loglevel: 'LOGCRIT\n',
    'log.ini': '[main]\nlevel=crit\n',
  };
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, 'config', name), text);
  copyFileSync(key, join(folder, 'config', 'tls_key.pem'));
  copyFileSync(cert, join(folder, 'config', 'tls_cert.pem'));
  copyFileSync(join(script, '..', '..', 'config', 'connection.ini'), join(folder, 'config', 'connection.ini'));
  writeFileSync(join(folder, 'plugins', 'maildir.js'), plugin(inbox));
  const child = spawn(process.execPath, [script, '-c', folder], { stdio: 'ignore' });
  if (await listening(port, 20)) return { name: 'haraka', port, pid: child.pid, inbox, stop: () => stopChild(child) };
  child.kill('SIGKILL');
  process.stderr.write('Haraka did not start; it is left out.\n');
  return undefined;
}

/** Its script, from the cache folder; undefined, with a sentence, when it cannot be had. */
export function installHaraka(): string | undefined {
  const home = join(homedir(), '.cache', 'postern-bench', `haraka-${version}`);
  const script = join(home, 'node_modules', 'Haraka', 'bin', 'haraka');
  if (existsSync(script)) return script;
  process.stderr.write(`Haraka is put into ${home} …\n`);
  mkdirSync(home, { recursive: true });
  try {
    const quiet = ['--no-audit', '--no-fund', '--omit=optional', '--ignore-scripts', '--loglevel=error'];
    writeFileSync(join(home, 'package.json'), JSON.stringify({ private: true, overrides }));
    execFileSync('npm', ['install', '--prefix', home, ...quiet, `Haraka@${version}`], { stdio: 'ignore' });
  } catch {
    process.stderr.write('Haraka could not be installed; it is left out.\n');
    return undefined;
  }
  return existsSync(script) ? script : undefined;
}
