import { LRUCache } from 'lru-cache';
import type { Clock } from '../../../core/clock.js';
import type { MailboxName } from '../../../core/contracts/mailboxes.js';
import { Confinement } from '../../../core/disk/confinement.js';
import { problem } from '../../../core/problem.js';
import type { FolderTask } from '../cache/folder-task.js';
import { FolderThread } from '../cache/folder-thread.js';
import type { DraftContent } from '../mime/draft-content.js';
import { FolderMessages, type ListingRequest, type Matching, type MessageFilter } from '../folders/folder-messages.js';
import type { FolderName, MailboxFolder } from '../folders/folder-name.js';
import { MailboxFolders } from '../folders/mailbox-folder.js';
import { folderVersion } from '../maildir/folder-stamp.js';
import { describeFolder, type FolderProperties, type FolderSummary, FolderTree } from '../folders/folder-tree.js';
import { isDomain, localOfFolder, mailboxFolder } from '../maildir/mailbox-name.js';
import { type MessageFile, openMessage, readHead } from '../folders/message-file.js';
import {
  type HtmlDocument,
  isUnparsed,
  MessageParser,
  type ParserLimits,
  type PartBytes,
} from '../mime/message-parser.js';
import { cursorAt, type Page, readCursor } from '../maildir/page.js';
import type { MessageSummary } from '../folders/message-summary.js';
import { type MessageView, viewMessage } from './message-view.js';

/** Location of a message. */
export interface MessagePlace {
  readonly mailbox: MailboxName;
  readonly folder: FolderName;
  readonly id: string;
}

/** One page of a folder's messages. */
export interface FolderPage extends Page<MessageSummary> {
  readonly folder: FolderSummary;
  /** False when a search reached its limit: not all messages were searched. */
  readonly searchedAll: boolean;
}

/** A folder as it was when it was found. */
export interface FoundFolder {
  readonly folder: MailboxFolder;
  /** Changes with the folder; undefined while it may be changing. */
  readonly version: string | undefined;
}

/** The beginning of a message file. */
export interface RawHead {
  readonly bytes: Buffer;
  /** The message is longer. */
  readonly cut: boolean;
}

const rawHeadBytes = 256 * 1024;
/** Maximum cached rows of pages; each is about a kilobyte. */
const rowsRemembered = 5000;

interface StoreReaderInput {
  /** Absolute, resolved folder of the mailboxes; it exists. */
  readonly root: string;
  readonly clock: Clock;
  readonly parser?: Partial<ParserLimits>;
  readonly cache?: FolderCacheInput;
}

interface FolderCacheInput extends Partial<StoreCacheLimits> {
  /** Shared with other users, who close it. */
  readonly thread?: FolderThread;
  /** Absolute path of the folder for cache files; without it, nothing is written. */
  readonly files?: string;
}

export interface StoreCacheLimits {
  /** Maximum bytes of memory of cached folders. */
  readonly memoryBytes: number;
  /** Maximum bytes of all cache files. */
  readonly diskBytes: number;
  /** Number of messages; smaller folders are not written to the cache. */
  readonly keptFrom: number;
}

export const cacheLimits: StoreCacheLimits = { memoryBytes: 64 * 2 ** 20, diskBytes: 2 ** 30, keptFrom: 20 };

/** The read access to the store: changes nothing, and treats all data as hostile. */
export class StoreReader {
  readonly #confinement: Confinement;
  readonly #folders: MailboxFolders;
  /** Recently read pages, which never change for one version of a folder. */
  readonly #pages = new LRUCache<string, FolderPage>({
    maxSize: rowsRemembered,
    sizeCalculation: ({ items }) => items.length + 1,
  });
  readonly #site: FolderTask['site'];
  readonly #thread: FolderThread;
  readonly #ownsThread: boolean;
  readonly #tree: FolderTree;
  readonly #parser: MessageParser;
  readonly #clock: Clock;

  private constructor(confinement: Confinement, { clock, parser, cache = {} }: StoreReaderInput) {
    const { thread = new FolderThread(), files = null, ...limits } = cache;
    this.#site = { ...cacheLimits, ...limits, root: confinement.root, files };
    this.#thread = thread;
    this.#ownsThread = cache.thread === undefined;
    this.#confinement = confinement;
    const messages = new FolderMessages({ thread, site: this.#site, clock });
    this.#folders = new MailboxFolders(confinement, messages, clock, (mailbox) =>
      mailboxFolder(confinement.root, mailbox),
    );
    this.#tree = new FolderTree(this.#folders, clock);
    this.#parser = new MessageParser(parser);
    this.#clock = clock;
  }

  static async open(input: StoreReaderInput): Promise<StoreReader> {
    return new StoreReader(await Confinement.of(input.root), input);
  }

  async close(): Promise<void> {
    await this.#parser.close();
    await this.#thread.release(this.#site);
    if (this.#ownsThread) await this.#thread.close();
  }

  /** For messages that lie in no mailbox. */
  get parser(): MessageParser {
    return this.#parser;
  }

  /** For the write access and the search in all mailboxes. */
  get mailboxFolders(): MailboxFolders {
    return this.#folders;
  }

  /** Domains with a folder, sorted. */
  async domains(): Promise<readonly string[]> {
    const found = (await this.#confinement.list(this.#confinement.root)) ?? [];
    return found
      .filter((entry) => entry.isDirectory() && isDomain(entry.name))
      .map(({ name }) => name)
      .sort();
  }

  /** Validates a domain from a request. @throws Problem `bad-request` */
  domainOf(written: string): string {
    const domain = written.toLowerCase();
    if (!isDomain(domain)) throw problem('bad-request', 'The domain must be a host name in ASCII.');
    return domain;
  }

  /** Mailboxes of a domain, sorted; undefined for an unknown domain. */
  async mailboxes(domain: string): Promise<readonly MailboxName[] | undefined> {
    if (!isDomain(domain)) return undefined;
    const found = await this.#confinement.list(`${this.#confinement.root}/${domain}`);
    return found
      ?.filter((entry) => entry.isDirectory())
      .map((entry) => localOfFolder(entry.name))
      .filter((user) => user !== undefined)
      .toSorted()
      .map((user) => ({ postern: 'mailbox-name', domain, user }));
  }

  async countMailboxes(): Promise<{ readonly domains: number; readonly mailboxes: number }> {
    const domains = await this.domains();
    let mailboxes = 0;
    for (const domain of domains) mailboxes += (await this.mailboxes(domain))?.length ?? 0;
    return { domains: domains.length, mailboxes };
  }

  /** @throws Problem `not-found` */
  folders(mailbox: MailboxName): Promise<readonly FolderSummary[]> {
    return this.#tree.list(mailbox);
  }

  /** @throws Problem `not-found` */
  async properties(mailbox: MailboxName, folder: FolderName): Promise<FolderProperties> {
    return this.#tree.properties(await this.#folders.find(mailbox, folder));
  }

  /** @throws Problem `not-found` */
  async find(mailbox: MailboxName, name: FolderName): Promise<FoundFolder> {
    const folder = await this.#folders.find(mailbox, name);
    return { folder, version: folderVersion(folder.path, this.#clock.now()) };
  }

  /** @throws Problem `not-found`, `bad-request` */
  async list(mailbox: MailboxName, name: FolderName, request: ListingRequest): Promise<FolderPage> {
    return this.page(await this.find(mailbox, name), request);
  }

  /** The same object for the same version. @throws Problem `bad-request` */
  async page({ folder, version }: FoundFolder, request: ListingRequest): Promise<FolderPage> {
    if (request.cursor !== undefined) readCursor(request.cursor);
    const key = JSON.stringify([folder.path, version, request]);
    const known = version === undefined ? undefined : this.#pages.get(key);
    if (known !== undefined) return known;
    const { totals, ...listing } = await this.#folders.messages.list(folder, request);
    const page = { ...listing, folder: describeFolder(folder, totals) };
    // The folder may have changed since: only pages of that version are cached.
    const isThat = version !== undefined && version === folderVersion(folder.path, this.#clock.now());
    if (isThat && page.searchedAll) this.#pages.set(key, page);
    return page;
  }

  /** Ids of the messages before and after one in a list, whether or not it is in it. @throws Problem `not-found` */
  async neighbours({ mailbox, folder, id }: MessagePlace, list: Omit<ListingRequest, 'limit' | 'cursor'>) {
    const { byId } = await this.#folders.messages.locate(await this.#folders.find(mailbox, folder), [id]);
    const entry = byId.get(id);
    if (entry === undefined) throw problem('not-found', 'There is no such message in this folder.');
    const [before, after] = await Promise.all(
      (['before', 'after'] as const).map((side) =>
        this.list(mailbox, folder, { ...list, limit: 1, cursor: cursorAt(side, entry) }),
      ),
    );
    const next = after?.items[0]?.id ?? null;
    const first = before?.items[0]?.id ?? null;
    // Before the first message the answer is the first page: the message itself, or the next one.
    return { previous: first === id || first === next ? null : first, next };
  }

  /** All matching messages. @throws Problem `not-found` */
  async matching(mailbox: MailboxName, name: FolderName, filter: MessageFilter): Promise<Matching> {
    return this.#folders.messages.matching(await this.#folders.find(mailbox, name), filter);
  }

  /** In the order of the ids; messages that are gone meanwhile are left out. */
  summaries(folder: MailboxFolder, ids: readonly string[]): Promise<readonly MessageSummary[]> {
    return this.#folders.messages.summaries(folder, ids);
  }

  /** @throws Problem `not-found` */
  async version(mailbox: MailboxName, name: FolderName): Promise<string | undefined> {
    return (await this.find(mailbox, name)).version;
  }

  /** @throws Problem `not-found` */
  view(place: MessagePlace): Promise<MessageView> {
    return this.#reading(place, async (file, folder) => {
      const [summary] = await this.#folders.messages.summaries(folder, [file.entry.id]);
      if (summary === undefined) throw problem('not-found', 'There is no such message in this folder.');
      const { handle, size } = file;
      return viewMessage(
        this.#parser.parse,
        { source: { fd: handle.fd, size }, head: (bytes) => readHead(file, bytes) },
        summary,
      );
    });
  }

  /** The sanitised HTML body. @throws Problem `not-found`, `unavailable` */
  html(place: MessagePlace, remote: boolean): Promise<HtmlDocument> {
    return this.#reading(place, async ({ handle, size }) => {
      const found = await this.#parser.parse<'html'>({ kind: 'html', fd: handle.fd, size, remote });
      if (isUnparsed(found)) throw problem('not-found', 'This message could not be parsed; its raw form can be read.');
      return found;
    });
  }

  /** An open message, parsed for an editor. @throws Problem `conflict`, `unavailable` */
  async draft({ handle, size }: MessageFile): Promise<DraftContent> {
    const found = await this.#parser.parse<'draft'>({ kind: 'draft', fd: handle.fd, size });
    if (isUnparsed(found)) throw problem('conflict', 'This draft could not be parsed; its raw form can be replaced.');
    return found;
  }

  /** One MIME part, decoded. @throws Problem `not-found`, `unavailable` */
  part(place: MessagePlace, part: string): Promise<PartBytes & { readonly bytes: Uint8Array }> {
    return this.#reading(place, (file) => this.partOf(file, part));
  }

  /** The same for an open message. */
  async partOf({ handle, size }: MessageFile, part: string): Promise<PartBytes & { readonly bytes: Uint8Array }> {
    const found = await this.#parser.parse<'part'>({ kind: 'part', fd: handle.fd, size, part });
    if (isUnparsed(found)) throw problem('not-found', 'This message could not be parsed; its raw form can be read.');
    if (found.bytes === null) throw problem('not-found', 'There is no such part in this message.');
    return { ...found, bytes: found.bytes };
  }

  /** @throws Problem `not-found` */
  rawHead(place: MessagePlace): Promise<RawHead> {
    return this.#reading(place, async (file) => {
      return { bytes: await readHead(file, rawHeadBytes), cut: file.size > rawHeadBytes };
    });
  }

  /** Opens the message; the caller closes it. @throws Problem `not-found` */
  async open({ mailbox, folder, id }: MessagePlace): Promise<MessageFile> {
    return openMessage(this.#folders, await this.#folders.find(mailbox, folder), id);
  }

  async #reading<T>(place: MessagePlace, read: (file: MessageFile, folder: MailboxFolder) => Promise<T>): Promise<T> {
    const folder = await this.#folders.find(place.mailbox, place.folder);
    const file = await openMessage(this.#folders, folder, place.id);
    try {
      return await read(file, folder);
    } finally {
      await file.handle.close();
    }
  }
}
