import { readdir, readFile, readlink } from 'node:fs/promises';

/** A socket that listens on this machine. */
export interface ListeningSocket {
  /** `0.0.0.0`, `::`, `192.0.2.1`; IPv6 in full groups. */
  readonly address: string;
  readonly port: number;
  readonly inode: string;
}

export interface SocketOwner {
  readonly pid: number;
  /** As the process calls itself. */
  readonly name: string;
}

const mostProcesses = 50_000;

/** What listens, by proc(5); undefined where the system does not tell. */
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

/** In words of four bytes, each in the order of the machine. */
function addressOf(hex: string): string {
  const words = (hex.match(/.{8}/g) ?? []).map((word) => (word.match(/../g) ?? []).toReversed().join(''));
  const bytes = words.join('');
  if (bytes.length === 8) return (bytes.match(/../g) ?? []).map((byte) => Number.parseInt(byte, 16)).join('.');
  if (/^0+$/.test(bytes)) return '::';
  return (bytes.match(/.{4}/g) ?? []).map((group) => Number.parseInt(group, 16).toString(16)).join(':');
}

/** The process that has that socket; undefined when it may not be seen. */
export async function ownerOfSocket(inode: string, proc = '/proc'): Promise<SocketOwner | undefined> {
  const wanted = `socket:[${inode}]`;
  const pids = (await readdir(proc)).filter((name) => /^\d+$/.test(name)).slice(0, mostProcesses);
  for (const pid of pids) {
    const descriptors = await readdir(`${proc}/${pid}/fd`).catch(() => []);
    const links = await Promise.all(descriptors.map((fd) => readlink(`${proc}/${pid}/fd/${fd}`).catch(() => '')));
    if (!links.includes(wanted)) continue;
    const name = await readFile(`${proc}/${pid}/comm`, 'utf8').catch(() => '');
    return { pid: Number(pid), name: name.trim() };
  }
  return undefined;
}
