import type { Dirent } from 'node:fs';
import { lstat, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { UnknownEntries, unknownInFolders } from '../../../core/host/unknown-entries.js';
import type { PluginContext } from '../../../core/plugin.js';
import { mapBounded } from '../../../core/concurrency.js';
import { isOwnIntent } from '../folders/folder-intent.js';
import { isDomain, localOfFolder } from './mailbox-name.js';
import { isRemovedMailbox, removedFolder } from './mailbox-removal.js';
import { maildirParts } from './maildir.js';

/** Of more mailboxes the parts are not looked at: a delivery to a broken one says so in the log. */
const lookedInto = 1000;
const atOnce = 16;

/** A file system's own, changes of folders that are under way, mailboxes that are being removed, and what a test of the disk may have left. */
const ownName = /^(?:lost\+found|\.intents|\.removed|\.probe-.*)$/;

/** How often they are looked for while there are none. */
const lookSeconds = 3600;

/** Tells of what is no mailbox among the mailboxes, in health and in the log. */
export async function watchMailFolder(root: string, { health, clock, log, every }: PluginContext): Promise<void> {
  const what = {
    one: 'entry of the mail folder is no mailbox',
    several: 'entries of the mail folder are no mailboxes',
  };
  const foreign = new UnknownEntries({ what, find: () => foreignInMail(root), clock, log });
  health.check('mail folder', () => foreign.report());
  every(lookSeconds, () => foreign.look());
  await foreign.look();
}

/**
 * What lies where domains, mailboxes and their `new`, `cur` and `tmp` are expected and is none: files, symbolic links,
 * folders whose names we would not give; and what is no change of folders among those. Paths below the root.
 */
async function foreignInMail(root: string): Promise<readonly string[]> {
  const top = (await readdir(root, { withFileTypes: true })).filter(({ name }) => !ownName.test(name));
  const domains = top.filter(isDomainFolder);
  const foreign = top.filter((entry) => !isDomainFolder(entry)).map(({ name }) => name);
  foreign.push(...(await unknownInFolders(root, { '.intents': isOwnIntent, [removedFolder]: isRemovedMailbox })));
  const mailboxes: string[] = [];
  for (const { name: domain } of domains) {
    for (const entry of await readdir(join(root, domain), { withFileTypes: true })) {
      const isMailbox = entry.isDirectory() && localOfFolder(entry.name) !== undefined;
      (isMailbox ? mailboxes : foreign).push(`${domain}/${entry.name}`);
    }
  }
  const parts = mailboxes.slice(0, lookedInto).flatMap((mailbox) => maildirParts.map((part) => `${mailbox}/${part}`));
  const inPlace = await mapBounded(parts, atOnce, async (part) =>
    (await isInPlaceOfFolder(join(root, part))) ? part : undefined,
  );
  return [...foreign, ...inPlace.filter((part) => part !== undefined)];
}

const isDomainFolder = (entry: Dirent): boolean => entry.isDirectory() && isDomain(entry.name);

async function isInPlaceOfFolder(path: string): Promise<boolean> {
  const entry = await lstat(path).catch(() => undefined);
  return entry !== undefined && !entry.isDirectory();
}
