import { spawn } from 'node:child_process';
import { copyFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { PeerPlace } from '../test/support/bad-peers.js';
import { installHaraka } from './haraka.js';
import { freePort, listening, stopChild } from './peer.js';
import { startMaster } from './postfix-master.js';
import { queueOverHttp } from './relay-http.js';
import type { Sender } from './sender.js';
import { runSenders } from './senders.js';
import { startPosterns, stopSites } from './site.js';

export interface RelayLoad {
  readonly title: string;
  readonly messages: number;
  readonly bytes: number;
  /** Recipients of the message of that number; one that is always the same if absent. */
  readonly to?: (message: number) => readonly string[];
  /** Share of the messages whose server cannot be reached. */
  readonly failing?: number;
  /** Some go to servers that hang. */
  readonly hasBadPeers?: boolean;
}

/** A way into a queue. */
export interface Entrance {
  readonly title: string;
  /** Takes only the load of small messages with one recipient. */
  readonly isForOne?: boolean;
  /** Ends when the last message has been accepted. */
  enqueue(load: RelayLoad): Promise<void>;
  /** The same by a sender that takes the time: milliseconds until each was accepted. */
  time(load: RelayLoad): Promise<readonly number[]>;
}

/** Domains whose server is the sink, and others where nothing listens. */
export const livingDomains = Array.from({ length: 100 }, (_, index) => `d${index}.example`);
export const deadDomains = Array.from({ length: 5 }, (_, index) => `x${index}.example`);
const deadAddress = (index: number): string => `127.0.2.${index + 1}`;

/** A server that accepts all mail from loopback and hands it to the sink. */
export interface RelayPeer {
  readonly pids: readonly number[];
  readonly entrances: readonly Entrance[];
  stop(): Promise<void>;
}

export interface RelayStart {
  readonly folder: string;
  /** Port of the sink. */
  readonly sink: number;
  readonly sender: Sender;
  readonly sessions: number;
  /** Servers that hang, and their port. */
  readonly bad: { readonly port: number; readonly places: readonly PeerPlace[] };
}

export const relayPeers: Readonly<Record<string, (start: RelayStart) => Promise<RelayPeer | undefined>>> = {
  postern: (start) => startPostern('postern, SMTP', start, 1),
  postern2: (start) => startPostern('postern, SMTP, 2 processes', start, 2),
  haraka: startHaraka,
  postfix: (start) => startPostfix('postfix, SMTP', start, []),
  postfix500: (start) => startPostfix('postfix, SMTP, 500 processes', start, ['default_process_limit = 500']),
};

function bySmtp(title: string, port: number, { sender, sessions }: RelayStart): Entrance {
  const toPort = { port, sessions, keep: true };
  return {
    title,
    enqueue: ({ messages, bytes, to }) => sender.send({ ...toPort, messages, bytes, to }),
    time: ({ messages, bytes, to }) => runSenders({ ...toPort, messages, bytes, to }),
  };
}

function byHttp(title: string, port: number, { sessions }: RelayStart): Entrance {
  const time = ({ messages, bytes }: RelayLoad) => queueOverHttp({ port, messages, bytes, connections: sessions });
  return { title, isForOne: true, time, enqueue: (load) => time(load).then(() => undefined) };
}

/** As it comes, with the commit log; its own domain is another one, so that the sender's recipient is somebody elsewhere. */
async function startPostern(title: string, start: RelayStart, count: number): Promise<RelayPeer | undefined> {
  const route = { mx: ['127.0.0.1'], port: start.sink, tls: 'never' };
  const routes: Record<string, object> = { sink: route };
  for (const domain of livingDomains) routes[`to-${domain.split('.', 1)[0]}`] = { ...route, domains: [domain] };
  for (const [index, domain] of deadDomains.entries()) {
    routes[`to-${domain.split('.', 1)[0]}`] = { ...route, mx: [deadAddress(index)], domains: [domain] };
  }
  for (const { domain, address } of start.bad.places) {
    const hanging = { mx: [address], port: start.bad.port, tls: 'opportunistic', domains: [domain] };
    routes[`to-${domain.split('.', 1)[0]}`] = hanging;
  }
  const settings = {
    hostname: 'bench.example',
    domains: ['bench.example'],
    smtp: { relayNetworks: ['127.0.0.0/8'] },
    plugins: { 'client-queue': { routes, defaultRoute: 'sink' } },
  };
  const sites = await startPosterns(start.folder, settings, count);
  const [first] = sites;
  if (first === undefined) return undefined;
  const entrance = bySmtp(title, first.smtpPort, start);
  return {
    pids: sites.map(({ child }) => child.pid ?? 0),
    entrances: count === 1 ? [entrance, byHttp('postern, HTTP', first.port, start)] : [{ ...entrance, isForOne: true }],
    stop: () => stopSites(sites),
  };
}

const relaying = (sink: number): string => `
const dead = ${JSON.stringify(Object.fromEntries(deadDomains.map((domain, index) => [domain, deadAddress(index)])))};
exports.hook_connect = (next, connection) => {
  connection.relaying = true;
  next();
};
exports.hook_rcpt = (next) => next(OK);
exports.hook_get_mx = (next, mail, domain) =>
  next(OK, { priority: 0, exchange: dead[domain] ?? '127.0.0.1', port: ${sink} });
`;

/** Its outbound queue: a file with its own fsync for each message, one connection for each delivery. */
async function startHaraka(start: RelayStart): Promise<RelayPeer | undefined> {
  const { folder, sink } = start;
  const script = installHaraka();
  if (script === undefined) return undefined;
  for (const path of ['config', 'plugins', 'queue']) mkdirSync(join(folder, path));
  const port = await freePort();
  const files = {
    'smtp.ini': `listen=127.0.0.1:${port}\nnodes=0\n`,
    'outbound.ini': 'enable_tls=false\nlocal_mx_ok=true\nconcurrency_max=100\n',
    plugins: 'relaying\n',
    me: 'bench.example\n',
    host_list: 'bench.example\n',
    loglevel: 'LOGCRIT\n',
    'log.ini': '[main]\nlevel=crit\n',
  };
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, 'config', name), text);
  copyFileSync(join(script, '..', '..', 'config', 'connection.ini'), join(folder, 'config', 'connection.ini'));
  writeFileSync(join(folder, 'plugins', 'relaying.js'), relaying(sink));
  const child = spawn(process.execPath, [script, '-c', folder], { stdio: 'ignore' });
  if (await listening(port, 20)) {
    return { pids: [child.pid ?? 0], entrances: [bySmtp('haraka, SMTP', port, start)], stop: () => stopChild(child) };
  }
  child.kill('SIGKILL');
  process.stderr.write('Haraka did not start; it is left out.\n');
  return undefined;
}

/** `relayhost`, with the limits and the connection cache that Postfix comes with. */
async function startPostfix(title: string, start: RelayStart, more: readonly string[]): Promise<RelayPeer | undefined> {
  const elsewhere = deadDomains.map((domain, index) => `{ ${domain} = smtp:[${deadAddress(index)}]:${start.sink} }`);
  const hanging = start.bad.places.map(({ domain, address }) => `{ ${domain} = smtp:[${address}]:${start.bad.port} }`);
  const master = await startMaster(start.folder, [
    ...more,
    'myhostname = bench.example',
    'mydestination =',
    'smtp_tls_security_level = none',
    `relayhost = [127.0.0.1]:${start.sink}`,
    `transport_maps = inline:{ ${[...elsewhere, ...hanging].join(', ')} }`,
  ]);
  if (master === undefined) return undefined;
  return { pids: [master.pid], entrances: [bySmtp(title, master.port, start)], stop: () => master.stop() };
}
