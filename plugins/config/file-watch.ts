import { createHash } from 'node:crypto';
import { statSync, watch, type FSWatcher } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { WatchedCode } from '../../core/contracts/server.js';
import type { Log } from '../../core/log/log.js';

export interface FileWatchInput {
  readonly path: string;
  /** Also watched: the code of site plugins. */
  readonly code?: () => Promise<WatchedCode>;
  /** Called when the content of the file or code has changed; called again when it rejects. */
  readonly changed: () => Promise<void>;
  readonly log: Log;
  /** Editors write in several steps: milliseconds without events before the file is read. */
  readonly quietMs: number;
}

interface Watched {
  readonly watcher: FSWatcher;
  /** A folder that was replaced by another of the same name must be watched anew. */
  readonly inode: bigint;
}

/**
 * Watches the content of the configuration file and of site plugins' code. Folders are watched, since editors,
 * ConfigMaps and `mv` replace files.
 */
export class FileWatch {
  readonly #input: FileWatchInput;
  /** Watchers by folder; empty while watching is off. */
  #watchers: ReadonlyMap<string, Watched> = new Map();
  #timer: NodeJS.Timeout | undefined;
  #digest: string | undefined;
  #looking = Promise.resolve();

  constructor(input: FileWatchInput) {
    this.#input = input;
  }

  async start(): Promise<void> {
    if (this.#watchers.size > 0) return;
    this.#follow([dirname(this.#input.path)]);
    this.#digest = await this.#read();
  }

  stop(): void {
    clearTimeout(this.#timer);
    for (const { watcher } of this.#watchers.values()) watcher.close();
    this.#watchers = new Map();
  }

  /** Watches exactly these folders. */
  #follow(folders: readonly string[]): void {
    const old = this.#watchers;
    const now = new Map<string, Watched>();
    const found = folders.map((folder) => [folder, statSync(folder, { bigint: true }).ino] as const);
    for (const [folder, inode] of found) {
      const known = old.get(folder);
      now.set(folder, known?.inode === inode ? known : { watcher: this.#watch(folder), inode });
    }
    this.#watchers = now;
    for (const [folder, known] of old) if (now.get(folder) !== known) known.watcher.close();
  }

  #watch(folder: string): FSWatcher {
    const watcher = watch(folder, { persistent: false }, () => this.#stir());
    watcher.on('error', (error) => {
      this.#input.log.error({ err: error, folder }, 'the configuration is watched no longer');
      this.stop();
    });
    return watcher;
  }

  #stir(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#looking = this.#looking.then(() => this.#look());
    }, this.#input.quietMs);
  }

  async #look(): Promise<void> {
    const digest = await this.#read();
    // A missing file may return; otherwise the operator sees the error at the next start.
    if (digest === undefined || digest === this.#digest || this.#watchers.size === 0) return;
    this.#digest = digest;
    try {
      await this.#input.changed();
    } catch {
      this.#digest = undefined;
      if (this.#watchers.size > 0) this.#stir();
      return;
    }
    // A new configuration may name plugins in other folders.
    await this.#read();
  }

  async #read(): Promise<string | undefined> {
    const { path, code } = this.#input;
    try {
      const text = await readFile(path);
      const { folders, digest } = (await code?.()) ?? { folders: [], digest: '' };
      if (this.#watchers.size > 0) this.#follow([...new Set([dirname(path), ...folders])]);
      return createHash('sha256').update(text).update(digest).digest('hex');
    } catch {
      return undefined;
    }
  }
}
