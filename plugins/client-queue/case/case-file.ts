import { join } from 'node:path';
import { Confinement } from '../../../core/disk/confinement.js';
import { problem } from '../../../core/problem.js';

/** Names of levels: no dot in front, nothing that a system could take for something else. */
const safeName = /^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}(\/[A-Za-z0-9_][A-Za-z0-9._-]{0,99}){0,4}$/;

/** Messages that cases may name: regular files below one folder, links not followed. */
export class CaseFiles {
  readonly #folder: string | undefined;
  readonly #mostBytes: number;

  /** @param folder absolute; undefined: cases may name no file */
  constructor(folder: string | undefined, mostBytes: number) {
    this.#folder = folder;
    this.#mostBytes = mostBytes;
  }

  /** @throws Problem `forbidden` for any name but that of such a file; it says no more than that */
  async read(name: string): Promise<Buffer> {
    if (this.#folder === undefined)
      throw problem('forbidden', 'No case folder is configured: give the message as eml.');
    if (!safeName.test(name)) throw refused(name);
    const root = await Confinement.of(this.#folder).catch(() => undefined);
    const handle = await root?.openFile(join(root.root, name));
    if (handle === undefined) throw refused(name);
    try {
      const { size } = await handle.stat();
      if (size > this.#mostBytes) throw problem('too-large', `The file may have ${this.#mostBytes} bytes at most.`);
      // A file that grows meanwhile is read no further.
      const { buffer, bytesRead } = await handle.read(Buffer.alloc(size), 0, size, 0);
      return buffer.subarray(0, bytesRead);
    } finally {
      await handle.close();
    }
  }
}

function refused(name: string) {
  const shown = name.length > 100 ? `${name.slice(0, 100)}…` : name;
  return problem('forbidden', `The case folder has no file that may be read as “${shown}”.`);
}
