import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { join, relative, sep } from 'node:path';
import { mapBounded } from '../../../core/concurrency.js';
import { unlessMissing } from '../../../core/disk/fault.js';
import { type FileLayer, nodeFiles } from '../../../core/disk/file-layer.js';
import { findAtTarget, type FindLinked, hasContent } from '../../../core/spool/restoration.js';
import { readMessageName } from '../maildir/message-name.js';

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

/** With the trace fields of what we received, which are never alike. */
const headBytes = 1024;
const readsAtOnce = 16;
/** Neither a FIFO nor a link is waited for or followed. */
const readOnly = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

type Paths = readonly string[];

/** The messages of a mailbox in all its folders, as they were when it was read. */
class MailboxInventory {
  readonly #files: FileLayer;
  readonly #byId = new Map<string, string>();
  readonly #bySize = new Map<number, string[]>();
  /** Of the sizes that were asked for: a mailbox may have very many messages of one. */
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

  /** Where the message with that unique name is, whatever its flags. */
  named(id: string): string | undefined {
    return this.#byId.get(id);
  }

  /** Where the message with these bytes is. Each file is read once for its head, and wholly when that is alike. */
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

  /** Undefined for what is no file of that size. */
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

/** Empty for what is no folder; symbolic links are not followed. */
async function namesIn(path: string, files: FileLayer): Promise<Paths> {
  const is = await unlessMissing(files.lstat(path));
  return is?.isDirectory() === true ? ((await unlessMissing(files.readdir(path))) ?? []) : [];
}
