import { join } from 'node:path';
import { makeFolder } from '../disk/folder.js';
import { refuseFile } from '../disk/refuse-file.js';

/** Whose the folders below the data folder are that come with the server, also while their plugin is switched off. */
const owners: Readonly<Record<string, string>> = {
  cache: 'store',
  'client-uploads': 'client-queue',
  config: 'the server',
  drafts: 'store',
  heapdumps: 'monitoring',
  idempotency: 'the server',
  logs: 'the server',
  mail: 'store',
  queue: 'client-queue',
  spool: 'the server',
  'spool-log': 'the server',
  uploads: 'the server',
};

interface Claim {
  readonly plugin: string;
  /** While a plugin is replaced, its old and its new one. */
  holders: number;
}

/** The folders of the plugins below the data folder: each has one owner. */
export class PluginFolders {
  readonly #data: string;
  readonly #claims = new Map<string, Claim>();

  /** @param data absolute path */
  constructor(data: string) {
    this.#data = data;
  }

  /**
   * Makes the folder if need be, and keeps it from other plugins until `release` is called.
   *
   * @param name one name or several with `/` between them; the first of them is owned
   * @throws Error for a name that leads elsewhere, or to the folder of somebody else
   */
  async open(plugin: string, name: string, onClose: (release: () => void) => void): Promise<string> {
    const parts = typeof name === 'string' ? name.split('/') : [];
    const [first = ''] = parts;
    if (first === '' || !parts.every((part) => /^[A-Za-z0-9][\w.-]*$/.test(part))) {
      throw new Error(
        `folder(${JSON.stringify(name)}): letters, digits, "-", "_" and "." make a name, such as "${plugin}"`,
      );
    }
    const owner = this.#claims.get(first)?.plugin ?? (Object.hasOwn(owners, first) ? owners[first] : undefined);
    if (owner !== undefined && owner !== plugin) {
      throw new Error(`folder("${name}"): ${first} in the data folder is that of ${owner}; "${plugin}" is a good name`);
    }
    onClose(this.#claim(plugin, first));
    const path = join(this.#data, name);
    await refuseFile(join(this.#data, first));
    await makeFolder(path);
    await refuseFile(path);
    return path;
  }

  #claim(plugin: string, first: string): () => void {
    const claim = this.#claims.get(first) ?? { plugin, holders: 0 };
    claim.holders += 1;
    this.#claims.set(first, claim);
    return () => {
      claim.holders -= 1;
      if (claim.holders === 0 && this.#claims.get(first) === claim) this.#claims.delete(first);
    };
  }
}
