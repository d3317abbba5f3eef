import { join, relative, sep } from 'node:path';
import { nodeFiles } from '../../../core/disk/file-layer.js';
import { type FindLinked, findAtTarget } from '../../../core/spool/restoration.js';
import { MailboxInventory } from './mailbox-inventory.js';
import { readMessageName } from './message-name.js';

/**
 * Finds messages in any folder of the mailbox into which they were delivered, for a reader may have moved them or set
 * flags: by their unique names, and by their bytes where a move has given them another name. What a mailbox holds is
 * read once, so it is for the time before mail comes in.
 */
export function placedMessageFinder(root: string, files = nodeFiles): FindLinked {
  const known = new Map<string, Promise<MailboxInventory>>();
  const findWhere = findAtTarget(files);
  return async (placement, content) => {
    const placed = await findWhere(placement, content);
    if (placed !== undefined) return placed;
    const [domain, user] = relative(root, placement.folder).split(sep);
    if (domain === undefined || user === undefined || domain === '..') return undefined;
    const mailbox = join(root, domain, user);
    const reading = known.get(mailbox) ?? MailboxInventory.of(mailbox, files);
    known.set(mailbox, reading);
    const inventory = await reading;
    return inventory.named(readMessageName(placement.name).id) ?? (await inventory.holding(content));
  };
}
