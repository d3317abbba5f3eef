import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { join, relative, sep } from 'node:path';
import { mapBounded } from '../../../core/concurrency.js';
import { unlessMissing } from '../../../core/disk/fault.js';
import { type FileLayer, nodeFiles } from '../../../core/disk/file-layer.js';
import { findAtTarget, type FindLinked, hasContent } from '../../../core/spool/restoration.js';
import { readMessageName } from '../maildir/message-name.js';

/**
 * Finds messages in any folder of the mailbox into which they were delivered, since a client may have moved or flagged
 * them: by unique name, and by content where a move has changed the name. A mailbox is read once, so what is
 * moved after that may not be found: a new finder finds it.
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

/** Includes the trace fields of received messages, which always differ. */
const headBytes = 1024;
const readsAtOnce = 16;
/** Neither blocks on a FIFO nor follows a link. */
const readOnly = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

type Paths = readonly string[];

/** The messages of a mailbox in all its folders at the time of reading. */
class MailboxInventory {
  readonly #files: FileLayer;
  readonly #byId = new Map<string, string>();
  readonly #bySize = new Map<number, string[]>();
  /** Only for requested sizes: a mailbox may have very many messages of one size. */
  readonly #byHead = new Map<number, Promise<ReadonlyMap<string, Paths>>>();

  private constructor(files: FileLayer) {
    this.#files = files;
  }

  static async of(mailbox: string, files: FileLayer): Promise<MailboxInventory> {
    const inventory = new MailboxInventory(files);
    const folders = ['', ...(await namesIn(mailbox, files)).filter((name) => name.startsWith('.'))];
    for (const folder of folders) {
      for (const part of ['new', 'cur']) await inventory.#read(join(mailbox, folder, part));
    }
    return inventory;
  }

  async #read(folder: string): Promise<void> {
    for (const name of await namesIn(folder, this.#files)) {
      const { id, size } = readMessageName(name);
      const path = join(folder, name);
      this.#byId.set(id, path);
      if (size !== undefined) listIn(this.#bySize, size).push(path);
    }
  }

  /** Path of the message with that unique name, with any flags. */
  named(id: string): string | undefined {
    return this.#byId.get(id);
  }

  /** Path of the message with this content. Each file's head is read once, and the whole file when the head matches. */
  async holding(content: Buffer): Promise<string | undefined> {
    const size = content.length;
    const reading = this.#byHead.get(size) ?? this.#readHeads(size);
    this.#byHead.set(size, reading);
    for (const path of (await reading).get(keyOf(content)) ?? []) {
      if (await unlessMissing(hasContent(path, content, this.#files))) return path;
    }
    return undefined;
  }

  async #readHeads(size: number): Promise<ReadonlyMap<string, Paths>> {
    const byHead = new Map<string, string[]>();
    await mapBounded(this.#bySize.get(size) ?? [], readsAtOnce, async (path) => {
      const head = await unlessMissing(this.#headOf(path, size));
      if (head !== undefined) listIn(byHead, keyOf(head)).push(path);
    });
    return byHead;
  }

  /** Undefined unless it is a file of that size. */
  async #headOf(path: string, size: number): Promise<Buffer | undefined> {
    const files = this.#files;
    const is = await files.lstat(path);
    if (!is.isFile() || is.size !== size) return undefined;
    const fd = await files.open(path, readOnly);
    try {
      const head = Buffer.allocUnsafe(Math.min(size, headBytes));
      return head.subarray(0, await files.read(fd, head, 0));
    } finally {
      await files.close(fd);
    }
  }
}

function keyOf(bytes: Buffer): string {
  return createHash('sha256').update(bytes.subarray(0, headBytes)).digest('base64');
}

function listIn<K>(lists: Map<K, string[]>, key: K): string[] {
  const known = lists.get(key);
  if (known !== undefined) return known;
  const list: string[] = [];
  lists.set(key, list);
  return list;
}

/** Empty unless it is a folder; symbolic links are not followed. */
async function namesIn(path: string, files: FileLayer): Promise<Paths> {
  const is = await unlessMissing(files.lstat(path));
  return is?.isDirectory() === true ? ((await unlessMissing(files.readdir(path))) ?? []) : [];
}
