import type { FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { LRUCache } from 'lru-cache';
import { summarise, type Summary } from '../../core/mime/summary.js';
import { mapBounded } from './concurrency.js';
import type { MessageEntry } from './folder-contents.js';
import type { MailboxFolder, MailboxFolders } from './mailbox-folder.js';
import { readHead } from './message-file.js';

/** A message as lists show it. */
export interface MessageSummary extends Summary {
  readonly id: string;
  readonly folder: string;
  /** ISO 8601. */
  readonly receivedAt: string;
  /** Bytes. */
  readonly size: number;
  readonly unread: boolean;
  readonly flagged: boolean;
  readonly answered: boolean;
  readonly draft: boolean;
}

/** Where headers and the first words are, as a rule. */
const headBytes = 64 * 1024;
const readsAtOnce = 16;
/** Characters held of all summaries together. */
const maxCharacters = 16 * 1024 * 1024;

interface Known {
  readonly summary: Summary;
  readonly size: number;
}

/** Reads the heads of messages, and remembers what they say: the file of a unique name never changes. */
export class MessageSummaries {
  readonly #folders: MailboxFolders;
  readonly #known = new LRUCache<string, Known>({
    maxSize: maxCharacters,
    sizeCalculation: ({ summary }, key) => weightOf(summary) + key.length,
  });

  constructor(folders: MailboxFolders) {
    this.#folders = folders;
  }

  /** In the order of `entries`; messages that are gone meanwhile are left out. */
  async of(folder: MailboxFolder, entries: readonly MessageEntry[]): Promise<readonly MessageSummary[]> {
    const summaries = await mapBounded(entries, readsAtOnce, (entry) => this.one(folder, entry));
    return summaries.filter((summary) => summary !== undefined);
  }

  async one(folder: MailboxFolder, entry: MessageEntry): Promise<MessageSummary | undefined> {
    const key = `${folder.path}/${entry.id}`;
    const known = this.#known.get(key) ?? (await this.#read(folder, entry));
    if (known === undefined) return undefined;
    this.#known.set(key, known);
    return describe(folder, entry, known);
  }

  async #read(folder: MailboxFolder, entry: MessageEntry): Promise<Known | undefined> {
    const { confinement } = this.#folders;
    const handle =
      (await confinement.openFile(join(folder.path, entry.file))) ?? (await this.#movedMeanwhile(folder, entry));
    if (handle === undefined) return undefined;
    try {
      const { size } = await handle.stat();
      return { summary: summarise(await readHead({ handle, size }, headBytes), size), size };
    } finally {
      await handle.close();
    }
  }

  async #movedMeanwhile(folder: MailboxFolder, entry: MessageEntry): Promise<FileHandle | undefined> {
    const now = (await this.#folders.freshContents(folder)).byId.get(entry.id);
    return now === undefined ? undefined : this.#folders.confinement.openFile(join(folder.path, now.file));
  }
}

function describe(folder: MailboxFolder, entry: MessageEntry, { summary, size }: Known): MessageSummary {
  return {
    id: entry.id,
    folder: folder.name.name,
    ...summary,
    receivedAt: new Date(entry.receivedAt).toISOString(),
    size,
    unread: !entry.flags.includes('S'),
    flagged: entry.flags.includes('F'),
    answered: entry.flags.includes('R'),
    draft: entry.flags.includes('D'),
  };
}

function weightOf(summary: Summary): number {
  const addresses = [...summary.to, ...(summary.from === null ? [] : [summary.from])];
  const names = addresses.reduce((sum, { name, address }) => sum + name.length + address.length + 32, 0);
  return 200 + names + summary.subject.length + summary.snippet.length + (summary.internetMessageId?.length ?? 0);
}
