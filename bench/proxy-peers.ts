import { execFile, spawn } from 'node:child_process';
import { chmodSync, copyFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { installHaraka } from './haraka.js';
import { freePort, listening, startPeer, stopChild, type Peer } from './peer.js';
import { programOnPath } from './sender.js';

const run = promisify(execFile);

type Start = (folder: string, upstream: number) => Promise<Peer | undefined>;

/** Servers that hand each message to the upstream before they answer it. */
export const proxyPeers: Readonly<Record<string, Start>> = {
  postern: startPostern,
  haraka: startHaraka,
  postfix: startPostfix,
};

function startPostern(folder: string, upstream: number): Promise<Peer> {
  const config = join(folder, 'postern.json5');
  const rule = { name: 'bench', rcpt: '.*', hosts: [`127.0.0.1:${upstream}`], tls: 'never' };
  const listeners = [{ mode: 'mx', port: 0 }];
  writeFileSync(config, JSON.stringify({ smtp: { listeners }, plugins: { proxy: { rules: [rule] } } }));
  const args = ['start', '--config', config, '--http-port', '0', '--smtp-port', '0'];
  return startPeer('postern', fileURLToPath(new URL('../core/postern.cjs', import.meta.url)), args, folder);
}

/** `queue/smtp_proxy`: connected at MAIL, RCPT and DATA passed on as they come. */
async function startHaraka(folder: string, upstream: number): Promise<Peer | undefined> {
  const script = installHaraka();
  if (script === undefined) return undefined;
  for (const path of ['config', 'plugins', 'queue']) mkdirSync(join(folder, path));
  const port = await freePort();
  const files = {
    'smtp.ini': `listen=127.0.0.1:${port}\nnodes=0\n`,
    plugins: 'any_rcpt\nqueue/smtp_proxy\n',
    'smtp_proxy.ini': `host=127.0.0.1\nport=${upstream}\nenable_tls=false\nmax_connections=1000\n`,
    me: 'localhost\n',
    host_list: 'localhost\n',
    loglevel: 'LOGCRIT\n',
    'log.ini': '[main]\nlevel=crit\n',
  };
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, 'config', name), text);
  copyFileSync(join(script, '..', '..', 'config', 'connection.ini'), join(folder, 'config', 'connection.ini'));
  writeFileSync(join(folder, 'plugins', 'any_rcpt.js'), 'exports.hook_rcpt = (next) => next(OK);\n');
  const child = spawn(process.execPath, [script, '-c', folder], { stdio: 'ignore' });
  const stop = () => stopChild(child);
  if (await listening(port, 20)) return { name: 'haraka', port, pid: child.pid, inbox: folder, stop };
  child.kill('SIGKILL');
  process.stderr.write('Haraka did not start; it is left out.\n');
  return undefined;
}

/** `smtpd_proxy_filter`: one connection to the upstream for each message. */
async function startPostfix(folder: string, upstream: number): Promise<Peer | undefined> {
  const program = programOnPath('postfix');
  if (program === undefined || process.getuid?.() !== 0) {
    process.stderr.write('Postfix is not installed, or this is not root; it is left out.\n');
    return undefined;
  }
  const port = await freePort();
  const config = join(folder, 'config');
  for (const path of [config, join(folder, 'queue'), join(folder, 'data')]) mkdirSync(path);
  await run('chown', ['postfix', join(folder, 'data')]);
  for (let path = folder; path.length > 1; path = join(path, '..')) chmodSync(path, 0o755);
  const settings = [
    'compatibility_level = 3.6',
    `queue_directory = ${folder}/queue`,
    `data_directory = ${folder}/data`,
    'myhostname = bench.localhost',
    'mydestination = localhost',
    'local_recipient_maps =',
    'alias_maps =',
    'alias_database =',
    'message_size_limit = 0',
    'inet_interfaces = 127.0.0.1',
    'inet_protocols = ipv4',
    'mynetworks = 127.0.0.0/8',
    'smtpd_client_connection_rate_limit = 0',
    `smtpd_proxy_filter = 127.0.0.1:${upstream}`,
    `maillog_file = ${folder}/maillog`,
    `maillog_file_prefixes = ${folder}`,
  ];
  writeFileSync(join(config, 'main.cf'), `${settings.join('\n')}\n`);
  const { stdout: master } = await run('cat', ['/etc/postfix/master.cf']);
  writeFileSync(join(config, 'master.cf'), master.replace(/^smtp(\s+inet)/m, `127.0.0.1:${port}$1`));
  const stop = async (): Promise<void> => {
    await run(program, ['-c', config, 'stop']).catch(() => undefined);
  };
  try {
    await run(program, ['-c', config, 'start']);
  } catch (error) {
    process.stderr.write(`Postfix did not start and is left out: ${String(error)}\n`);
    return undefined;
  }
  if (await listening(port, 10)) return { name: 'postfix', port, pid: undefined, inbox: folder, stop };
  await stop();
  process.stderr.write('Postfix did not listen; it is left out.\n');
  return undefined;
}
