import { constants, type Stats } from 'node:fs';
import { access, lstat, readdir, stat, statfs } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { pino } from 'pino';
import type { Clock } from '../../core/clock.js';
import { advice, type Finding, fine, skipped, trouble } from '../../core/contracts/doctor-check.js';
import { faultCode, isMissing } from '../../core/disk/fault.js';
import { type FileLayer, nodeFiles, readOnlyFiles, writeAll } from '../../core/disk/file-layer.js';
import { uniqueId } from '../../core/disk/id.js';
import { checkFormat, othersMay } from '../../core/host/data-folder.js';
import { CommitLog } from '../../core/spool/commit-log.js';
import { pluralize } from '../../core/text/format.js';
import type { CoreCheck, DoctorContext } from './doctor-context.js';

/** Maximum entries whose permissions are checked; mailboxes have more. */
const maxEntries = 5000;
/** Created by the file system in its top folder. */
const lostAndFound = 'lost+found';
/** Folders between which messages are linked or renamed. */
const together = ['spool', 'spool-log', 'uploads', 'mail', 'queue', 'drafts'];

export const dataChecks: readonly CoreCheck[] = [
  { group: 'Data folder', name: 'data-folder', run: dataFolder },
  { group: 'Data folder', name: 'rights', run: whenThere(rights) },
  { group: 'Data folder', name: 'file-system', run: whenThere(fileSystem) },
  { group: 'Data folder', name: 'inodes', run: whenThere(inodes) },
  { group: 'Data folder', name: 'format', run: whenThere(format) },
  { group: 'Data folder', name: 'commit-log', run: whenThere(commitLog) },
  { group: 'Data folder', name: 'disk-trial', run: whenThere(disk) },
];

/** Names a document that would stop the start. */
async function format(data: string): Promise<readonly Finding[]> {
  await checkFormat(data);
  return [];
}

/** Damage that a start has recorded, and damage that the next one will find. */
async function commitLog(data: string, { owner, clock }: DoctorContext): Promise<readonly Finding[]> {
  const folder = join(data, 'spool-log');
  const found = await lstat(folder).catch(() => undefined);
  if (found?.isDirectory() !== true) return [];
  const aside = join(folder, 'aside');
  const count = (await readdir(aside).catch(() => [])).filter((name) => !name.startsWith('.')).length;
  const findings: Finding[] = [];
  if (count > 0) {
    const is = `The commit log was damaged: ${pluralize(count, 'file lies', 'files lie')} in ${aside}.`;
    findings.push(trouble(is, `Look there: notes say what is lost. Then: rm ${aside}/*`));
  }
  if (owner.state !== 'none') return findings;
  const { damage } = await CommitLog.open(folder, { files: readOnlyFiles, log: pino({ level: 'silent' }), clock });
  const todo = 'Start the server, which reads what it can, or restore a backup.';
  return [...findings, ...damage.map(({ sentence }) => trouble(`The commit log is damaged. ${sentence}`, todo))];
}

type Look = (data: string, context: DoctorContext) => Promise<readonly Finding[]>;

/** Without a folder there is nothing to check, and the first check reports that. */
function whenThere(look: Look): CoreCheck['run'] {
  return async (context) => {
    const { data } = context.configuration;
    const found = await stat(data).catch(() => undefined);
    return found?.isDirectory() === true ? look(data, context) : [];
  };
}

async function dataFolder({ configuration: { data }, owner }: DoctorContext): Promise<readonly Finding[]> {
  try {
    const found = await stat(data);
    if (!found.isDirectory()) return [trouble(`${data} is not a folder.`, 'Name another with data or --data.')];
    return [fine(`The data folder ${data} is there. ${ownerSentence(owner)}`)];
  } catch (error) {
    if (!isMissing(error)) {
      const is = `The data folder ${data} cannot be looked at (${faultCode(error) ?? 'error'}).`;
      return [trouble(is, 'Run this as the user of the server.')];
    }
    return [await placeForNew(data)];
  }
}

function ownerSentence(owner: DoctorContext['owner']): string {
  if (owner.state === 'none') return 'No server runs on it.';
  if (owner.state === 'hidden') return `Who owns it cannot be read (${owner.code}).`;
  return `Process ${owner.lock.pid}, started ${owner.lock.startedAt}, owns it.`;
}

async function placeForNew(data: string): Promise<Finding> {
  let above = dirname(data);
  while ((await stat(above).catch(() => undefined)) === undefined && dirname(above) !== above) above = dirname(above);
  try {
    await access(above, constants.W_OK | constants.X_OK);
    return fine(`The data folder ${data} is not there yet; the first start makes it.`);
  } catch {
    const is = `The data folder ${data} is not there, and this user may not make it in ${above}.`;
    return trouble(is, `Make it and let it belong to the user of the server, or name another with --data.`);
  }
}

async function rights(data: string): Promise<readonly Finding[]> {
  const top = await stat(data);
  const findings: Finding[] = [];
  if ((top.mode & othersMay) !== 0) {
    findings.push(trouble(`Other users may look into ${data} (mode ${modeOf(top)}).`, `chmod 700 ${data}`));
  }
  const { looked, open, otherOwner, complete } = await lookThrough(data, top.uid);
  if (open !== undefined) {
    const is = `Other users may look at ${open.path} (mode ${modeOf(open.stats)}).`;
    findings.push(advice(is, `chmod -R go-rwx ${data}`));
  }
  if (otherOwner !== undefined) {
    const is = `${otherOwner.path} belongs to user ${otherOwner.stats.uid}, the data folder to user ${top.uid}.`;
    findings.push(trouble(is, `chown -R ${top.uid}:${top.gid} ${data}, as after a copy by root.`));
  }
  if (findings.length > 0) return findings;
  const some = complete ? pluralize(looked, 'entry belongs', 'entries belong') : `The first ${looked} entries belong`;
  return [fine(`${some} to user ${top.uid}, and nobody else may look at them.`)];
}

interface Entry {
  readonly path: string;
  readonly stats: Stats;
}

/** Mailboxes may be shared with other programs, which choose the permissions below `mail`. */
async function lookThrough(data: string, uid: number) {
  let [looked, open, otherOwner] = [0, undefined as Entry | undefined, undefined as Entry | undefined];
  const folders = [data];
  for (let folder = folders.shift(); folder !== undefined; folder = folders.shift()) {
    for (const entry of await readdir(folder, { withFileTypes: true }).catch(() => [])) {
      if (looked >= maxEntries) return { looked, open, otherOwner, complete: false };
      const path = join(folder, entry.name);
      if (path === join(data, lostAndFound)) continue;
      const stats = await lstat(path).catch(() => undefined);
      if (stats === undefined) continue;
      looked += 1;
      if (stats.uid !== uid) otherOwner ??= { path, stats };
      if (path === join(data, 'mail')) continue;
      if (!stats.isSymbolicLink() && (stats.mode & othersMay) !== 0) open ??= { path, stats };
      if (stats.isDirectory()) folders.push(path);
    }
  }
  return { looked, open, otherOwner, complete: true };
}

const modeOf = ({ mode }: Stats): string => (mode & 0o7777).toString(8).padStart(4, '0');

/** Messages are linked and renamed between folders, which needs one file system. */
async function fileSystem(data: string): Promise<readonly Finding[]> {
  const [{ type }, { dev }] = await Promise.all([statfs(data), stat(data)]);
  const elsewhere: string[] = [];
  for (const name of together) {
    const below = await stat(join(data, name)).catch(() => undefined);
    if (below !== undefined && below.dev !== dev) elsewhere.push(join(data, name));
  }
  const kind = fileSystemFinding(data, type);
  if (elsewhere.length === 0) return [kind];
  const is = `${elsewhere.join(', ')}: not on the file system of ${data}, so that messages cannot be linked.`;
  return [kind, trouble(is, 'Put the whole data folder on one file system.')];
}

async function inodes(data: string): Promise<readonly Finding[]> {
  const { files, ffree } = await statfs(data);
  if (files === 0) return [skipped('This file system has no fixed number of inodes.')];
  const is = `${ffree} of ${files} inodes are free; each message is a file.`;
  if (ffree < 1000) return [trouble(is, 'Remove files, or make a file system with more inodes.')];
  return [ffree < files / 50 ? advice(is, 'Make room in time, or a file system with more inodes.') : fine(is)];
}

/** Root can write where the server may not, so the result would say nothing. */
async function disk(data: string, { clock }: DoctorContext): Promise<readonly Finding[]> {
  const { uid } = await stat(data);
  const mine = process.getuid?.();
  if (mine === 0 && uid !== 0) return [skipped(`Whether user ${uid} may write is not tried as root.`)];
  return new DiskTrial(data, nodeFiles, clock).run();
}

const block = Buffer.alloc(4096);
const writes = 5;
/** All mail waits for these. */
const slowMs = 50;

/** Message of the system, or its code. */
const faults: Readonly<Record<string, string>> = {
  ENOSPC: 'the disk is full',
  EDQUOT: 'the quota is used up',
  EROFS: 'the file system is read-only',
  EACCES: 'this user may not write there',
  EPERM: 'this user may not write there',
  EIO: 'the disk reported an error',
};

/** Does with a small file what delivery does: write, fdatasync, link, rename, fsync of the folder; then removes it. */
export class DiskTrial {
  readonly #files: FileLayer;
  readonly #clock: Clock;
  readonly #folder: string;

  constructor(folder: string, files: FileLayer, clock: Clock) {
    this.#folder = folder;
    this.#files = files;
    this.#clock = clock;
  }

  async run(): Promise<readonly Finding[]> {
    const names = ['', '-link', '-name'].map((end) => join(this.#folder, `.probe-${uniqueId()}${end}`));
    const [path = '', linked = '', renamed = ''] = names;
    try {
      const ms = await this.#write(path);
      const links = await this.#tryTo(() => this.#files.link(path, linked));
      await this.#files.rename(path, renamed);
      await this.#syncFolder();
      return [latency(ms), linkFinding(links)];
    } catch (error) {
      const code = faultCode(error) ?? 'error';
      const why = faults[code] ?? `the system says ${code}`;
      return [trouble(`The data folder ${this.#folder} cannot be written: ${why}.`, todoFor(code))];
    } finally {
      for (const name of names) await this.#files.unlink(name).catch(() => undefined);
    }
  }

  /** Median in milliseconds. */
  async #write(path: string): Promise<number> {
    const fd = await this.#files.open(path, 'wx', 0o600);
    const took: number[] = [];
    try {
      for (let n = 0; n < writes; n += 1) {
        const began = this.#clock.monotonic();
        await writeAll(this.#files, fd, [block]);
        await this.#files.fdatasync(fd);
        took.push(this.#clock.monotonic() - began);
      }
    } finally {
      await this.#files.close(fd);
    }
    return took.toSorted((a, b) => a - b)[Math.floor(writes / 2)] ?? 0;
  }

  async #tryTo(step: () => Promise<void>): Promise<string | undefined> {
    try {
      await step();
      return undefined;
    } catch (error) {
      return faultCode(error) ?? 'error';
    }
  }

  async #syncFolder(): Promise<void> {
    const fd = await this.#files.open(this.#folder, 'r');
    try {
      await this.#files.fsync(fd);
    } finally {
      await this.#files.close(fd);
    }
  }
}

function latency(ms: number): Finding {
  const is = `4 KB are written durably in ${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms.`;
  if (ms <= slowMs) return fine(is);
  return advice(is, 'Mail waits for that: look for what else uses the disk, or use a faster one.');
}

function linkFinding(failed: string | undefined): Finding {
  if (failed === undefined) return fine('Hard links and renames work, and the folder can be fsynced.');
  return advice(
    `The file system makes no hard links (${failed}): a message for several mailboxes is copied for each.`,
    'Use a file system with hard links, such as ext4 or XFS.',
  );
}

function todoFor(code: string): string {
  if (code === 'ENOSPC' || code === 'EDQUOT') return 'Make room. Mail is refused with a temporary answer until then.';
  if (code === 'EACCES' || code === 'EPERM')
    return 'Run this as the user of the server, and let the folder belong to it.';
  return code === 'EROFS' ? 'Mount it writable; see what made it read-only (dmesg).' : 'Look at the disk (dmesg).';
}

/** By the magic number of statfs(2): why the file system is unsuitable for mail, and what to do. */
const kinds: Readonly<Record<number, readonly [name: string, warning?: string, todo?: string]>> = {
  0x6969: ['NFS', 'where fsync, locks and links may promise more than they keep', 'Prefer a local disk.'],
  0xff534d42: ['CIFS', 'where fsync and links may promise more than they keep', 'Prefer a local disk.'],
  0xfe534d42: ['SMB', 'where fsync and links may promise more than they keep', 'Prefer a local disk.'],
  0x65735546: ['FUSE', 'where fsync does what its program makes of it', 'Prefer a local disk.'],
  0x1021997: ['9p', 'where fsync does what the host makes of it', 'Prefer a local disk.'],
  0x1021994: ['tmpfs', 'which is memory: mail is gone with the next boot', 'Put the data folder on a disk.'],
  0x858458f6: ['ramfs', 'which is memory: mail is gone with the next boot', 'Put the data folder on a disk.'],
  0x794c7630: ['overlay', 'which goes with its container', 'Put the data folder on a volume.'],
  0xef53: ['ext4'],
  0x58465342: ['XFS'],
  0x9123683e: ['Btrfs'],
  0x2fc12fc1: ['ZFS'],
  0xf2f52010: ['F2FS'],
};

/** @param type of statfs(2) */
export function fileSystemFinding(data: string, type: number): Finding {
  const [name, warning, todo] = kinds[type] ?? [`a file system of type 0x${type.toString(16)}`];
  if (warning === undefined || todo === undefined) return fine(`The data folder ${data} is on ${name}.`);
  return advice(`The data folder ${data} is on ${name}, ${warning}.`, todo);
}
