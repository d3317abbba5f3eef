import { mkdir, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { systemClock } from '../../../core/clock.js';
import { FolderThread } from '../../../plugins/store/cache/folder-thread.js';
import { type FolderName, parseFolderName } from '../../../plugins/store/folders/folder-name.js';
import { parseMailboxName } from '../../../plugins/store/maildir/mailbox-name.js';
import type { ParserLimits } from '../../../plugins/store/mime/message-parser.js';
import { StoreReader } from '../../../plugins/store/messages/store-reader.js';
import { atEnd, type Ending } from '../../support/ending.js';
import { temporaryFolder } from '../../support/temporary-folder.js';

/** One for all fixtures of a file: to start a thread takes a while. */
const thread = new FolderThread();

/** A mail tree on the disk with one mailbox, `ann@example.org`, and a reader of it. */
export class ReadingFixture {
  readonly root: string;
  readonly reader: StoreReader;
  readonly mailbox = parseMailboxName({ domain: 'example.org', user: 'ann' });
  #count = 0;

  private constructor(root: string, reader: StoreReader) {
    this.root = root;
    this.reader = reader;
  }

  static async open(test: Ending, parser: Partial<ParserLimits> = {}): Promise<ReadingFixture> {
    const root = await temporaryFolder(test);
    const reader = await StoreReader.open({ root, clock: systemClock, parser, cache: { thread } });
    atEnd(test, () => reader.close());
    const fixture = new ReadingFixture(root, reader);
    await fixture.makeFolder('INBOX');
    return fixture;
  }

  get home(): string {
    return join(this.root, 'example.org', 'ann');
  }

  pathOf(folder: string): string {
    return join(this.home, parseFolderName(folder).directory);
  }

  folder(name = 'INBOX'): FolderName {
    return parseFolderName(name);
  }

  async makeFolder(name: string): Promise<void> {
    for (const part of ['new', 'cur', 'tmp']) await mkdir(join(this.pathOf(name), part), { recursive: true });
  }

  /** Files a message; the later it is filed, the newer it is. Answers its id. */
  async file(content: string | Buffer, { folder = 'INBOX', flags = '', at = 0 } = {}): Promise<string> {
    this.#count += 1;
    const bytes = Buffer.from(content);
    const seconds = at === 0 ? 1_700_000_000 + this.#count : at;
    const id = `${seconds}.M${this.#count}P1Q${this.#count}.host,S=${bytes.length},W=${bytes.length}`;
    const file = flags === '' ? `new/${id}` : `cur/${id}:2,${flags === '-' ? '' : flags}`;
    await this.put(file, bytes, folder);
    await utimes(join(this.pathOf(folder), file), seconds, seconds + this.#count / 1e6);
    return id;
  }

  /** Writes a file of any name. */
  put(name: string, bytes: Buffer | string, folder = 'INBOX'): Promise<void> {
    return writeFile(join(this.pathOf(folder), name), bytes);
  }

  /** Resolves when the last change of the folder is so old that its state has a version. */
  async settled(folder = 'INBOX'): Promise<void> {
    while ((await this.reader.version(this.mailbox, this.folder(folder))) === undefined) await pause(10);
  }

  view(id: string, folder = 'INBOX') {
    return this.reader.view({ mailbox: this.mailbox, folder: this.folder(folder), id });
  }

  list(request: Partial<Parameters<StoreReader['list']>[2]> = {}, folder = 'INBOX') {
    return this.reader.list(this.mailbox, this.folder(folder), { order: 'newest', limit: 50, ...request });
  }
}

/** A message with CRLF line ends from lines. */
export function message(...lines: readonly string[]): string {
  return lines.map((line) => `${line}\r\n`).join('');
}
