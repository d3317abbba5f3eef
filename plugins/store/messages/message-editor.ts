import { join } from 'node:path';
import type { Readable } from 'node:stream';
import type { Clock } from '../../../core/clock.js';
import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import { asStorageProblem, isNameTaken } from '../../../core/disk/fault.js';
import { type FileLayer, nodeFiles, writeAll } from '../../../core/disk/file-layer.js';
import { type FolderSync, folderSyncOf } from '../../../core/disk/folder.js';
import type { Log } from '../../../core/log/log.js';
import { LineEndings } from '../../../core/mime/line-endings.js';
import { problem } from '../../../core/problem.js';
import { allSettledOrThrow, KeyedMutex } from '../../../core/concurrency.js';
import { MailboxQuotas } from '../delivery/mailbox-quota.js';
import { usageOf } from './mailbox-usage.js';
import { type EditorDeps, FolderEditor } from '../folders/folder-editor.js';
import { FolderIntents } from '../folders/folder-intent.js';
import { MovedKeywords } from '../folders/folder-keywords.js';
import { type FolderName, type MailboxFolder, parseFolderName, specialUseOf } from '../folders/folder-name.js';
import { lockKey } from '../folders/mailbox-folder.js';
import { mailboxFolder } from '../maildir/mailbox-name.js';
import { MailboxRemoval } from '../folders/mailbox-removal.js';
import type { UniqueNames } from '../maildir/maildir-name.js';
import { maildirParts } from '../maildir/maildir.js';
import type { MessageEntry } from '../maildir/message-entry.js';
import { whileUidsAreLocked } from '../maildir/dovecot-files.js';
import { changeMessages } from '../folders/message-change.js';
import type { StoreReader } from './store-reader.js';

export type ReadStatus = 'read' | 'unread';

/** The flag letter of a mark, and whether the mark sets it. */
const marks = {
  read: ['S', true],
  unread: ['S', false],
  flag: ['F', true],
  unflag: ['F', false],
} as const;
export type FlagMark = keyof typeof marks;

/** Number of changed messages, and the missing ids. */
interface Marked {
  readonly updated: number;
  /** Already had that flag. */
  readonly unchanged: number;
  readonly notFound: readonly string[];
}

interface Moved {
  readonly moved: number;
  readonly notFound: readonly string[];
  /** New ids by old ids; omitted for very many messages. */
  readonly newIds: Readonly<Record<string, string>>;
}

interface Deleted {
  readonly deleted: number;
  readonly notFound: readonly string[];
}

/** Deleted permanently, or moved to Trash. */
interface Discarded extends Deleted {
  /** Of those in Trash; omitted for very many messages. */
  readonly newIds: Readonly<Record<string, string>>;
}

/** Mail clients that scan the folder wait while this many files are renamed. */
const markedAtOnce = 5000;
export const trash = parseFolderName('Trash');
/** Maximum ids in one request; a move by filter with more does not return ids. */
const maxNewIds = 10_000;

/** Folders from which deletion is permanent. */
export function deletesForGood(folder: FolderName): boolean {
  const use = specialUseOf(folder);
  return use === 'trash' || use === 'junk';
}

/** Changes messages that other programs may change at the same time. Everything is durable when it resolves. */
class MessageEditor {
  readonly #deps: EditorDeps;
  readonly #editor: FolderEditor;

  constructor(deps: EditorDeps, editor: FolderEditor) {
    this.#deps = deps;
    this.#editor = editor;
  }

  /** @throws Problem `not-found` for the folder */
  mark(mailbox: MailboxName, name: FolderName, ids: readonly string[], mark: FlagMark): Promise<Marked> {
    const [letter, isSet] = marks[mark];
    return this.#together(mailbox, name, async (folder) => {
      await this.#complete(folder.path);
      let unchanged = 0;
      const done: string[] = [];
      const notFound: string[] = [];
      for (let start = 0; start < ids.length; start += markedAtOnce) {
        const some = ids.slice(start, start + markedAtOnce);
        const outcome = await whileUidsAreLocked(folder.path, this.#deps.files, () =>
          changeMessages(this.#deps.folders, folder, some, (entry) => {
            if (entry.flags.includes(letter) === isSet) return Promise.resolve(void (unchanged += 1));
            return this.#deps.files.rename(join(folder.path, entry.file), join(folder.path, marked(entry, mark)));
          }),
        );
        done.push(...outcome.done);
        notFound.push(...outcome.notFound);
      }
      if (done.length > unchanged) await this.#sync([folder.path]);
      return { updated: done.length - unchanged, unchanged, notFound };
    });
  }

  /**
   * Keeps flags and the received time; the id changes, and keywords get the letters of the other folder. @throws
   * Problem `not-found`, `invalid`
   */
  async move(mailbox: MailboxName, from: FolderName, to: FolderName, ids: readonly string[]): Promise<Moved> {
    if (from.name === to.name) throw problem('invalid', 'The messages are in that folder already.');
    await this.#deps.folders.find(mailbox, from);
    await this.#editor.provide(mailbox, to);
    return this.#together(mailbox, from, async (folder) => {
      // An earlier change of folders may have renamed it.
      const target = await this.#deps.folders.find(mailbox, to);
      await this.#complete(target.path);
      const { confinement } = this.#deps.folders;
      const keywords = await MovedKeywords.between(folder.path, target.path, { ...this.#deps, confinement });
      const newIds = new Map<string, string>();
      const { done, notFound } = await changeMessages(this.#deps.folders, folder, ids, async (entry) => {
        const id = this.#deps.names.renamed(entry.id, entry.receivedAt);
        const path = join(target.path, 'cur', `${id}:2,${await keywords.inTarget(entry.flags)}`);
        await this.#deps.files.rename(join(folder.path, entry.file), path);
        if (ids.length <= maxNewIds) newIds.set(entry.id, id);
      });
      if (done.length > 0) await this.#sync([target.path, folder.path]);
      if (notFound.length > 0) await this.#deps.folders.find(mailbox, to);
      return { moved: done.length, notFound, newIds: Object.fromEntries(newIds) };
    });
  }

  /** Moves to Trash; from Trash and Junk, deletes permanently. @throws Problem `not-found` for the folder */
  async discard(mailbox: MailboxName, name: FolderName, ids: readonly string[]): Promise<Discarded> {
    if (deletesForGood(name)) return { ...(await this.remove(mailbox, name, ids)), newIds: {} };
    const { moved, notFound, newIds } = await this.move(mailbox, name, trash, ids);
    return { deleted: moved, notFound, newIds };
  }

  /** Deletes permanently. @throws Problem `not-found` for the folder */
  remove(mailbox: MailboxName, name: FolderName, ids: readonly string[]): Promise<Deleted> {
    return this.#together(mailbox, name, async (folder) => {
      let size = 0;
      const { done, notFound } = await changeMessages(this.#deps.folders, folder, ids, async (entry) => {
        const path = join(folder.path, entry.file);
        const bytes = entry.size ?? (await this.#deps.files.lstat(path)).size;
        await this.#deps.files.unlink(path);
        size += bytes;
      });
      if (done.length > 0) await this.#sync([folder.path]);
      await this.#deps.quotas.noteChange(mailbox, -size, -done.length);
      return { deleted: done.length, notFound };
    });
  }

  /** Adds a message to a folder. @throws Problem `not-found`, `mailbox-full`, `invalid`, and errors of the stream */
  async append(mailbox: MailboxName, name: FolderName, source: Readable, status: ReadStatus): Promise<FiledMessage> {
    await this.#editor.provide(mailbox, name);
    const { quotas, folders, files } = this.#deps;
    await quotas.requireRoom(mailbox, 0);
    const home = folders.mailbox(mailbox);
    await this.#complete(home);
    // Reads the stream, which may be slow, before it takes the lock.
    const written = await writeMessage(source, home, this.#deps);
    try {
      return await this.#together(mailbox, name, async (folder) => {
        await this.#complete(folder.path);
        const { size } = written;
        const as = status === 'unread' ? ({ part: 'new' } as const) : ({ part: 'cur', flags: 'S' } as const);
        const file = () => fileMessage(written, { folder: folder.path, as }, this.#deps);
        return quotas.whileReserved(mailbox, size, { size, count: 1 }, file);
      });
    } finally {
      await files.unlink(written.path).catch(() => undefined);
    }
  }

  #together<T>(mailbox: MailboxName, name: FolderName, task: (folder: MailboxFolder) => Promise<T>): Promise<T> {
    const { locks, folders } = this.#deps;
    return locks.runShared(lockKey(mailbox), async () => task(await folders.find(mailbox, name)));
  }

  /** Other programs create only the directories that they need. */
  async #complete(path: string): Promise<void> {
    const { folders, files } = this.#deps;
    for (const part of maildirParts) {
      const there = (): boolean => folders.confinement.hasFolder(join(path, part));
      if (there()) continue;
      try {
        await files.mkdir(join(path, part), 0o700);
      } catch (error) {
        if (!isNameTaken(error)) throw error;
        if (!there()) throw problem('internal', { detail: 'The folder is not in order.', cause: error });
      }
    }
  }

  async #sync(paths: readonly string[]): Promise<void> {
    const parts = paths.flatMap((path) => [join(path, 'cur'), join(path, 'new')]);
    await allSettledOrThrow(parts.map((part) => this.#deps.sync.sync(part)));
  }
}

/** The file of the message with that flag; a message with flags is in `cur`. */
function marked(entry: MessageEntry, mark: FlagMark): string {
  const [letter, isSet] = marks[mark];
  const letters = new Set(entry.flags);
  if (isSet) letters.add(letter);
  else letters.delete(letter);
  return `cur/${entry.id}:2,${[...letters].toSorted().join('')}`;
}

interface FilingDeps {
  readonly files: FileLayer;
  readonly sync: FolderSync;
  readonly names: UniqueNames;
}

/** A durable message that is not visible yet. */
interface WrittenMessage {
  readonly path: string;
  /** Bytes of the file. */
  readonly size: number;
}

export interface FiledMessage {
  readonly id: string;
  /** Bytes of the file. */
  readonly size: number;
}

/** Absolute path of a folder, and `new` or the flag letters of a message in `cur`. */
interface Filing {
  readonly folder: string;
  readonly as: { readonly part: 'new' } | { readonly part: 'cur'; readonly flags: string };
}

/** Writes a streamed message to `tmp` of a folder. When it rejects, nothing is there. @throws Problem */
async function writeMessage(source: Readable, folder: string, deps: FilingDeps): Promise<WrittenMessage> {
  const { files, names } = deps;
  const path = join(folder, 'tmp', names.next(0));
  try {
    return { path, size: await write(files, path, source) };
  } catch (error) {
    await files.unlink(path).catch(() => undefined);
    throw asStorageProblem(error);
  }
}

/** Links it into a folder, durably. When it rejects, nothing is there. The written file stays. @throws Problem */
async function fileMessage(
  { path, size }: WrittenMessage,
  { folder, as }: Filing,
  { files, sync, names }: FilingDeps,
): Promise<FiledMessage> {
  const id = names.next(size);
  const target = join(folder, as.part, as.part === 'new' ? id : `${id}:2,${as.flags}`);
  try {
    await files.link(path, target);
    try {
      await sync.sync(join(folder, as.part));
    } catch (error) {
      await files.unlink(target).catch(() => undefined);
      throw error;
    }
    return { id, size };
  } catch (error) {
    throw asStorageProblem(error);
  }
}

async function write(files: FileLayer, path: string, source: Readable): Promise<number> {
  const lines = new LineEndings();
  let size = 0;
  const fd = await files.open(path, 'wx', 0o600);
  try {
    for await (const chunk of source as AsyncIterable<Buffer>) {
      const text = lines.push(chunk);
      size += text.length;
      await writeAll(files, fd, [text]);
    }
    const rest = lines.end();
    size += rest.length;
    await writeAll(files, fd, [rest]);
    if (size === 0) throw problem('invalid', 'The message is empty.');
    await files.fsync(fd);
  } finally {
    await files.close(fd);
  }
  return size;
}

interface StoreEditorInput {
  readonly reader: StoreReader;
  /** Absolute and resolved. */
  readonly root: string;
  /** Id of this server, where several share the root. */
  readonly node: string;
  readonly names: UniqueNames;
  /** Bytes; null for no quota. */
  readonly limitOf: (mailbox: MailboxName) => number | null | Promise<number | null>;
  readonly clock: Clock;
  readonly log: Log;
  readonly files?: FileLayer;
}

/** The write access to the store. */
export interface StoreEditor {
  readonly folders: FolderEditor;
  readonly messages: MessageEditor;
  readonly quotas: MailboxQuotas;
  readonly mailboxes: MailboxRemoval;
}

/** Opens the store, and completes changes of folders that a dead process began. */
export async function openStoreEditor(input: StoreEditorInput): Promise<StoreEditor> {
  const { reader, root, node, names, limitOf, clock, log, files = nodeFiles } = input;
  const sync = folderSyncOf(files);
  const intents = new FolderIntents({ root, node, files, sync, clock, log });
  await intents.resume();
  const quotas = new MailboxQuotas({
    files,
    clock,
    log,
    limitOf,
    pathOf: (mailbox) => mailboxFolder(root, mailbox),
    count: (mailbox) => usageOf(reader, mailbox),
  });
  const locks = new KeyedMutex();
  const deps = { folders: reader.mailboxFolders, files, sync, locks, intents, names, quotas, clock, log };
  const folders = new FolderEditor(deps);
  const mailboxes = new MailboxRemoval({ ...deps, root });
  return { folders, messages: new MessageEditor(deps, folders), quotas, mailboxes };
}
