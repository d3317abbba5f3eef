import { join } from 'node:path';
import type { Clock } from '../../../core/clock.js';
import { writeDurable } from '../../../core/disk/atomic.js';
import { faultCode } from '../../../core/disk/fault.js';
import { type FileLayer, nodeFiles } from '../../../core/disk/file-layer.js';
import { uniqueId } from '../../../core/disk/id.js';
import type { HealthReport } from '../../../core/host/health.js';

/** A disk that takes as long for one block lets every message wait. */
const SLOW_MS = 2000;
const BLOCK = Buffer.alloc(4096);

export interface WriteProbeInput {
  /** Absolute; the probe writes a file that begins with `.probe-` and removes it. */
  readonly folder: string;
  readonly clock: Clock;
  readonly files?: FileLayer;
}

/** Writes a block durably from time to time: whether mail can be taken is known before mail comes. */
export class WriteProbe {
  readonly #folder: string;
  readonly #clock: Clock;
  readonly #files: FileLayer;
  #why: string | undefined;
  #ms = Number.NaN;

  constructor({ folder, clock, files = nodeFiles }: WriteProbeInput) {
    this.#folder = folder;
    this.#clock = clock;
    this.#files = files;
  }

  /** Seconds that the last one took; NaN while there is none. */
  get seconds(): number {
    return this.#ms / 1000;
  }

  /** Never rejects. */
  async look(): Promise<void> {
    const path = join(this.#folder, `.probe-${uniqueId()}`);
    const began = this.#clock.monotonic();
    try {
      await writeDurable(this.#files, path, [BLOCK]);
      this.#ms = this.#clock.monotonic() - began;
      this.#why =
        this.#ms < SLOW_MS ? undefined : `It took ${(this.#ms / 1000).toFixed(1)} s to write one block to the disk.`;
    } catch (error) {
      this.#ms = Number.NaN;
      this.#why = `The data folder cannot be written (${faultCode(error) ?? 'error'}).`;
    }
    await this.#files.unlink(path).catch(() => undefined);
  }

  report(): HealthReport {
    const figures = Number.isNaN(this.#ms) ? {} : { writeMs: Math.round(this.#ms * 10) / 10 };
    return this.#why === undefined ? { status: 'up', figures } : { status: 'degraded', why: this.#why, figures };
  }
}
