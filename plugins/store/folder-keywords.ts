import { join } from 'node:path';
import type { Confinement } from '../../core/disk/confinement.js';

const largest = 64 * 1024;
const line = /^(\d{1,2}) (\S{1,200})$/;
const letters = 'abcdefghijklmnopqrstuvwxyz';

/**
 * What the letters a to z in the names of messages mean: keywords that mail clients gave. Each folder has its own list, which
 * Dovecot keeps in `dovecot-keywords` and nobody else may change.
 */
export class FolderKeywords {
  /** Undefined when nobody wrote a list. */
  readonly #byLetter: ReadonlyMap<string, string> | undefined;

  private constructor(byLetter: ReadonlyMap<string, string> | undefined) {
    this.#byLetter = byLetter;
  }

  static async of(folder: string, confinement: Confinement): Promise<FolderKeywords> {
    return new FolderKeywords(readList(await keywordFile(folder, confinement)));
  }

  /**
   * Flags of a message of this folder as they stand in another one. A keyword that the other folder has no letter for is left out:
   * its letter would be another keyword there.
   */
  inFolder(other: FolderKeywords, flags: string): string {
    if (this.#byLetter === undefined && other.#byLetter === undefined) return flags;
    const theirs = new Map([...(other.#byLetter ?? [])].map(([letter, keyword]) => [keyword.toLowerCase(), letter]));
    const translated = flags.split('').map((letter) => {
      if (!letters.includes(letter)) return letter;
      const keyword = this.#byLetter?.get(letter);
      return keyword === undefined ? '' : (theirs.get(keyword.toLowerCase()) ?? '');
    });
    return [...new Set(translated)].toSorted().join('');
  }
}

/** The list as it lies in a folder; undefined when there is none that can be read. */
export async function keywordFile(folder: string, confinement: Confinement): Promise<Buffer | undefined> {
  const handle = await confinement.openFile(join(folder, 'dovecot-keywords'));
  if (handle === undefined) return undefined;
  try {
    return (await handle.stat()).size > largest ? undefined : await handle.readFile();
  } finally {
    await handle.close();
  }
}

function readList(bytes: Buffer | undefined): ReadonlyMap<string, string> | undefined {
  if (bytes === undefined) return undefined;
  const found = new Map<string, string>();
  for (const text of bytes.toString('latin1').split('\n')) {
    const [, index = '', keyword = ''] = line.exec(text) ?? [];
    const letter = index === '' ? undefined : letters[Number(index)];
    if (letter !== undefined) found.set(letter, keyword);
  }
  return found;
}
