import { statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { type IntervalHistogram, monitorEventLoopDelay } from 'node:perf_hooks';
import type { Clock } from '../../../core/clock.js';
import type { Configuration } from '../../../core/contracts/server.js';
import { writeDurable } from '../../../core/disk/atomic.js';
import { faultCode } from '../../../core/disk/fault.js';
import { type FileLayer, nodeFiles } from '../../../core/disk/file-layer.js';
import { uniqueId } from '../../../core/disk/id.js';
import type { HealthReport } from '../../../core/contracts/health.js';
import type { MonitoringSettings } from '../options.js';

/** Bytes of the data folder's file system; `free` is available to unprivileged processes. */
export interface Space {
  readonly free: number;
  readonly size: number;
}

/** @throws errors of the operating system */
export async function spaceOf(folder: string): Promise<Space> {
  const { bavail, blocks, bsize } = await statfs(folder);
  return { free: bavail * bsize, size: blocks * bsize };
}

/** Checks the disk at intervals, so that a health check responds from cached values. */
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

/** Interval of the measurement in milliseconds, which is included in the measured delay. */
const RESOLUTION_MS = 20;

type Threshold = Pick<MonitoringSettings['eventLoop'], 'degradedAboveMs'>;

/** Used part of Node's histogram. */
type Delays = Pick<IntervalHistogram, 'percentile' | 'reset' | 'enable' | 'disable'>;

/** Event loop delay: the 99th percentile between two checks. */
export class EventLoop {
  readonly #delays: Delays;
  #threshold: Threshold;
  #lagMs = 0;

  constructor(threshold: Threshold, delays: Delays = monitorEventLoopDelay({ resolution: RESOLUTION_MS })) {
    this.#threshold = threshold;
    this.#delays = delays;
    delays.enable();
  }

  /** Seconds. */
  get lag(): number {
    return this.#lagMs / 1000;
  }

  look(): void {
    this.#lagMs = Math.max(0, this.#delays.percentile(99) / 1e6 - RESOLUTION_MS);
    this.#delays.reset();
  }

  reconfigure(threshold: Threshold): void {
    this.#threshold = threshold;
  }

  report(): HealthReport {
    const figures = { delayMs: Math.round(this.#lagMs * 10) / 10 };
    if (this.#lagMs <= this.#threshold.degradedAboveMs) return { status: 'up', figures };
    const why = `The event loop was ${Math.round(this.#lagMs)} ms late in 1 of 100 turns.`;
    return { status: 'degraded', why, figures };
  }

  close(): void {
    this.#delays.disable();
  }
}

/** Share of the limit from which a warning is shown. */
const NEAR = 0.9;

/** Open sessions compared with their limit, beyond which clients are refused. */
export class SessionRoom {
  readonly #count: () => { readonly open: number; readonly total: number };
  readonly #configuration: Pick<Configuration, 'maxSessions'>;

  constructor(
    count: () => { readonly open: number; readonly total: number },
    configuration: Pick<Configuration, 'maxSessions'>,
  ) {
    this.#count = count;
    this.#configuration = configuration;
  }

  report(): HealthReport {
    const { open, total } = this.#count();
    const { maxSessions } = this.#configuration;
    const figures = { open, total, ...(maxSessions !== undefined && { limit: maxSessions }) };
    if (open < (maxSessions ?? Infinity) * NEAR) return { status: 'up', figures };
    const why = `${open} SMTP sessions are open; ${maxSessions} may be, then clients are sent away.`;
    return { status: 'degraded', why, figures };
  }
}

/** Slow writes: every message would wait as long. */
const SLOW_MS = 2000;
const BLOCK = Buffer.alloc(4096);

/** Writes a block durably at intervals, to detect write errors before mail arrives. */
export class WriteProbe {
  readonly #folder: string;
  readonly #clock: Clock;
  readonly #files: FileLayer;
  #why: string | undefined;
  #ms = Number.NaN;

  constructor({
    folder,
    clock,
    files = nodeFiles,
  }: {
    /** Absolute; the probe writes a file that begins with `.probe-` and removes it. */
    readonly folder: string;
    readonly clock: Clock;
    readonly files?: FileLayer;
  }) {
    this.#folder = folder;
    this.#clock = clock;
    this.#files = files;
  }

  /** Seconds of the last write; NaN before the first. */
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
