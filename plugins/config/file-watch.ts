import { createHash } from 'node:crypto';
import { watch, type FSWatcher } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { Log } from '../../core/log.js';

export interface FileWatchInput {
  readonly path: string;
  /** The file has other content than when it was last looked at. */
  readonly changed: () => Promise<void>;
  readonly log: Log;
  /** Editors write in several steps: so long nothing may happen before the file is looked at, in milliseconds. */
  readonly quietMs: number;
}

/**
 * Notices when a file gets another content. The folder is watched, because editors, ConfigMaps and `mv` put another file in
 * the place of the old one.
 */
export class FileWatch {
  readonly #input: FileWatchInput;
  #watcher: FSWatcher | undefined;
  #timer: NodeJS.Timeout | undefined;
  #digest: string | undefined;
  #looking = Promise.resolve();

  constructor(input: FileWatchInput) {
    this.#input = input;
  }

  async start(): Promise<void> {
    if (this.#watcher !== undefined) return;
    const { path, log } = this.#input;
    this.#watcher = watch(dirname(path), { persistent: false }, () => this.#stir());
    this.#watcher.on('error', (error) => {
      log.error({ err: error }, 'the configuration file is watched no longer');
      this.stop();
    });
    this.#digest = await this.#read();
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#watcher?.close();
    this.#watcher = undefined;
  }

  #stir(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#looking = this.#looking.then(() => this.#look());
    }, this.#input.quietMs);
  }

  async #look(): Promise<void> {
    const digest = await this.#read();
    // A file that is gone comes back, or the operator sees at the next start that it does not.
    if (digest === undefined || digest === this.#digest || this.#watcher === undefined) return;
    this.#digest = digest;
    await this.#input.changed();
  }

  async #read(): Promise<string | undefined> {
    try {
      return createHash('sha256')
        .update(await readFile(this.#input.path))
        .digest('hex');
    } catch {
      return undefined;
    }
  }
}
