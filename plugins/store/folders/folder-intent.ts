import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { writeFileAtomic } from '../../../core/disk/atomic.js';
import { faultCode, isMissing } from '../../../core/disk/fault.js';
import { type FolderSync, makeFolder } from '../../../core/disk/folder.js';
import type { FileLayer } from '../../../core/disk/file-layer.js';
import { uniqueId, uniqueIdPattern } from '../../../core/disk/id.js';
import { filesNamed, type OwnEntry } from '../../../core/host/unknown-entries.js';
import type { Clock } from '../../../core/clock.js';
import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import type { Log } from '../../../core/log/log.js';
import { isProblem } from '../../../core/problem.js';
import { removeTree } from './folder-removal.js';
import { folderOfLocal, isDomain, localOfFolder } from '../maildir/mailbox-name.js';
import { changeSubscriptions } from '../maildir/dovecot-files.js';

/** A directory of a mailbox: a folder, or a folder in the making. Never a path. */
const Directory = z.string().regex(/^\.[^/\0]{1,254}$/);
const FolderIntent = z.strictObject({
  domain: z.string().refine(isDomain),
  /** The mailbox's directory. */
  user: z.string().refine((name) => localOfFolder(name) !== undefined),
  /** In order. One whose first name is gone is done. */
  renames: z.array(z.tuple([Directory, Directory])).readonly(),
  remove: z.array(Directory).readonly(),
  subscriptions: z.strictObject({ from: z.string(), to: z.string().nullable() }).nullable(),
});

/** What `writeFileAtomic` leaves of an intent when it is killed. */
const tornName = /^\.[0-9a-z]{20}\.[0-9a-z]{20}\.tmp$/;
/** What may lie in the folder of the intents. */
export const isOwnIntent: OwnEntry = filesNamed(uniqueIdPattern, tornName);
const usualLockMs = 30_000;
/** After a crash the lock is most probably our own. */
const ownLockMs = 1000;

/** What is to become of the folders of a mailbox. May be carried out any number of times. */
export type FolderIntent = z.output<typeof FolderIntent>;

export interface IntentGround {
  readonly root: string;
  readonly files: FileLayer;
  readonly sync: FolderSync;
  readonly clock: Clock;
  readonly log: Log;
}

/** A directory of the mailbox that readers do not take for a folder. */
export function hiddenDirectory(): string {
  return `..postern-${uniqueId()}`;
}

/**
 * Changes of folders are several renames, and no file system does those in one step. So what is to be done is written down
 * first, durably; a crash between two steps is followed by the remaining ones at the next start.
 */
export class FolderIntents {
  readonly #ground: IntentGround;
  readonly #folder: string;

  constructor(ground: IntentGround) {
    this.#ground = ground;
    this.#folder = join(ground.root, '.intents');
  }

  /** @param name of an intent that this one replaces */
  async write(mailbox: MailboxName, steps: Omit<FolderIntent, 'domain' | 'user'>, name = uniqueId()): Promise<string> {
    const { files, sync } = this.#ground;
    await makeFolder(this.#folder, files, sync);
    const intent: FolderIntent = { domain: mailbox.domain, user: folderOfLocal(mailbox.user), ...steps };
    await writeFileAtomic(this.#pathOf(name), JSON.stringify(intent), { files });
    return name;
  }

  /**
   * Does what is written there, then forgets it. Faults are the system's.
   * @param lockMs a lock of subscriptions that is older is nobody's
   */
  async carryOut(name: string, lockMs = usualLockMs): Promise<void> {
    const intent = FolderIntent.parse(JSON.parse(await readFile(this.#pathOf(name), 'utf8')));
    const { files, sync, root } = this.#ground;
    const mailbox = join(root, intent.domain, intent.user);
    for (const [from, to] of intent.renames) await this.#rename(join(mailbox, from), join(mailbox, to));
    if (intent.renames.length > 0) await sync.sync(mailbox);
    if (intent.subscriptions !== null) await this.#changeSubscriptions(mailbox, intent.subscriptions, lockMs);
    for (const directory of intent.remove) await removeTree(files, join(mailbox, directory));
    if (intent.remove.length > 0) await sync.sync(mailbox);
    await files.unlink(this.#pathOf(name));
    // An intent that came back after a power cut would do again what has been undone by hand since.
    await sync.sync(this.#folder);
  }

  /** What a dead process left. One that cannot be carried out is kept, and said in the log. */
  async resume(): Promise<void> {
    for (const name of await this.#left()) {
      try {
        await this.carryOut(name, ownLockMs);
        this.#ground.log.info({ intent: name }, 'a change of folders that was interrupted is complete');
      } catch (error) {
        this.#ground.log.error({ err: error, intent: name }, 'a change of folders could not be completed');
      }
    }
  }

  async #left(): Promise<readonly string[]> {
    try {
      const entries = await readdir(this.#folder, { withFileTypes: true });
      const names = entries.filter((entry) => entry.isFile()).map(({ name }) => name);
      // One that was still being written: nothing of it was begun.
      for (const name of names.filter((one) => tornName.test(one))) await this.#ground.files.unlink(this.#pathOf(name));
      const foreign = entries.filter((entry) => !entry.isFile()).map(({ name }) => name);
      if (foreign.length > 0) this.#ground.log.warn({ entries: foreign }, 'no changes of folders; left alone');
      return names.filter((name) => !name.startsWith('.')).toSorted();
    } catch (error) {
      if (isMissing(error)) return [];
      if (faultCode(error) !== 'ENOTDIR') throw error;
      this.#ground.log.error({ folder: this.#folder }, 'a file stands where changes of folders are written down');
      return [];
    }
  }

  /** rename(2) would replace an empty directory: so it is looked at first. */
  async #rename(from: string, to: string): Promise<void> {
    const { files, log } = this.#ground;
    if (!(await isThere(files, from))) return;
    if (await isThere(files, to)) {
      log.warn({ to }, 'a folder was not renamed: another program has made one of that name');
      return;
    }
    await files.rename(from, to);
  }

  /** The folders count, and their change is done: a list that cannot be had is no reason to fail. */
  async #changeSubscriptions(
    mailbox: string,
    change: NonNullable<FolderIntent['subscriptions']>,
    staleMs: number,
  ): Promise<void> {
    try {
      await changeSubscriptions(mailbox, change, { ...this.#ground, staleMs });
    } catch (error) {
      if (!isProblem(error)) throw error;
      this.#ground.log.warn({ err: error }, 'subscriptions were not changed');
    }
  }

  #pathOf(name: string): string {
    return join(this.#folder, name);
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
