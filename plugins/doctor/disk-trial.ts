import { join } from 'node:path';
import type { Clock } from '../../core/clock.js';
import { advice, fine, trouble, type Finding } from '../../core/contracts/doctor-check.js';
import { type FileLayer, writeAll } from '../../core/disk/file-layer.js';
import { faultCode } from '../../core/disk/fault.js';
import { uniqueId } from '../../core/disk/id.js';

const block = Buffer.alloc(4096);
const writes = 5;
/** Mail waits for each of them. */
const slowMs = 50;

/** What the system says, in words; for others its code. */
const faults: Readonly<Record<string, string>> = {
  ENOSPC: 'the disk is full',
  EDQUOT: 'the quota is used up',
  EROFS: 'the file system is read-only',
  EACCES: 'this user may not write there',
  EPERM: 'this user may not write there',
  EIO: 'the disk reported an error',
};

/** Does with a small file what delivery does: writes, fdatasync, a link, a rename, fsync of the folder. Removes it again. */
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

  /** Milliseconds of the median. */
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
