import { join } from 'node:path';
import type { Readable } from 'node:stream';
import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import { isTaken } from '../../../core/disk/fault.js';
import { jointly } from '../../../core/spool/joint.js';
import { problem } from '../../../core/problem.js';
import type { MessageEntry } from '../maildir/message-entry.js';
import { type EditorGround, type FolderEditor, lockKey } from '../folders/folder-editor.js';
import { MovedKeywords } from '../folders/folder-keywords.js';
import { type FolderName, parseFolderName, specialUseOf } from '../folders/folder-name.js';
import type { MailboxFolder } from '../maildir/mailbox-folder.js';
import { maildirParts } from '../maildir/maildir.js';
import { repeatedly } from './message-change.js';
import { fileMessage, type FiledMessage, writeMessage } from './message-filing.js';
import { whileUidsAreLocked } from '../maildir/uid-list-lock.js';

export type ReadStatus = 'read' | 'unread';

/** The letter in the name of the file that a mark is about, and whether it is there afterwards. */
const marks = {
  read: ['S', true],
  unread: ['S', false],
  flag: ['F', true],
  unflag: ['F', false],
} as const;
export type Mark = keyof typeof marks;

/** How many messages changed, and which were not there. */
export interface Marked {
  readonly updated: number;
  /** Had that status already. */
  readonly unchanged: number;
  readonly notFound: readonly string[];
}

export interface Moved {
  readonly moved: number;
  readonly notFound: readonly string[];
  /** Ids in the other folder, by the ids before; of very many messages none are told. */
  readonly newIds: Readonly<Record<string, string>>;
}

export interface Deleted {
  readonly deleted: number;
  readonly notFound: readonly string[];
}

/** As long as so many files are renamed, mail clients that look at the folder wait. */
const markedAtOnce = 5000;
const trash = parseFolderName('Trash');
/** As many as one call can name; who moves more by a filter does not know the old ones either. */
const mostNewIds = 10_000;

/** True where what is deleted is gone for good. */
export function deletesForGood(folder: FolderName): boolean {
  const use = specialUseOf(folder);
  return use === 'trash' || use === 'junk';
}

/** Changes messages that other programs may change at the same time. Everything is durable when it resolves. */
export class MessageEditor {
  readonly #ground: EditorGround;
  readonly #editor: FolderEditor;

  constructor(ground: EditorGround, editor: FolderEditor) {
    this.#ground = ground;
    this.#editor = editor;
  }

  /** @throws Problem `not-found` for the folder */
  mark(mailbox: MailboxName, name: FolderName, ids: readonly string[], mark: Mark): Promise<Marked> {
    const [letter, isSet] = marks[mark];
    return this.#together(mailbox, name, async (folder) => {
      await this.#complete(folder.path);
      let unchanged = 0;
      const done: string[] = [];
      const notFound: string[] = [];
      for (let start = 0; start < ids.length; start += markedAtOnce) {
        const some = ids.slice(start, start + markedAtOnce);
        const outcome = await whileUidsAreLocked(folder.path, this.#ground.files, () =>
          repeatedly(this.#ground.folders, folder, some, (entry) => {
            if (entry.flags.includes(letter) === isSet) return Promise.resolve(void (unchanged += 1));
            return this.#ground.files.rename(join(folder.path, entry.file), join(folder.path, marked(entry, mark)));
          }),
        );
        done.push(...outcome.done);
        notFound.push(...outcome.notFound);
      }
      if (done.length > unchanged) await this.#sync([folder.path]);
      return { updated: done.length - unchanged, unchanged, notFound };
    });
  }

  /** Flags and the received time stay; the id is a new one, and keywords get the letters of the other folder. @throws Problem `not-found`, `invalid` */
  async move(mailbox: MailboxName, from: FolderName, to: FolderName, ids: readonly string[]): Promise<Moved> {
    if (from.name === to.name) throw problem('invalid', 'The messages are in that folder already.');
    await this.#ground.folders.find(mailbox, from);
    await this.#editor.provide(mailbox, to);
    return this.#together(mailbox, from, async (folder) => {
      // A change of folders that went before may have renamed it.
      const target = await this.#ground.folders.find(mailbox, to);
      await this.#complete(target.path);
      const { confinement } = this.#ground.folders;
      const keywords = await MovedKeywords.between(folder.path, target.path, { ...this.#ground, confinement });
      const newIds = new Map<string, string>();
      const { done, notFound } = await repeatedly(this.#ground.folders, folder, ids, async (entry) => {
        const id = this.#ground.names.again(entry.id, entry.receivedAt);
        const path = join(target.path, 'cur', `${id}:2,${await keywords.inTarget(entry.flags)}`);
        await this.#ground.files.rename(join(folder.path, entry.file), path);
        if (ids.length <= mostNewIds) newIds.set(entry.id, id);
      });
      if (done.length > 0) await this.#sync([target.path, folder.path]);
      if (notFound.length > 0) await this.#ground.folders.find(mailbox, to);
      return { moved: done.length, notFound, newIds: Object.fromEntries(newIds) };
    });
  }

  /** Into Trash; from Trash and Junk, for good. @throws Problem `not-found` for the folder */
  async discard(mailbox: MailboxName, name: FolderName, ids: readonly string[]): Promise<Deleted> {
    if (deletesForGood(name)) return this.remove(mailbox, name, ids);
    const { moved, notFound } = await this.move(mailbox, name, trash, ids);
    return { deleted: moved, notFound };
  }

  /** For good. @throws Problem `not-found` for the folder */
  remove(mailbox: MailboxName, name: FolderName, ids: readonly string[]): Promise<Deleted> {
    return this.#together(mailbox, name, async (folder) => {
      let size = 0;
      const { done, notFound } = await repeatedly(this.#ground.folders, folder, ids, async (entry) => {
        const path = join(folder.path, entry.file);
        const bytes = entry.size ?? (await this.#ground.files.lstat(path)).size;
        await this.#ground.files.unlink(path);
        size += bytes;
      });
      if (done.length > 0) await this.#sync([folder.path]);
      await this.#ground.quotas.changed(mailbox, -size, -done.length);
      return { deleted: done.length, notFound };
    });
  }

  /** Puts a message into a folder. @throws Problem `not-found`, `mailbox-full`, `invalid`, and those of the stream */
  async append(mailbox: MailboxName, name: FolderName, source: Readable, status: ReadStatus): Promise<FiledMessage> {
    await this.#editor.provide(mailbox, name);
    const { quotas, folders, files } = this.#ground;
    await quotas.admit(mailbox, 0);
    const home = await folders.mailbox(mailbox);
    await this.#complete(home);
    // It may come slowly, and nobody shall wait for it.
    const written = await writeMessage(source, home, this.#ground);
    try {
      return await this.#together(mailbox, name, async (folder) => {
        await this.#complete(folder.path);
        const { size } = written;
        const as = status === 'unread' ? ({ part: 'new' } as const) : ({ part: 'cur', flags: 'S' } as const);
        const file = () => fileMessage(written, { folder: folder.path, as }, this.#ground);
        return quotas.placing(mailbox, size, { size, count: 1 }, file);
      });
    } finally {
      await files.unlink(written.path).catch(() => undefined);
    }
  }

  #together<T>(mailbox: MailboxName, name: FolderName, task: (folder: MailboxFolder) => Promise<T>): Promise<T> {
    const { locks, folders } = this.#ground;
    return locks.together(lockKey(mailbox), async () => task(await folders.find(mailbox, name)));
  }

  /** Other programs leave out what a folder does not need yet. */
  async #complete(path: string): Promise<void> {
    const { folders, files } = this.#ground;
    for (const part of maildirParts) {
      const there = (): Promise<boolean> => folders.confinement.hasFolder(join(path, part));
      if (await there()) continue;
      try {
        await files.mkdir(join(path, part), 0o700);
      } catch (error) {
        if (!isTaken(error)) throw error;
        if (!(await there())) throw problem('internal', { detail: 'The folder is not in order.', cause: error });
      }
    }
  }

  async #sync(paths: readonly string[]): Promise<void> {
    const parts = paths.flatMap((path) => [join(path, 'cur'), join(path, 'new')]);
    await jointly(parts.map((part) => this.#ground.sync.sync(part)));
  }
}

/** The file of the message with that mark. A message with a mark has been seen by a reader: it is in `cur`. */
function marked(entry: MessageEntry, mark: Mark): string {
  const [letter, isSet] = marks[mark];
  const letters = new Set(entry.flags);
  if (isSet) letters.add(letter);
  else letters.delete(letter);
  return `cur/${entry.id}:2,${[...letters].toSorted().join('')}`;
}
