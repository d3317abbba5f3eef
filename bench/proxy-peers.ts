import { spawn } from 'node:child_process';
import { copyFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { installHaraka } from './haraka.js';
import { freePort, listening, startPeer, stopChild, type Peer } from './peer.js';
import { startMaster } from './postfix-master.js';

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
  const master = await startMaster(folder, [
    'myhostname = bench.localhost',
    'mydestination = localhost',
    'local_recipient_maps =',
    `smtpd_proxy_filter = 127.0.0.1:${upstream}`,
  ]);
  return master && { name: 'postfix', port: master.port, pid: undefined, inbox: folder, stop: () => master.stop() };
}
