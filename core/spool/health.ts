import { join } from 'node:path';
import { type Clock, systemClock } from '../clock.js';
import { writeDurable } from '../disk/atomic.js';
import { faultCode } from '../disk/fault.js';
import { type FileLayer, nodeFiles } from '../disk/file-layer.js';
import { uniqueId } from '../disk/id.js';
import type { HealthReport } from '../contracts/health.js';

/** Minimum interval of probes. */
const probeEveryMs = 1000;

const diskFaults: Readonly<Record<string, string>> = {
  ENOSPC: 'The disk is full.',
  EDQUOT: 'The disk quota is used up.',
  EROFS: 'The file system is read-only.',
  EIO: 'The disk reported an input/output error.',
  EMFILE: 'The server has no file descriptors left (EMFILE): raise its limit of open files.',
  ENFILE: 'The system has no file descriptors left (ENFILE).',
};

/** Faults of one folder: a probe in another one does not show that they are gone. */
const folderFaults: Readonly<Record<string, string>> = {
  EACCES: 'A folder or file belongs to another user, or its mode does not let the server write',
  EPERM: 'A folder or file belongs to another user, or is immutable',
  EMLINK: 'A folder or file has as many links as the file system allows (EMLINK)',
};
/** A folder fault is reported for this long after its last occurrence. */
const folderFaultMs = 10 * 60_000;

/** True for faults of the whole disk; others concern one file or the load. */
function isDiskFault(error: unknown): boolean {
  return (faultCode(error) ?? '') in diskFaults;
}

/**
 * Whether a folder can be written. A disk fault degrades it; a probe that writes, fsyncs and removes a small file
 * restores it without a restart.
 */
export class WriteHealth {
  readonly #folder: string;
  readonly #files: FileLayer;
  readonly #clock: Clock;
  #why: string | undefined;
  #folderFaultUntil = -Infinity;
  #probedAt = -Infinity;
  #probing: Promise<void> | undefined;

  constructor(folder: string, { files = nodeFiles, clock = systemClock }: { files?: FileLayer; clock?: Clock } = {}) {
    this.#folder = folder;
    this.#files = files;
    this.#clock = clock;
  }

  failed(error: unknown): void {
    const folderFault = folderFaults[faultCode(error) ?? ''];
    if (folderFault !== undefined) {
      this.#why = `${folderFault}${pathIn(error)}.`;
      this.#folderFaultUntil = this.#clock.monotonic() + folderFaultMs;
    }
    if (!isDiskFault(error)) return;
    this.#why = diskFaults[faultCode(error) ?? ''] ?? 'The disk failed.';
  }

  /** Reports the known state; while it is degraded, also starts a probe when one is due. */
  report(): HealthReport {
    if (this.#why === undefined) return { status: 'up' };
    if (this.#clock.monotonic() - this.#probedAt >= probeEveryMs) void this.probe();
    return {
      status: 'degraded',
      why: `${this.#why} Messages are refused with a temporary answer until it can be written.`,
    };
  }

  /** While degraded, tries to write. Never rejects. */
  probe(): Promise<void> {
    if (this.#why === undefined) return Promise.resolve();
    this.#probing ??= this.#writeProbe().finally(() => {
      this.#probing = undefined;
    });
    return this.#probing;
  }

  async #writeProbe(): Promise<void> {
    this.#probedAt = this.#clock.monotonic();
    const path = join(this.#folder, `.probe-${uniqueId()}`);
    try {
      await writeDurable(this.#files, path, [Buffer.alloc(4096)]);
      if (this.#clock.monotonic() >= this.#folderFaultUntil) this.#why = undefined;
    } catch (error) {
      this.failed(error);
    }
    await this.#files.unlink(path).catch(() => undefined);
  }
}

function pathIn(error: unknown): string {
  const { path, dest = path } = error as NodeJS.ErrnoException & { readonly dest?: string };
  return dest === undefined ? '' : `: ${dest}`;
}

const minReadMs = 1000;

/** Free bytes of a file system, read at most once a second. */
export class FreeSpace {
  readonly #folder: string;
  readonly #files: FileLayer;
  readonly #clock: Clock;
  #readAt = -Infinity;
  #free = Infinity;

  constructor(folder: string, files: FileLayer, clock: Clock) {
    this.#folder = folder;
    this.#files = files;
    this.#clock = clock;
  }

  /** The last value read; Infinity before the first. */
  get lastKnown(): number {
    return this.#free;
  }

  /** Bytes that an ordinary process may still write; Infinity when unknown. */
  read(): number | Promise<number> {
    const now = this.#clock.monotonic();
    if (now - this.#readAt < minReadMs) return this.#free;
    this.#readAt = now;
    return this.#statfs();
  }

  async #statfs(): Promise<number> {
    try {
      const { bavail, bsize } = await this.#files.statfs(this.#folder);
      this.#free = bavail * bsize;
    } catch {
      this.#free = Infinity;
    }
    return this.#free;
  }
}
