import { join } from 'node:path';
import type { Confinement } from '../../../core/disk/confinement.js';
import type { Log } from '../../../core/log/log.js';
import { type DovecotListContext, replaceDovecotList, whileUidsAreLocked } from '../maildir/dovecot-files.js';

const largest = 64 * 1024;
const line = /^(\d{1,2}) (\S{1,200})$/;
const letters = 'abcdefghijklmnopqrstuvwxyz';
/** By letter; undefined when there is no list. */
type Keywords = ReadonlyMap<string, string> | undefined;

export interface KeywordContext extends Omit<DovecotListContext, 'staleMs'> {
  readonly confinement: Confinement;
  readonly log: Log;
}

/** A lock is held for a few milliseconds; an older one is stale. */
const staleMs = 2000;

/**
 * Meaning of the letters a to z in message names: keywords set by mail clients. Each folder has its own list, which
 * Dovecot keeps in `dovecot-keywords`. This class maps keywords of messages that move between folders.
 */
export class MovedKeywords {
  readonly #from: Keywords;
  readonly #target: string;
  readonly #context: KeywordContext;
  #theirs: Keywords;
  /** In lower case: the target folder has no free letter, or its list could not be changed. */
  readonly #refused = new Set<string>();
  #extending: Promise<void> = Promise.resolve();

  private constructor(from: Keywords, theirs: Keywords, target: string, context: KeywordContext) {
    this.#from = from;
    this.#theirs = theirs;
    this.#target = target;
    this.#context = context;
  }

  /** @param from a folder, like `target` */
  static async between(from: string, target: string, context: KeywordContext): Promise<MovedKeywords> {
    const read = async (folder: string) => readList(await keywordFile(folder, context.confinement));
    return new MovedKeywords(await read(from), await read(target), target, context);
  }

  /**
   * The flags of a message for the target folder. A keyword that is missing there is added to its list; it is dropped
   * where that is not possible, since its letter would mean another keyword.
   */
  async inTarget(flags: string): Promise<string> {
    if (this.#from === undefined && this.#theirs === undefined) return flags;
    const own = flags.split('').filter((letter) => letters.includes(letter));
    const keywords = own.flatMap((letter) => this.#from?.get(letter) ?? []);
    if (this.#missing(keywords).length > 0) {
      this.#extending = this.#extending.then(() => this.#extend(this.#missing(keywords)));
      await this.#extending;
    }
    const theirs = lettersOf(this.#theirs);
    const translated = keywords.flatMap((keyword) => theirs.get(keyword.toLowerCase()) ?? []);
    const others = flags.split('').filter((letter) => !letters.includes(letter));
    return [...new Set([...others, ...translated])].toSorted().join('');
  }

  #missing(keywords: readonly string[]): readonly string[] {
    const theirs = lettersOf(this.#theirs);
    return keywords.map((word) => word.toLowerCase()).some((word) => !theirs.has(word) && !this.#refused.has(word))
      ? keywords.filter((word) => !theirs.has(word.toLowerCase()))
      : [];
  }

  /** Dovecot changes the list only while it holds the UID list lock. */
  async #extend(keywords: readonly string[]): Promise<void> {
    if (keywords.length === 0) return;
    const { files, log } = this.#context;
    try {
      await whileUidsAreLocked(this.#target, files, async (isAlone) => {
        if (!isAlone) return;
        const path = join(this.#target, 'dovecot-keywords');
        const list = await replaceDovecotList(path, (before) => extended(before, keywords), {
          ...this.#context,
          staleMs,
        });
        this.#theirs = readList(Buffer.from(list, 'latin1'));
      });
    } catch (error) {
      // A full disk is no reason to keep a message out of Trash.
      log.warn(
        { err: error, folder: this.#target },
        'messages lose keywords that could not be added to their new folder',
      );
    }
    const theirs = lettersOf(this.#theirs);
    for (const keyword of keywords) {
      if (!theirs.has(keyword.toLowerCase())) this.#refused.add(keyword.toLowerCase());
    }
  }
}

function lettersOf(list: Keywords): ReadonlyMap<string, string> {
  return new Map([...(list ?? [])].map(([letter, keyword]) => [keyword.toLowerCase(), letter]));
}

/** The list with additional keywords, as far as letters are free. */
function extended(before: string, keywords: readonly string[]): string {
  const known = readList(Buffer.from(before, 'latin1')) ?? new Map<string, string>();
  const words = lettersOf(known);
  const free = letters.split('').filter((letter) => !known.has(letter));
  const added = keywords
    .filter((keyword) => !words.has(keyword.toLowerCase()))
    .slice(0, free.length)
    .map((keyword, index) => `${letters.indexOf(free[index] ?? 'z')} ${keyword}\n`);
  return `${before === '' || before.endsWith('\n') ? before : `${before}\n`}${added.join('')}`;
}

/** The list of a folder; undefined when there is no readable one. */
export async function keywordFile(folder: string, confinement: Confinement): Promise<Buffer | undefined> {
  const handle = await confinement.openFile(join(folder, 'dovecot-keywords'));
  if (handle === undefined) return undefined;
  try {
    return (await handle.stat()).size > largest ? undefined : await handle.readFile();
  } finally {
    await handle.close();
  }
}

function readList(bytes: Buffer | undefined): Keywords {
  if (bytes === undefined) return undefined;
  const found = new Map<string, string>();
  for (const text of bytes.toString('latin1').split('\n')) {
    const [, index = '', keyword = ''] = line.exec(text) ?? [];
    const letter = index === '' ? undefined : letters[Number(index)];
    if (letter !== undefined) found.set(letter, keyword);
  }
  return found;
}
