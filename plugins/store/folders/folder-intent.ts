import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { writeFileAtomic } from '../../../core/disk/atomic.js';
import { faultCode, isMissing, unlessMissing } from '../../../core/disk/fault.js';
import { type FolderSync, makeFolder } from '../../../core/disk/folder.js';
import type { FileLayer } from '../../../core/disk/file-layer.js';
import { uniqueId, uniqueIdPattern } from '../../../core/disk/id.js';
import { filesNamed, type OwnEntry, type OwnFolders } from '../../../core/host/unknown-entries.js';
import type { Clock } from '../../../core/clock.js';
import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import type { Log } from '../../../core/log/log.js';
import { isProblem } from '../../../core/problem.js';
import { removeTree } from './folder-removal.js';
import { folderOfLocal, isDomain, localOfFolder } from '../maildir/mailbox-name.js';
import { changeSubscriptions } from '../maildir/dovecot-files.js';

/** A directory of a mailbox: a folder, or a folder under construction. Never a path. */
const Directory = z.string().regex(/^\.[^/\0]{1,254}$/);
const FolderIntent = z.strictObject({
  domain: z.string().refine(isDomain),
  /** The mailbox's directory. */
  user: z.string().refine((name) => localOfFolder(name) !== undefined),
  /** In order. A rename whose source is gone is done. */
  renames: z.array(z.tuple([Directory, Directory])).readonly(),
  remove: z.array(Directory).readonly(),
  subscriptions: z.strictObject({ from: z.string(), to: z.string().nullable() }).nullable(),
});

/** Name of a temporary file that a killed `writeFileAtomic` leaves. */
const tornName = /^\.[0-9a-z]{20}\.[0-9a-z]{20}\.tmp$/;
/** Intents, and what a killed write left of one. */
const isIntent: OwnEntry = filesNamed(uniqueIdPattern, tornName);
const isNode: OwnEntry = (entry) => entry.isDirectory() && uniqueIdPattern.test(entry.name);
/** What belongs there below the root; an earlier version had its intents beside the folders of the nodes. */
export const intentFolders = (node: string): OwnFolders => ({
  '.intents': (entry) => isNode(entry) || isIntent(entry),
  [`.intents/${node}`]: isIntent,
});
const defaultLockMs = 30_000;
/** After a crash, an existing lock is probably from the same server. */
const ownLockMs = 1000;

/** A planned change of a mailbox's folders. Idempotent. */
export type FolderIntent = z.output<typeof FolderIntent>;

export interface IntentDeps {
  readonly root: string;
  /** Id of this server, where several share the root. */
  readonly node: string;
  readonly files: FileLayer;
  readonly sync: FolderSync;
  readonly clock: Clock;
  readonly log: Log;
}

/** A directory name that mail clients do not treat as a folder. */
export function hiddenDirectory(): string {
  return `..postern-${uniqueId()}`;
}

/**
 * A change of folders takes several renames, which no file system does in one step. So the plan is written first,
 * durably; after a crash, the next start carries out the remaining steps.
 */
export class FolderIntents {
  readonly #deps: IntentDeps;
  /** Of this server. Those of others may be under way. */
  readonly #folder: string;

  constructor(deps: IntentDeps) {
    this.#deps = deps;
    this.#folder = join(deps.root, '.intents', deps.node);
  }

  /** @param replaced name of an intent. When it rejects, a new one is not there, so that no start carries it out. */
  async write(mailbox: MailboxName, steps: Omit<FolderIntent, 'domain' | 'user'>, replaced?: string): Promise<string> {
    const { files, sync } = this.#deps;
    await makeFolder(this.#folder, files, sync);
    const intent: FolderIntent = { domain: mailbox.domain, user: folderOfLocal(mailbox.user), ...steps };
    const name = replaced ?? uniqueId();
    const path = join(this.#folder, name);
    try {
      await writeFileAtomic(path, JSON.stringify(intent), { files });
    } catch (error) {
      if (replaced === undefined) await files.unlink(path).catch(() => undefined);
      throw error;
    }
    return name;
  }

  /**
   * Carries out the intent, then deletes it. Rejects with errors of the file system.
   * @param lockMs a subscription lock that is older is stale
   */
  async carryOut(name: string, lockMs = defaultLockMs, folder = this.#folder): Promise<void> {
    const path = join(folder, name);
    const { files, sync, root } = this.#deps;
    const text = await unlessMissing(readFile(path, 'utf8'));
    // An earlier run did all but the last fsync.
    if (text === undefined) return sync.sync(folder);
    const intent = FolderIntent.parse(JSON.parse(text));
    const mailbox = join(root, intent.domain, intent.user);
    for (const [from, to] of intent.renames) await this.#rename(join(mailbox, from), join(mailbox, to));
    if (intent.renames.length > 0) await sync.sync(mailbox);
    if (intent.subscriptions !== null) await this.#changeSubscriptions(mailbox, intent.subscriptions, lockMs);
    if (intent.renames.length > 0 && intent.remove.length > 0) {
      // Another program may make a renamed folder again: once its removal begins, no rename may be repeated.
      await writeFileAtomic(path, JSON.stringify({ ...intent, renames: [], subscriptions: null }), { files });
    }
    for (const directory of intent.remove) await removeTree(files, join(mailbox, directory));
    if (intent.remove.length > 0) await sync.sync(mailbox);
    await files.unlink(path);
    // An intent that reappeared after a power cut would redo changes that were reverted since.
    await sync.sync(folder);
  }

  /** Carries out the intents of a dead process. A failing one is kept and logged. */
  async resume(): Promise<void> {
    // An earlier version has written them beside the folders of the nodes.
    await this.#resume(join(this.#folder, '..'), isNode);
    await this.#resume(this.#folder);
  }

  async #resume(folder: string, isOther: OwnEntry = () => false): Promise<void> {
    for (const name of await this.#left(folder, isOther)) {
      try {
        await this.carryOut(name, ownLockMs, folder);
        this.#deps.log.info({ intent: name }, 'a change of folders that was interrupted is complete');
      } catch (error) {
        this.#deps.log.error({ err: error, intent: name }, 'a change of folders could not be completed');
      }
    }
  }

  async #left(folder: string, isOther: OwnEntry): Promise<readonly string[]> {
    try {
      const entries = (await readdir(folder, { withFileTypes: true })).filter((entry) => !isOther(entry));
      const names = entries.filter((entry) => entry.isFile()).map(({ name }) => name);
      // An intent that was still being written: none of its steps had begun.
      for (const name of names.filter((one) => tornName.test(one))) await this.#deps.files.unlink(join(folder, name));
      const unknown = entries.filter((entry) => !entry.isFile()).map(({ name }) => name);
      if (unknown.length > 0) this.#deps.log.warn({ entries: unknown }, 'no changes of folders; left alone');
      return names.filter((name) => !name.startsWith('.')).toSorted();
    } catch (error) {
      if (isMissing(error)) return [];
      if (faultCode(error) !== 'ENOTDIR') throw error;
      this.#deps.log.error({ folder }, 'a file stands where changes of folders are written down');
      return [];
    }
  }

  /** rename(2) would replace an empty directory, so check first. */
  async #rename(from: string, to: string): Promise<void> {
    const { files, log } = this.#deps;
    if (!(await isThere(files, from))) return;
    if (await isThere(files, to)) {
      log.warn({ to }, 'a folder was not renamed: another program has made one of that name');
      return;
    }
    await files.rename(from, to);
  }

  /** The folders matter most, and their change is done: an unavailable subscription list is no error. */
  async #changeSubscriptions(
    mailbox: string,
    change: NonNullable<FolderIntent['subscriptions']>,
    staleMs: number,
  ): Promise<void> {
    try {
      await changeSubscriptions(mailbox, change, { ...this.#deps, staleMs });
    } catch (error) {
      if (!isProblem(error)) throw error;
      this.#deps.log.warn({ err: error }, 'subscriptions were not changed');
    }
  }
}

export async function isThere(files: FileLayer, path: string): Promise<boolean> {
  try {
    await files.lstat(path);
    return true;
  } catch (error) {
    if (isMissing(error)) return false;
    throw error;
  }
}
