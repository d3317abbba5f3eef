import { spawn } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { projectRoot } from '../support/project.js';

export interface Lock {
  readonly packages: Readonly<Record<string, LockEntry>>;
}

interface LockEntry {
  readonly version: string;
  readonly dev?: boolean;
}

export const lockOf = async (file: string): Promise<Lock> => JSON.parse(await readFile(file, 'utf8')) as Lock;

interface Manifest {
  readonly scripts?: unknown;
  readonly devDependencies?: unknown;
}

const nameOf = (path: string): string => path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length);

/** What the package needs of what this checkout has installed, as a registry could offer it. */
export class InstalledPackages {
  /** Folders by version, by name. */
  readonly #folders: ReadonlyMap<string, ReadonlyMap<string, string>>;

  private constructor(folders: ReadonlyMap<string, ReadonlyMap<string, string>>) {
    this.#folders = folders;
  }

  static async find(): Promise<InstalledPackages> {
    const { packages } = await lockOf(join(projectRoot, 'package-lock.json'));
    const entries = Object.entries(packages).filter(([path, { dev }]) => path !== '' && dev !== true);
    const folders = new Map<string, Map<string, string>>();
    for (const [path, { version }] of entries) {
      const versions = folders.get(nameOf(path)) ?? new Map<string, string>();
      folders.set(nameOf(path), versions.set(version, join(projectRoot, path)));
    }
    return new InstalledPackages(folders);
  }

  /** Their `package.json`s by version; undefined when there is no such package. */
  async manifests(name: string): Promise<ReadonlyMap<string, object> | undefined> {
    const folders = this.#folders.get(name);
    if (folders === undefined) return undefined;
    const found = [...folders].map(async ([version, folder]) => {
      const { scripts: _, devDependencies: __, ...manifest } = await manifestIn(folder);
      return [version, { ...manifest, version }] as const;
    });
    return new Map(await Promise.all(found));
  }

  /** The package as `npm pack` would have it, about. */
  tarball(name: string, version: string): Readable | undefined {
    const folder = this.#folders.get(name)?.get(version);
    if (folder === undefined) return undefined;
    const words = ['--create', '--gzip', '--exclude=./node_modules', '--transform=s,^\\.,package,', '-C', folder, '.'];
    return spawn('tar', words, { stdio: ['ignore', 'pipe', 'ignore'] }).stdout;
  }
}

const manifestIn = async (folder: string): Promise<Manifest> =>
  JSON.parse(await readFile(join(folder, 'package.json'), 'utf8')) as Manifest;
