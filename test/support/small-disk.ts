import { execFile } from 'node:child_process';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { atEnd, type Ending } from './ending.js';
import { until } from './until.js';

const run = promisify(execFile);

/** A file system of its own, in memory; needs root. */
export class SmallDisk {
  readonly path: string;

  private constructor(path: string) {
    this.path = path;
  }

  /** Mounted at `<folder>/<name>`; unmounted when the test ends, whoever still uses it. */
  static async mount(test: Ending, folder: string, name: string, mebibytes: number): Promise<SmallDisk> {
    const path = join(folder, name);
    await mkdir(path);
    await run('mount', ['-t', 'tmpfs', '-o', `size=${mebibytes}m,mode=0700`, 'tmpfs', path]);
    atEnd(test, async () => {
      await run('umount', ['--lazy', path]);
    });
    return new SmallDisk(path);
  }

  /** Waits until no file is open for writing. */
  async readOnly(): Promise<void> {
    await until('a moment in which no file is written', () =>
      run('mount', ['-o', 'remount,ro', this.path]).then(
        () => true,
        (error: unknown) => {
          if (String(error).includes('busy')) return undefined;
          throw error;
        },
      ),
    );
  }

  async writable(): Promise<void> {
    await run('mount', ['-o', 'remount,rw', this.path]);
  }
}
