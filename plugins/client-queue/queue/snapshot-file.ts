import type { FileLayer } from '../../../core/disk/file-layer.js';
import type { QueuedEntry } from './queued-entry.js';
import { readAt } from './whole-file.js';

const windowBytes = 256 * 1024;

/** The snapshot in force, open so that histories can be read. */
export class SnapshotFile {
  readonly name: string;
  readonly bytes: number;
  readonly #files: FileLayer;
  readonly #fd: number;
  #readers = 0;
  #closing = false;
  #window: Buffer = Buffer.alloc(0);
  #windowAt = 0;

  constructor(name: string, files: FileLayer, fd: number, bytes: number) {
    this.name = name;
    this.#files = files;
    this.#fd = fd;
    this.bytes = bytes;
  }

  /** The attempts of an entry that the snapshot knows, as a JSON array. */
  history({ historyAt, historyBytes }: QueuedEntry): Promise<string> {
    return this.#read(async () => (await readAt(this.#files, this.#fd, historyAt, historyBytes)).toString('utf8'));
  }

  /** The same for somebody who reads one after the other. */
  async historyInOrder({ historyAt, historyBytes }: QueuedEntry): Promise<string> {
    const within = historyAt - this.#windowAt;
    if (within < 0 || within + historyBytes > this.#window.length) {
      await this.#read(async () => {
        this.#window = await readAt(this.#files, this.#fd, historyAt, Math.max(windowBytes, historyBytes));
        this.#windowAt = historyAt;
      });
    }
    const at = historyAt - this.#windowAt;
    return this.#window.toString('utf8', at, at + historyBytes);
  }

  /** Whoever reads may finish. */
  async close(): Promise<void> {
    this.#closing = true;
    this.#window = Buffer.alloc(0);
    if (this.#readers === 0) await this.#files.close(this.#fd);
  }

  async #read<T>(read: () => Promise<T>): Promise<T> {
    this.#readers += 1;
    try {
      return await read();
    } finally {
      this.#readers -= 1;
      if (this.#closing && this.#readers === 0) await this.#files.close(this.#fd);
    }
  }
}
