import { lookup } from 'node:dns/promises';
import { readdir, readFile, readlink } from 'node:fs/promises';
import { isIP } from 'node:net';
import { z } from 'zod';
import { type Finding, fine, skipped, trouble } from '../../core/contracts/doctor-check.js';
import { normalAddress } from '../../core/net/ip-address.js';
import { tryToListen } from '../../core/net/listening-place.js';
import { type CoreCheck, ownerLock, type DoctorContext } from './doctor-context.js';

export const portChecks: readonly CoreCheck[] = [{ group: 'Ports', name: 'ports', run: ports }];

/** Addresses of the configuration. */
interface Place {
  /** `The SMTP listener mx listens`. */
  readonly who: string;
  readonly listens: 'listen' | 'listens';
  readonly host: string;
  readonly port: number;
  /** The service manager opens it. */
  readonly handedOver: boolean;
  readonly reusePort?: boolean;
}

async function placesOf(context: DoctorContext): Promise<readonly Place[]> {
  const { http, smtp } = context.configuration.settings;
  const portsNow = await smtpPortsNow(context);
  const pages: Place = {
    who: 'The pages',
    listens: 'listen',
    host: http.host,
    port: http.port,
    handedOver: http.socket !== undefined,
  };
  const listeners = smtp.listeners.map(({ name, host, port, fd, socket, reusePort }, index) => ({
    who: `The SMTP listener ${name}`,
    listens: 'listens' as const,
    host,
    port: portsNow.get(index) ?? port,
    handedOver: fd !== undefined || socket !== undefined,
    reusePort,
  }));
  return [{ ...pages, ...pagesNow(context) }, ...listeners];
}

/** The actual addresses: the running server may have another port on its command line. */
function pagesNow(context: DoctorContext): Partial<Place> {
  const http = ownerLock(context)?.http ?? null;
  if (http === null) return {};
  const { hostname, port } = new URL(http);
  return { host: hostname.replace(/^\[|\]$/g, ''), port: Number(port || 80) };
}

const CommandLine = z.object({
  sections: z.array(z.object({ items: z.array(z.object({ key: z.string(), value: z.unknown() })) })),
});

/** Ports by listener index from the command line of the running server. */
async function smtpPortsNow({ owner }: DoctorContext): Promise<ReadonlyMap<number, number>> {
  if (owner.state !== 'answers') return new Map();
  // Without an answer, the configuration counts.
  const answer = await owner.call('GET', '/config?q=smtp.listeners&origin=command+line').catch(() => undefined);
  const { sections } = CommandLine.safeParse(answer?.body).data ?? { sections: [] };
  const named = sections
    .flatMap(({ items }) => items)
    .flatMap(({ key, value }) => {
      const [, index] = /^smtp\.listeners\.(\d+)\.port$/.exec(key) ?? [];
      return index !== undefined && typeof value === 'number' ? [[Number(index), value] as const] : [];
    });
  return new Map(named);
}

async function ports(context: DoctorContext): Promise<readonly Finding[]> {
  const sockets = await listeningSockets();
  const pid = ownerLock(context)?.pid;
  const starting = context.owner.state === 'starting';
  return Promise.all(
    (await placesOf(context)).map(async (place) => {
      if (place.handedOver) return skipped(`${place.who}: its socket comes from the service manager.`);
      if (place.port === 0) return skipped(`${place.who}: it takes any port that is free.`);
      if (pid === undefined) return beforeStart(place, sockets);
      const found = await whileRunning(place, pid, sockets);
      return starting && found.state === 'problem' ? skipped(`${place.who}: the server is still starting.`) : found;
    }),
  );
}

const at = ({ host, port }: Place): string => `${host.includes(':') ? `[${host}]` : host}:${port}`;

async function whileRunning(
  place: Place,
  pid: number,
  sockets: readonly ListeningSocket[] | undefined,
): Promise<Finding> {
  if (sockets === undefined) return skipped(`${place.who}: this system does not list listening sockets.`);
  const found = await listeningAt(place, sockets);
  if (found.length === 0) {
    const is = `${place.who} should listen on ${at(place)}, but does not.`;
    return trouble(is, 'If the configuration was changed, reload or restart the server; else its log says why.');
  }
  const owners = await Promise.all(found.map(({ inode }) => ownerOfSocket(inode)));
  if (owners.some((owner) => owner?.pid === pid))
    return fine(`${place.who} ${place.listens} on ${at(place)} (process ${pid}).`);
  const other = owners.find((owner) => owner !== undefined);
  if (other === undefined) return fine(`Another process listens on ${at(place)}; this user may not see which.`);
  const is = `${place.who} should listen on ${at(place)}, but ${other.name} (process ${other.pid}) does.`;
  return trouble(is, 'Stop that program, or choose another port; then reload or restart the server.');
}

async function beforeStart(place: Place, sockets: readonly ListeningSocket[] | undefined): Promise<Finding> {
  const code = await tryToListen(place.host, place.port, place.reusePort);
  if (code === undefined) return fine(`${place.who}: ${at(place)} is free.`);
  const is = `${place.who} cannot listen on ${at(place)}`;
  switch (code) {
    case 'EADDRINUSE': {
      const who = await whoListens(place, sockets);
      return trouble(`${is}: ${who} does.`, 'Stop that program, or choose another port.');
    }
    case 'EACCES':
      return trouble(
        `${is}: ports below 1024 need a right that this user does not have here.`,
        'The unit in deploy/systemd gives it to the server: start it, and look again. Else let systemd hand over the socket, or choose a port above 1023.',
      );
    case 'EADDRNOTAVAIL':
      return trouble(
        `${is}: this machine has no such address.`,
        'Name one of its addresses, or 0.0.0.0 or :: for all.',
      );
    default:
      return trouble(`${is}: the system says ${code}.`, 'Name an IP address of this machine.');
  }
}

async function whoListens(place: Place, sockets: readonly ListeningSocket[] = []): Promise<string> {
  // A listener on one address also conflicts with one on all addresses.
  const found = [...(await listeningAt(place, sockets)), ...sockets.filter(({ port }) => port === place.port)];
  for (const { inode } of found) {
    const owner = await ownerOfSocket(inode);
    if (owner !== undefined) return `${owner.name} (process ${owner.pid})`;
  }
  return 'another program';
}

/** Sockets that accept connections to that address, including those on all addresses. */
async function listeningAt(place: Place, sockets: readonly ListeningSocket[]): Promise<readonly ListeningSocket[]> {
  const addresses = await addressesOf(place.host);
  return sockets.filter(({ address, port }) => {
    if (port !== place.port) return false;
    return address === '0.0.0.0' || address === '::' || addresses.includes(normalAddress(address));
  });
}

/** A host may be a name, which is resolved at the start. */
async function addressesOf(host: string): Promise<readonly string[]> {
  if (isIP(host) !== 0) return [normalAddress(host)];
  const found = await lookup(host, { all: true }).catch(() => []);
  return found.map(({ address }) => normalAddress(address));
}

/** A listening socket of this machine. */
interface ListeningSocket {
  /** `0.0.0.0`, `::`, `192.0.2.1`; IPv6 in full groups. */
  readonly address: string;
  readonly port: number;
  readonly inode: string;
}

interface SocketOwner {
  readonly pid: number;
  /** Command name of the process. */
  readonly name: string;
}

const maxProcesses = 50_000;

/** Listening sockets, from proc(5); undefined on other systems. */
export async function listeningSockets(proc = '/proc'): Promise<readonly ListeningSocket[] | undefined> {
  try {
    const tables = await Promise.all(
      ['tcp', 'tcp6'].map((name) => readFile(`${proc}/net/${name}`, 'latin1').catch(() => '')),
    );
    if (tables.every((table) => table === '')) return undefined;
    return tables.flatMap((table) => table.split('\n').slice(1).flatMap(socketOf));
  } catch {
    return undefined;
  }
}

const listening = '0A';

function socketOf(line: string): readonly ListeningSocket[] {
  const [, local = '', , state, , , , , , inode = ''] = line.trim().split(/\s+/);
  const [hex = '', port = ''] = local.split(':');
  if (state !== listening || !/^(?:[0-9A-F]{8}|[0-9A-F]{32})$/.test(hex) || !/^\d+$/.test(inode)) return [];
  return [{ address: addressOf(hex), port: Number.parseInt(port, 16), inode }];
}

/** In words of four bytes, each in the byte order of the machine. */
function addressOf(hex: string): string {
  const words = (hex.match(/.{8}/g) ?? []).map((word) => (word.match(/../g) ?? []).toReversed().join(''));
  const bytes = words.join('');
  if (bytes.length === 8) return (bytes.match(/../g) ?? []).map((byte) => Number.parseInt(byte, 16)).join('.');
  if (/^0+$/.test(bytes)) return '::';
  return (bytes.match(/.{4}/g) ?? []).map((group) => Number.parseInt(group, 16).toString(16)).join(':');
}

/** The process with that socket; undefined without permission. */
export async function ownerOfSocket(inode: string, proc = '/proc'): Promise<SocketOwner | undefined> {
  const wanted = `socket:[${inode}]`;
  const pids = (await readdir(proc)).filter((name) => /^\d+$/.test(name)).slice(0, maxProcesses);
  for (const pid of pids) {
    const descriptors = await readdir(`${proc}/${pid}/fd`).catch(() => []);
    const links = await Promise.all(descriptors.map((fd) => readlink(`${proc}/${pid}/fd/${fd}`).catch(() => '')));
    if (!links.includes(wanted)) continue;
    const name = await readFile(`${proc}/${pid}/comm`, 'utf8').catch(() => '');
    return { pid: Number(pid), name: name.trim() };
  }
  return undefined;
}
