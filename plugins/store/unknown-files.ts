import type { Dirent } from 'node:fs';
import { lstat, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { mapBounded } from '../../core/concurrency.js';
import { uniqueIdPattern } from '../../core/disk/id.js';
import {
  filesNamed,
  type OwnEntry,
  UnknownEntries,
  unknownInFolders,
  watchFolder,
} from '../../core/host/unknown-entries.js';
import type { PluginContext } from '../../core/plugin.js';
import { isOwnCacheFile } from './cache/file-sweep.js';
import { sentNoteNames } from './drafts/draft-sending.js';
import { intentFolders } from './folders/folder-intent.js';
import { isRemovedMailbox, removedFolder } from './folders/mailbox-removal.js';
import { isDomain, localOfFolder } from './maildir/mailbox-name.js';
import { maildirParts } from './maildir/maildir.js';

/** Reports unknown entries in the store's own folders. */
export function watchStoreFolders(data: string, context: PluginContext): void {
  const cache = { cache: isFolderOfCache, 'cache/folders': isOwnCacheFile };
  watchFolder('cache', data, cache, context);
  watchFolder('drafts', data, { drafts: filesNamed(uniqueIdPattern, ...sentNoteNames) }, context);
}

const isFolderOfCache: OwnEntry = (entry) => entry.isDirectory() && entry.name === 'folders';

/** Above this number of mailboxes their parts are not checked: a delivery to a broken one logs the error. */
const lookedInto = 1000;
const atOnce = 16;

/** Entries of the file system, intermediate folders of changes, removals and moves, and leftovers of the write test. */
const ownName = /^(?:lost\+found|\.intents|\.removed|\.incoming|\.probe-.*)$/;

/** Interval of the check while there are none. */
const lookSeconds = 3600;

/** Reports unknown entries among the mailboxes in health and log. */
export async function watchMailFolder(
  root: string,
  node: string,
  { health, clock, log, every }: PluginContext,
): Promise<void> {
  const what = {
    one: 'entry of the mail folder is no mailbox',
    several: 'entries of the mail folder are no mailboxes',
  };
  const unknown = new UnknownEntries({ what, find: () => unknownInMail(root, node), clock, log });
  health.check('mail folder', () => unknown.report());
  every(lookSeconds, () => unknown.look());
  await unknown.look();
}

/**
 * Entries in place of domains, mailboxes and their `new`, `cur` and `tmp` that are none: files, symbolic links, folders
 * with invalid names; except intermediate folders of changes. Paths below the root.
 */
async function unknownInMail(root: string, node: string): Promise<readonly string[]> {
  const top = (await readdir(root, { withFileTypes: true })).filter(({ name }) => !ownName.test(name));
  const domains = top.filter(isDomainFolder);
  const unknown = top.filter((entry) => !isDomainFolder(entry)).map(({ name }) => name);
  unknown.push(...(await unknownInFolders(root, { ...intentFolders(node), [removedFolder]: isRemovedMailbox })));
  const mailboxes: string[] = [];
  for (const { name: domain } of domains) {
    for (const entry of await readdir(join(root, domain), { withFileTypes: true })) {
      const isMailbox = entry.isDirectory() && localOfFolder(entry.name) !== undefined;
      (isMailbox ? mailboxes : unknown).push(`${domain}/${entry.name}`);
    }
  }
  const parts = mailboxes.slice(0, lookedInto).flatMap((mailbox) => maildirParts.map((part) => `${mailbox}/${part}`));
  const inPlace = await mapBounded(parts, atOnce, async (part) =>
    (await isInPlaceOfFolder(join(root, part))) ? part : undefined,
  );
  return [...unknown, ...inPlace.filter((part) => part !== undefined)];
}

const isDomainFolder = (entry: Dirent): boolean => entry.isDirectory() && isDomain(entry.name);

async function isInPlaceOfFolder(path: string): Promise<boolean> {
  const entry = await lstat(path).catch(() => undefined);
  return entry !== undefined && !entry.isDirectory();
}
