import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { projectRoot } from '../support/project.js';

export const deployFolder = join(projectRoot, 'deploy');
export const systemdFolder = join(deployFolder, 'systemd');

/** A unit of ours: settings by their names, each with its values in order. */
export class UnitFile {
  readonly #settings = new Map<string, string[]>();

  constructor(name: string) {
    for (const line of readFileSync(join(systemdFolder, name), 'utf8').split('\n')) {
      const [, key, value] = /^([A-Za-z]+)=(.*)$/.exec(line) ?? [];
      if (key !== undefined) this.#settings.set(key, [...this.all(key), value ?? '']);
    }
  }

  get keys(): Iterable<string> {
    return this.#settings.keys();
  }

  all(key: string): readonly string[] {
    return this.#settings.get(key) ?? [];
  }

  /** The one value. Throws when there is none. */
  one(key: string): string {
    const [value, ...others] = this.all(key);
    if (value === undefined || others.length > 0) throw new Error(`${key}: ${this.all(key).length} values`);
    return value;
  }

  /** Words of `ExecStart` with other words in the place of some; each of them must be there. */
  command(instead: Readonly<Record<string, readonly string[]>>): readonly string[] {
    const words = this.one('ExecStart').split(' ');
    for (const word of Object.keys(instead)) if (!words.includes(word)) throw new Error(`ExecStart has no ${word}`);
    return words.flatMap((word) => instead[word] ?? [word]);
  }
}
