import { readdir, rename, unlink, utimes, writeFile, copyFile } from 'node:fs/promises';
import { join } from 'node:path';
import { FolderThread } from '../../../../plugins/store/cache/folder-thread.js';
import type { ListingRequest } from '../../../../plugins/store/folders/folder-messages.js';
import {
  cacheLimits,
  type StoreCacheLimits,
  type FolderPage,
  StoreReader,
} from '../../../../plugins/store/messages/store-reader.js';
import { systemClock } from '../../../../core/clock.js';
import { atEnd, type Ending } from '../../../support/ending.js';
import { temporaryFolder } from '../../../support/temporary-folder.js';
import { message, ReadingFixture } from '../reading-fixture.js';

const thread = new FolderThread();

/** A mailbox that another program fills and changes, and a reader that keeps what it reads in files. */
export class CacheFixture {
  readonly reading: ReadingFixture;
  /** Where the files of the cache are. */
  readonly files: string;
  readonly #limits: StoreCacheLimits;
  #reader: StoreReader | undefined;
  #count = 0;

  private constructor(reading: ReadingFixture, files: string, limits: StoreCacheLimits) {
    this.reading = reading;
    this.files = files;
    this.#limits = limits;
  }

  static async open(test: Ending, limits: Partial<StoreCacheLimits> = {}): Promise<CacheFixture> {
    const fixture = new CacheFixture(await ReadingFixture.open(test), await temporaryFolder(test), {
      ...cacheLimits,
      keptFrom: 5,
      ...limits,
    });
    atEnd(test, () => fixture.restart());
    return fixture;
  }

  /** Lets go of everything that is in memory. */
  async restart(): Promise<void> {
    await this.#reader?.close();
    this.#reader = undefined;
  }

  async reader(): Promise<StoreReader> {
    const cache = { thread, files: this.files, ...this.#limits };
    this.#reader ??= await StoreReader.open({ root: this.reading.root, clock: systemClock, cache });
    return this.#reader;
  }

  async list(request: Partial<ListingRequest> = {}, folder = 'INBOX'): Promise<FolderPage> {
    const reader = await this.reader();
    const { mailbox } = this.reading;
    return reader.list(mailbox, this.reading.folder(folder), { order: 'newest', limit: 1000, ...request });
  }

  /** Subjects. */
  async shown(request: Partial<ListingRequest> = {}, folder = 'INBOX'): Promise<readonly string[]> {
    return (await this.list(request, folder)).items.map(({ subject }) => subject);
  }

  /** Messages m1, m2, … in `cur`. */
  async fill(count: number): Promise<void> {
    for (let n = 1; n <= count; n++) await this.add(`m${n}`);
  }

  /** A message of that subject, newer than all before. */
  async add(subject: string, folder = 'INBOX'): Promise<void> {
    this.#count += 1;
    const bytes = message(`Subject: ${subject}`, '', 'Text.');
    const seconds = 1_700_000_000 + this.#count;
    const name = `${seconds}.M1P1Q${subject}.host,S=${bytes.length}:2,`;
    const path = this.reading.pathOf(folder);
    // Whoever reads the folder in the background must not find an empty file.
    await writeFile(join(path, 'tmp', name), bytes);
    await utimes(join(path, 'tmp', name), seconds, seconds);
    await rename(join(path, 'tmp', name), join(path, 'cur', name));
  }

  async flag(subject: string, flags: string): Promise<void> {
    const [path, name] = await this.#find(subject);
    await rename(join(path, name), join(path, name.replace(/:2,.*$/, `:2,${flags}`)));
  }

  async remove(subject: string): Promise<void> {
    const [path, name] = await this.#find(subject);
    await unlink(join(path, name));
  }

  /** The newest ones stay. */
  async removeAllBut(count: number): Promise<void> {
    const path = join(this.reading.home, 'cur');
    const names = (await readdir(path)).toSorted();
    for (const name of names.slice(0, -count)) await unlink(join(path, name));
  }

  /** Writes into the files themselves, which changes no directory. */
  async overwriteAll(text: string): Promise<void> {
    const path = join(this.reading.home, 'cur');
    for (const name of await readdir(path)) await writeFile(join(path, name), text);
  }

  /** The one file of that kind. */
  async file(kind: 'index' | 'summaries'): Promise<string> {
    const name = (await readdir(this.files)).find((name) => name.endsWith(`.${kind}`));
    return join(this.files, name ?? 'none');
  }

  /** Puts the file of another folder, which has messages of the same names, in its place. */
  async exchangeWithOther(kind: 'index' | 'summaries'): Promise<void> {
    const path = await this.file(kind);
    await this.reading.makeFolder('Other');
    const other = join(this.reading.pathOf('Other'), 'cur');
    for (const name of await readdir(join(this.reading.home, 'cur'))) {
      await writeFile(join(other, name), 'Subject: of another folder\r\n\r\n');
    }
    await this.shown({}, 'Other');
    await this.restart();
    const name = (await readdir(this.files)).find((name) => name.endsWith(`.${kind}`) && !path.endsWith(name));
    await copyFile(join(this.files, name ?? 'none'), path);
  }

  async #find(subject: string): Promise<readonly [path: string, name: string]> {
    const path = join(this.reading.home, 'cur');
    const name = (await readdir(path)).find((name) => name.includes(`Q${subject}.host`));
    return [path, name ?? `no ${subject}`];
  }
}
