import { createReadStream } from 'node:fs';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import { asStorageProblem, isMissing } from '../../../core/disk/fault.js';
import { type FileLayer, writeAll } from '../../../core/disk/file-layer.js';
import type { FolderSync } from '../../../core/disk/folder.js';
import { uniqueId, uniqueIdPattern } from '../../../core/disk/id.js';
import type { Log } from '../../../core/log/log.js';
import { LineEndings } from '../../../core/mime/line-endings.js';
import { isProblem, problem } from '../../../core/problem.js';
import type { MailboxQuotas } from '../delivery/mailbox-quota.js';
import { type FolderName, type MailboxFolder, parseFolderName } from '../folders/folder-name.js';
import type { MailboxFolders } from '../folders/mailbox-folder.js';
import type { UniqueNames } from '../maildir/maildir-name.js';
import type { MessageEntry } from '../maildir/message-entry.js';
import { type DraftMark, markName, draftMarkOf, type StoredDraft } from './draft.js';

export interface DraftStoreOptions {
  readonly folders: MailboxFolders;
  /** The folder, created if missing. */
  readonly provide: (mailbox: MailboxName, name: FolderName) => Promise<MailboxFolder>;
  readonly quotas: Pick<MailboxQuotas, 'whileReserved' | 'noteChange'>;
  readonly names: UniqueNames;
  readonly files: FileLayer;
  readonly sync: FolderSync;
  readonly prepared: DraftFiles;
  readonly log: Log;
}

const draftsFolder = parseFolderName('Drafts');
export const sentFolder = parseFolderName('Sent');

/** Attempts to find a file that another program renames meanwhile. */
const tries = 5;

/** The drafts of mailboxes as files: one per draft, two while a version is being replaced. */
export class DraftStore {
  readonly #input: DraftStoreOptions;

  constructor(input: DraftStoreOptions) {
    this.#input = input;
  }

  /** Newest first. @throws Problem `not-found` for the mailbox */
  async all(mailbox: MailboxName): Promise<readonly StoredDraft[]> {
    const folder = await this.#folder(mailbox, draftsFolder);
    if (folder === undefined) return [];
    const versions = new Map<string, { mark: DraftMark; entry: MessageEntry }[]>();
    for (const entry of await this.#input.folders.messages.entries(folder)) {
      const mark = draftMarkOf(entry.id);
      const known = versions.get(mark.draftId);
      if (known === undefined) versions.set(mark.draftId, [{ mark, entry }]);
      else known.push({ mark, entry });
    }
    return [...versions.values()].flatMap((found) => {
      // Entries come newest first, so of equal revisions the newest wins.
      const [newest, ...older] = found.toSorted((a, b) => b.mark.revision - a.mark.revision);
      // Marked as deleted by a mail client, but not expunged yet.
      if (newest === undefined || newest.entry.flags.includes('T')) return [];
      return [{ ...newest.mark, folder, entry: newest.entry, older: older.map(({ entry }) => entry) }];
    });
  }

  /** @throws Problem `not-found` */
  async find(mailbox: MailboxName, draftId: string): Promise<StoredDraft> {
    const found = (await this.all(mailbox)).find((draft) => draft.draftId === draftId);
    if (found === undefined) throw problem('not-found', 'There is no such draft.');
    return found;
  }

  /** The sent message of a draft, or of that version of it, if it was sent. */
  async sent(mailbox: MailboxName, draftId: string, revision?: number): Promise<MessageEntry | undefined> {
    const folder = await this.#folder(mailbox, sentFolder);
    if (folder === undefined) return undefined;
    // Filters by name before parsing, since Sent may be large.
    const entries = await this.#input.folders.messages.entries(folder, `D${draftId}V`);
    return entries.find(({ id }) => {
      const mark = draftMarkOf(id);
      return mark.draftId === draftId && (revision === undefined || mark.revision === revision);
    });
  }

  /** Writes a new version of a draft, then removes the old one. Returns the new unique name. */
  async save(mailbox: MailboxName, file: PreparedFile, draftId: string, old: StoredDraft | undefined): Promise<string> {
    const folder = old?.folder ?? (await this.#input.provide(mailbox, draftsFolder));
    const flags = flagsFor('DS', old?.entry.flags ?? '');
    const grown = file.size - (old?.entry.size ?? 0);
    const mark = { draftId, revision: (old?.revision ?? 0) + 1 };
    const place = () => this.#place(folder, file, mark, flags);
    const id = await this.#input.quotas.whileReserved(mailbox, grown, { size: file.size, count: 1 }, place);
    if (old !== undefined) await this.#outdate(mailbox, old);
    return id;
  }

  /** The new version exists: `tidy` removes an old one that could not be removed here. */
  async #outdate(mailbox: MailboxName, old: StoredDraft): Promise<void> {
    try {
      await this.#unlinkAll(mailbox, old);
    } catch (error) {
      this.#input.log.warn({ err: error }, 'an older version of a draft could not be removed');
    }
  }

  /** Files a sent message; its name identifies the draft, so that it is not sent twice. */
  async fileSent(mailbox: MailboxName, file: PreparedFile, mark: DraftMark): Promise<string> {
    const folder = await this.#input.provide(mailbox, sentFolder);
    const id = await this.#place(folder, file, mark, 'S');
    await this.#input.quotas.noteChange(mailbox, file.size, 1);
    return id;
  }

  /** Removes a draft, durably. One that another program removed first counts as removed. */
  async remove(mailbox: MailboxName, draft: StoredDraft): Promise<void> {
    await this.#unlinkAll(mailbox, draft);
    try {
      await this.#input.sync.sync(join(draft.folder.path, 'cur'));
    } catch (error) {
      throw asStorageProblem(error);
    }
  }

  async #unlinkAll(mailbox: MailboxName, draft: StoredDraft): Promise<void> {
    // Oldest first: after a crash the newest version is still there.
    for (const entry of draft.older) await this.#unlink(mailbox, draft.folder, entry);
    await this.#unlink(mailbox, draft.folder, draft.entry);
  }

  /** Removes older versions left by a crash, once the newest is durable. */
  async tidy(mailbox: MailboxName, draft: StoredDraft): Promise<void> {
    await this.#input.sync.sync(join(draft.folder.path, 'cur'));
    for (const entry of draft.older) await this.#unlink(mailbox, draft.folder, entry);
  }

  async #place(folder: MailboxFolder, file: PreparedFile, mark: DraftMark, flags: string): Promise<string> {
    const id = markName(this.#input.names.next(file.size), mark);
    await this.#input.prepared.place(file, folder.path, `${id}:2,${flags}`);
    return id;
  }

  async #unlink(mailbox: MailboxName, folder: MailboxFolder, entry: MessageEntry): Promise<void> {
    const { folders, files, quotas } = this.#input;
    let found: MessageEntry | undefined = entry;
    for (let attempt = 0; attempt < tries && found !== undefined; attempt++) {
      try {
        await files.unlink(join(folder.path, found.file));
        await quotas.noteChange(mailbox, -(entry.size ?? 0), -1);
        return;
      } catch (error) {
        if (!isMissing(error)) throw asStorageProblem(error);
        found = (await folders.messages.locate(folder, [entry.id], 'read')).byId.get(entry.id);
      }
    }
  }

  async #folder(mailbox: MailboxName, name: FolderName): Promise<MailboxFolder | undefined> {
    const { folders } = this.#input;
    folders.mailbox(mailbox);
    try {
      return await folders.find(mailbox, name);
    } catch (error) {
      if (isProblem(error) && error.problem === 'not-found') return undefined;
      throw error;
    }
  }
}

/** In ASCII order, as Maildir requires; keyword letters and other flags are kept. */
function flagsFor(own: string, before: string): string {
  return [...new Set(own + before)]
    .filter((flag) => flag !== 'T')
    .sort()
    .join('');
}

/** A file that is not visible to others yet. */
export interface PreparedFile {
  readonly path: string;
  /** Bytes. */
  readonly size: number;
}

interface DraftFilesInput {
  /** Private, on the file system of the mailboxes. */
  readonly folder: string;
  readonly files: FileLayer;
  readonly sync: FolderSync;
  /** Maximum bytes of a message. */
  readonly messageBytes: () => number;
}

/** Prepares messages in a private folder, and links them into folders when they are complete and durable. */
export class DraftFiles {
  readonly #input: DraftFilesInput;

  constructor(input: DraftFilesInput) {
    this.#input = input;
  }

  /** Removes files of killed processes, except those still to be filed. Unknown files stay. */
  async sweep(wanted: readonly PreparedFile[]): Promise<void> {
    const { files, folder } = this.#input;
    const kept = new Set(wanted.map(({ path }) => path));
    for (const name of await files.readdir(folder)) {
      const path = join(folder, name);
      if (kept.has(path) || !uniqueIdPattern.test(name)) continue;
      if ((await files.lstat(path)).isFile()) await files.unlink(path);
    }
  }

  /** Writes a message or part with CRLF line ends, durably. @throws Problem `too-large`, `invalid` for a NUL byte */
  async prepare(content: AsyncIterable<Buffer>): Promise<PreparedFile> {
    const { files, folder } = this.#input;
    const path = join(folder, uniqueId());
    try {
      return { path, size: await this.#write(path, content) };
    } catch (error) {
      await files.unlink(path).catch(() => undefined);
      throw asStorageProblem(error);
    }
  }

  open({ path }: PreparedFile): Readable {
    return createReadStream(path);
  }

  /** Links it into `cur` of a folder, durably. When it rejects, nothing is there. The prepared file stays. */
  async place({ path }: PreparedFile, folder: string, name: string): Promise<void> {
    const { files, sync } = this.#input;
    const cur = join(folder, 'cur');
    try {
      await files.link(path, join(cur, name));
      try {
        await sync.sync(cur);
      } catch (error) {
        await files.unlink(join(cur, name)).catch(() => undefined);
        throw error;
      }
    } catch (error) {
      throw asStorageProblem(error);
    }
  }

  async discard(...prepared: readonly PreparedFile[]): Promise<void> {
    for (const { path } of prepared) await this.#input.files.unlink(path).catch(() => undefined);
  }

  async #write(path: string, content: AsyncIterable<Buffer>): Promise<number> {
    const { files } = this.#input;
    const messageBytes = this.#input.messageBytes();
    const lines = new LineEndings();
    let size = 0;
    const fd = await files.open(path, 'wx', 0o600);
    const write = async (bytes: Buffer): Promise<void> => {
      size += bytes.length;
      if (size > messageBytes) throw problem('too-large', `A message may have ${messageBytes} bytes at most.`);
      await writeAll(files, fd, [bytes]);
    };
    try {
      for await (const chunk of content) await write(lines.push(chunk));
      await write(lines.end());
      await files.fsync(fd);
    } finally {
      await files.close(fd);
    }
    return size;
  }
}
