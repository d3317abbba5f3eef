import { join } from 'node:path';
import type { Clock } from '../../../core/clock.js';
import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import { isMissing } from '../../../core/disk/fault.js';
import { type FileLayer, writeAll } from '../../../core/disk/file-layer.js';
import type { FolderSync } from '../../../core/disk/folder.js';
import type { Log } from '../../../core/log/log.js';
import { problem, type Problem } from '../../../core/problem.js';
import { allSettledOrThrow, type KeyedMutex, mapBounded } from '../../../core/concurrency.js';
import type { MailboxQuotas, MailboxUsage } from '../delivery/mailbox-quota.js';
import { linkOrCopy } from '../maildir/linked-message.js';
import { lockKey, type MailboxFolders } from './mailbox-folder.js';
import {
  foldedName,
  type FolderName,
  isBelow,
  type MailboxFolder,
  rebased,
  specialNames,
  specialUseOf,
} from './folder-name.js';
import type { UniqueNames } from '../maildir/maildir-name.js';
import { maildirParts } from '../maildir/maildir.js';
import { changeMessages } from './message-change.js';
import { type FolderIntent, type FolderIntents, hiddenDirectory, isThere } from './folder-intent.js';
import { keywordFile } from './folder-keywords.js';
import { maildirNames } from '../maildir/folder-stamp.js';

export interface EditorDeps {
  readonly folders: MailboxFolders;
  readonly files: FileLayer;
  readonly sync: FolderSync;
  readonly locks: KeyedMutex;
  readonly intents: FolderIntents;
  readonly names: UniqueNames;
  readonly quotas: MailboxQuotas;
  readonly clock: Clock;
  readonly log: Log;
}

/** A precondition checked under the lock of the mailbox; rejects when it fails. */
export type Condition = () => Promise<void>;

type Steps = Omit<FolderIntent, 'domain' | 'user'>;

const nothing: Steps = { renames: [], remove: [], subscriptions: null };
const linksAtOnce = 16;

/** Creates, renames, copies and removes folders. Each change is atomic with regard to crashes. */
export class FolderEditor {
  readonly #deps: EditorDeps;
  /** Unfinished intents by mailbox; the next change resumes them first. */
  readonly #unfinished = new Map<string, string>();

  constructor(deps: EditorDeps) {
    this.#deps = deps;
  }

  /** @throws Problem `not-found` for the mailbox, `conflict` for a name that exists or is too similar to one */
  create(mailbox: MailboxName, name: FolderName, condition?: Condition): Promise<void> {
    return this.#alone(mailbox, async (root) => {
      await condition?.();
      refuseTaken(await this.#deps.folders.list(mailbox), name);
      await this.#refusePresent(root, [name]);
      await this.#build(mailbox, root, [{ to: name, from: undefined }]);
    });
  }

  /** The folder; a missing special folder is created. @throws Problem `not-found` */
  async provide(mailbox: MailboxName, name: FolderName): Promise<MailboxFolder> {
    const { folders } = this.#deps;
    const found = await folders.find(mailbox, name).catch((error: unknown) => {
      if (!specialNames.some((special) => special === name.name)) throw error;
    });
    if (found !== undefined) return found;
    await this.#alone(mailbox, async (root) => {
      if (!(await isThere(this.#deps.files, join(root, name.directory)))) {
        await this.#build(mailbox, root, [{ to: name, from: undefined }]);
      }
    });
    return folders.find(mailbox, name);
  }

  /**
   * Renames or moves the folder with its subfolders. @throws Problem `not-found`, `conflict`, `forbidden`, `invalid`
   */
  rename(mailbox: MailboxName, folder: FolderName, to: FolderName, condition?: Condition): Promise<void> {
    return this.#alone(mailbox, async (root) => {
      await condition?.();
      const top = await this.#deps.folders.find(mailbox, folder);
      refuseProtected(folder);
      if (to.name === folder.name) return;
      if (isBelow(to, folder)) throw problem('invalid', 'A folder cannot be moved into itself.');
      const all = await this.#deps.folders.list(mailbox);
      refuseTaken(all, to, folder);
      const moving = [top, ...all.filter(({ name }) => isBelow(name, folder))];
      const targets = moving.map(({ name }) => rebased(name, folder, to));
      await this.#refusePresent(root, targets);
      const renames = moving.map(({ name }, index) => [name.directory, targets[index]?.directory ?? ''] as const);
      await this.#do(mailbox, {
        ...nothing,
        renames: renames.map(([from, target]) => [from, target]),
        subscriptions: { from: folder.name, to: to.name },
      });
    });
  }

  /**
   * Copies a folder with its subfolders: messages are linked under new names. @throws Problem as `rename`, and
   * `mailbox-full`
   */
  copy(mailbox: MailboxName, folder: FolderName, to: FolderName, condition?: Condition): Promise<void> {
    return this.#alone(mailbox, async (root) => {
      await condition?.();
      const { folders, quotas } = this.#deps;
      const top = await folders.find(mailbox, folder);
      const all = await folders.list(mailbox);
      refuseTaken(all, to);
      if (isBelow(to, folder)) throw problem('invalid', 'A folder cannot be copied into itself.');
      const copied = [top, ...all.filter(({ name }) => isBelow(name, folder))];
      const builds = copied.map((from) => ({ from, to: rebased(from.name, folder, to) }));
      await this.#refusePresent(
        root,
        builds.map((build) => build.to),
      );
      const usage = await this.#usageOf(copied);
      await quotas.whileReserved(mailbox, usage.size, usage, () => this.#build(mailbox, root, builds));
    });
  }

  /**
   * @param recursive with its messages and subfolders; otherwise it must be empty
   * @throws Problem `not-found`, `conflict` when it is not empty, `forbidden`
   */
  remove(
    mailbox: MailboxName,
    folder: FolderName,
    recursive: boolean,
    condition?: Condition,
  ): Promise<MailboxUsage & { folders: number }> {
    return this.#alone(mailbox, async (root) => {
      await condition?.();
      const { folders, quotas } = this.#deps;
      const top = await folders.find(mailbox, folder);
      refuseProtected(folder);
      const below = (await folders.list(mailbox)).filter(({ name }) => isBelow(name, folder));
      const going = [top, ...below];
      const usage = await this.#usageOf(going);
      if (!recursive) {
        if (usage.count > 0 || below.length > 0) throw notEmpty();
        await this.#removeEmpty(mailbox, root, folder);
        return { ...usage, folders: 1 };
      }
      const renames = going.map(({ name }): [string, string] => [name.directory, hiddenDirectory()]);
      await this.#do(mailbox, {
        renames,
        remove: renames.map(([, hidden]) => hidden),
        subscriptions: { from: folder.name, to: null },
      });
      await quotas.noteChange(mailbox, -usage.size, -usage.count);
      return { ...usage, folders: going.length };
    });
  }

  /** Other programs deliver without locks, so the folder is hidden before it is checked for messages. */
  async #removeEmpty(mailbox: MailboxName, root: string, { name, directory }: FolderName): Promise<void> {
    const { files, intents } = this.#deps;
    const hidden = hiddenDirectory();
    const undo = await intents.write(mailbox, { ...nothing, renames: [[hidden, directory]] });
    this.#unfinished.set(lockKey(mailbox), undo);
    await files.rename(join(root, directory), join(root, hidden));
    if (await hasMessages(files, join(root, hidden))) {
      await intents.carryOut(undo);
      this.#unfinished.delete(lockKey(mailbox));
      throw notEmpty();
    }
    await this.#do(mailbox, { ...nothing, remove: [hidden], subscriptions: { from: name, to: null } }, undo);
  }

  async #alone<T>(mailbox: MailboxName, task: (root: string) => Promise<T>): Promise<T> {
    const { locks, folders, intents } = this.#deps;
    const root = folders.mailbox(mailbox);
    const key = lockKey(mailbox);
    return locks.run(key, async () => {
      const unfinished = this.#unfinished.get(key);
      if (unfinished !== undefined) await intents.carryOut(unfinished);
      this.#unfinished.delete(key);
      return task(root);
    });
  }

  async #do(mailbox: MailboxName, steps: Steps, written?: string): Promise<void> {
    const { intents } = this.#deps;
    const intent = await intents.write(mailbox, steps, written);
    this.#unfinished.set(lockKey(mailbox), intent);
    await intents.carryOut(intent);
    this.#unfinished.delete(lockKey(mailbox));
  }

  /** Folders are built under hidden names and then renamed; until the intent is written, a crash removes them. */
  async #build(mailbox: MailboxName, root: string, builds: readonly Build[]): Promise<void> {
    const { intents } = this.#deps;
    const renames = builds.map(({ to }): [string, string] => [hiddenDirectory(), to.directory]);
    const hidden = renames.map(([name]) => name);
    const intent = await intents.write(mailbox, { ...nothing, remove: hidden });
    this.#unfinished.set(lockKey(mailbox), intent);
    for (const [index, { from }] of builds.entries()) await this.#buildOne(join(root, hidden[index] ?? ''), from);
    await this.#do(mailbox, { ...nothing, renames }, intent);
  }

  async #buildOne(path: string, from: MailboxFolder | undefined): Promise<void> {
    const { files, sync } = this.#deps;
    await files.mkdir(path, 0o700);
    for (const part of maildirParts) await files.mkdir(join(path, part), 0o700);
    await files.close(await files.open(join(path, 'maildirfolder'), 'wx', 0o600));
    if (from !== undefined) {
      await this.#linkMessages(from, path);
      await this.#copyKeywords(from, path);
    }
    await allSettledOrThrow([path, join(path, 'new'), join(path, 'cur')].map((folder) => sync.sync(folder)));
  }

  async #linkMessages(from: MailboxFolder, path: string): Promise<void> {
    const { folders, files, names } = this.#deps;
    const ids = (await folders.messages.matching(from, {})).ids;
    await changeMessages(folders, from, ids, (entry) => {
      const part = entry.file.startsWith('new/') ? 'new' : 'cur';
      const info = entry.file.indexOf(':') < 0 ? '' : entry.file.slice(entry.file.indexOf(':'));
      const target = join(path, part, names.renamed(entry.id, entry.receivedAt) + info);
      return linkOrCopy(files, join(from.path, entry.file), target);
    });
  }

  /** Keyword letters in the copied names keep their meaning. */
  async #copyKeywords(from: MailboxFolder, path: string): Promise<void> {
    const { folders, files } = this.#deps;
    const list = await keywordFile(from.path, folders.confinement);
    if (list === undefined) return;
    const fd = await files.open(join(path, 'dovecot-keywords'), 'wx', 0o600);
    try {
      await writeAll(files, fd, [list]);
      await files.fsync(fd);
    } finally {
      await files.close(fd);
    }
  }

  async #refusePresent(root: string, names: readonly FolderName[]): Promise<void> {
    const found = await mapBounded(names, linksAtOnce, ({ directory }) =>
      isThere(this.#deps.files, join(root, directory)),
    );
    const present = names[found.indexOf(true)];
    if (present !== undefined) throw problem('conflict', `There is a folder ${present.name} already.`);
  }

  async #usageOf(folders: readonly MailboxFolder[]): Promise<MailboxUsage> {
    const { messages } = this.#deps.folders;
    const found = await mapBounded(folders, 4, (folder) => messages.totals(folder));
    const sum = (values: readonly number[]) => values.reduce((all, value) => all + value, 0);
    return { count: sum(found.map(({ total }) => total)), size: sum(found.map(({ size }) => size)) };
  }
}

interface Build {
  readonly to: FolderName;
  readonly from: MailboxFolder | undefined;
}

function notEmpty(): Problem {
  return problem('conflict', 'The folder is not empty. Say recursive=true to remove it with all that is in it.');
}

async function hasMessages(files: FileLayer, folder: string): Promise<boolean> {
  for (const part of maildirNames) {
    try {
      if ((await files.readdir(join(folder, part))).some((name) => !name.startsWith('.'))) return true;
    } catch (error) {
      if (!isMissing(error)) throw error;
    }
  }
  return false;
}

function refuseProtected(folder: FolderName): void {
  if (specialUseOf(folder) !== null) {
    throw problem('forbidden', `${folder.name} has a use of its own: it cannot be renamed, moved or removed.`);
  }
}

/** @param leaving a folder that is being renamed, whose name becomes free with those below it */
function refuseTaken(all: readonly MailboxFolder[], to: FolderName, leaving?: FolderName): void {
  const staying = all
    .map(({ name }) => name)
    .filter((name) => leaving === undefined || (name.name !== leaving.name && !isBelow(name, leaving)));
  const isNew = leaving === undefined && specialNames.some((special) => special === to.name);
  const alike = foldedName(to.name);
  const reserved = isNew ? [] : specialNames;
  const taken = [...staying.map(({ name }) => name), ...reserved].find((name) => foldedName(name) === alike);
  if (taken !== undefined) throw problem('conflict', `There is a folder ${taken} already.`);
  const above = staying.flatMap(({ name }) => levelsAbove(name));
  const almost = above.find((name) => foldedName(name) === alike && name !== to.name);
  if (almost !== undefined) throw problem('conflict', `There are folders below ${almost} already.`);
}

function levelsAbove(name: string): readonly string[] {
  const levels = name.split('.');
  return levels.slice(1).map((_, index) => levels.slice(0, index + 1).join('.'));
}
