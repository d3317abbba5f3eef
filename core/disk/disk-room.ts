import type { Clock } from '../clock.js';
import type { FileLayer } from './file-layer.js';

const freshMs = 1000;

/** Free bytes of a file system, asked at most once a second. */
export class DiskRoom {
  readonly #folder: string;
  readonly #files: FileLayer;
  readonly #clock: Clock;
  #askedAt = -Infinity;
  #free = Infinity;

  constructor(folder: string, files: FileLayer, clock: Clock) {
    this.#folder = folder;
    this.#files = files;
    this.#clock = clock;
  }

  /** What the last answer was; Infinity before the first. */
  get lastKnown(): number {
    return this.#free;
  }

  /** Bytes that an ordinary process may still write; Infinity where the system does not say. */
  free(): number | Promise<number> {
    const now = this.#clock.monotonic();
    if (now - this.#askedAt < freshMs) return this.#free;
    this.#askedAt = now;
    return this.#ask();
  }

  async #ask(): Promise<number> {
    try {
      const { bavail, bsize } = await this.#files.statfs(this.#folder);
      this.#free = bavail * bsize;
    } catch {
      this.#free = Infinity;
    }
    return this.#free;
  }
}
