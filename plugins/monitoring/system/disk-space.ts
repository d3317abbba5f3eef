import { statfs } from 'node:fs/promises';
import type { HealthReport } from '../../../core/host/health.js';
import type { MonitoringSettings } from '../options.js';

/** Bytes of the file system that the data folder is on; `free` is what a process without privileges may still use. */
export interface Space {
  readonly free: number;
  readonly size: number;
}

/** @throws whatever the operating system says */
export async function spaceOf(folder: string): Promise<Space> {
  const { bavail, blocks, bsize } = await statfs(folder);
  return { free: bavail * bsize, size: blocks * bsize };
}

/** Looks at the disk from time to time, so that a health check answers from what is known. */
export class DiskSpace {
  readonly #measure: () => Promise<Space>;
  #thresholds: MonitoringSettings['disk'];
  #space: Space | undefined;
  #failed = false;

  constructor(measure: () => Promise<Space>, thresholds: MonitoringSettings['disk']) {
    this.#measure = measure;
    this.#thresholds = thresholds;
  }

  get space(): Space | undefined {
    return this.#space;
  }

  async look(): Promise<void> {
    try {
      this.#space = await this.#measure();
      this.#failed = false;
    } catch {
      this.#failed = true;
    }
  }

  reconfigure(thresholds: MonitoringSettings['disk']): void {
    this.#thresholds = thresholds;
  }

  report(): HealthReport {
    if (this.#failed) return { status: 'degraded', why: 'The free space of the data folder cannot be measured.' };
    if (this.#space === undefined) return { status: 'up' };
    const { free, size } = this.#space;
    const figures = { freeBytes: free, totalBytes: size };
    const why = `${mebibytes(free)} MiB are free on the disk of the data folder.`;
    if (free < this.#thresholds.downBelowBytes) return { status: 'down', why, figures };
    return free < this.#thresholds.degradedBelowBytes
      ? { status: 'degraded', why, figures }
      : { status: 'up', figures };
  }
}

const mebibytes = (bytes: number): number => Math.floor(bytes / 1024 / 1024);
