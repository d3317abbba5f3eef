import { spawn } from 'node:child_process';
import { copyFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { installHaraka } from './haraka.js';
import { freePort, listening, stopChild } from './peer.js';
import { startMaster } from './postfix-master.js';
import { startPosterns, stopSites } from './site.js';

/** A server that hands each message to the upstream before it answers it. */
export interface ProxyPeer {
  readonly name: string;
  readonly port: number;
  readonly pids: readonly number[];
  stop(): Promise<void>;
}

type Start = (folder: string, upstream: number) => Promise<ProxyPeer | undefined>;

export const proxyPeers: Readonly<Record<string, Start>> = {
  postern: (folder, upstream) => startPostern('postern', folder, upstream, 1),
  postern2: (folder, upstream) => startPostern('postern, 2 processes', folder, upstream, 2),
  haraka: startHaraka,
  postfix: startPostfix,
};

async function startPostern(
  name: string,
  folder: string,
  upstream: number,
  count: number,
): Promise<ProxyPeer | undefined> {
  const rule = { name: 'bench', rcpt: '.*', hosts: [`127.0.0.1:${upstream}`], tls: 'never' };
  const sites = await startPosterns(folder, { plugins: { proxy: { rules: [rule] } } }, count);
  const [first] = sites;
  const pids = sites.map(({ child }) => child.pid ?? 0);
  return first && { name, port: first.smtpPort, pids, stop: () => stopSites(sites) };
}

/** `queue/smtp_proxy`: connected at MAIL, RCPT and DATA passed on as they come. */
async function startHaraka(folder: string, upstream: number): Promise<ProxyPeer | undefined> {
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
  if (await listening(port, 20)) return { name: 'haraka', port, pids: [child.pid ?? 0], stop };
  child.kill('SIGKILL');
  process.stderr.write('Haraka did not start; it is left out.\n');
  return undefined;
}

/** `smtpd_proxy_filter`: one connection to the upstream for each message. */
async function startPostfix(folder: string, upstream: number): Promise<ProxyPeer | undefined> {
  const master = await startMaster(folder, [
    'myhostname = bench.localhost',
    'mydestination = localhost',
    'local_recipient_maps =',
    `smtpd_proxy_filter = 127.0.0.1:${upstream}`,
  ]);
  return master && { name: 'postfix', port: master.port, pids: [master.pid], stop: () => master.stop() };
}
