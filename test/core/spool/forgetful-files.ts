import { open } from 'node:fs/promises';
import { setImmediate } from 'node:timers/promises';
import { FaultyFiles } from './faulty-files.js';

const pageBytes = 4096;

/** What of a file is on the disk, and which of its pages are newer in memory. */
interface Image {
  bytes: Buffer;
  readonly dirty: Set<number>;
}

/**
 * Files behind a page cache like that of Linux: a failed fsync marks the pages clean, so that the next one succeeds
 * without writing them. Files are written sequentially, like segments.
 */
export class ForgetfulFiles extends FaultyFiles {
  readonly #images = new Map<string, Image>();
  readonly #positions = new Map<number, number>();
  #underWay = 0;
  #cut = false;

  override open(path: string, flags: string | number, mode?: number): Promise<number> {
    return this.#powered(async () => {
      const fd = await super.open(path, flags, mode);
      this.#positions.set(fd, 0);
      return fd;
    });
  }

  override write(fd: number, buffers: readonly Buffer[]): Promise<number> {
    return this.#powered(async () => this.#note(fd, await super.write(fd, buffers)));
  }

  override writeNow(fd: number, buffers: readonly Buffer[]): Promise<void> {
    return this.#powered(async () => {
      await super.writeNow(fd, buffers);
      this.#note(
        fd,
        buffers.reduce((sum, { length }) => sum + length, 0),
      );
    });
  }

  override fdatasync(fd: number): Promise<void> {
    return this.#powered(() => this.#sync(fd, () => super.fdatasync(fd)));
  }

  override fsync(fd: number): Promise<void> {
    return this.#powered(() => this.#sync(fd, () => super.fsync(fd)));
  }

  override rename(from: string, to: string): Promise<void> {
    return this.#powered(async () => {
      await super.rename(from, to);
      const image = this.#images.get(from);
      this.#images.delete(from);
      if (image !== undefined) this.#images.set(to, image);
    });
  }

  override renameNow(from: string, to: string): Promise<void> {
    return this.rename(from, to);
  }

  override unlink(path: string): Promise<void> {
    return this.#powered(async () => {
      await super.unlink(path);
      this.#images.delete(path);
    });
  }

  /** Calls fail from now on, and the files hold only what was on the disk. */
  async cutPower(): Promise<void> {
    this.#cut = true;
    while (this.#underWay > 0) await setImmediate();
    for (const [path, { bytes }] of this.#images) {
      const file = await open(path, 'r+');
      await file.truncate(0);
      await file.write(bytes, 0, bytes.length, 0);
      await file.close();
    }
  }

  async #powered<T>(call: () => Promise<T>): Promise<T> {
    if (this.#cut) throw new Error('the power is cut');
    this.#underWay += 1;
    try {
      return await call();
    } finally {
      this.#underWay -= 1;
    }
  }

  /** Counts bytes written after the previous ones. */
  #note(fd: number, written: number): number {
    const from = this.#positions.get(fd) ?? 0;
    const { dirty } = this.#imageOf(this.opened.get(fd));
    for (let page = Math.floor(from / pageBytes); page * pageBytes < from + written; page += 1) dirty.add(page);
    this.#positions.set(fd, from + written);
    return written;
  }

  #imageOf(path = 'a closed descriptor'): Image {
    const image = this.#images.get(path) ?? { bytes: Buffer.alloc(0), dirty: new Set() };
    this.#images.set(path, image);
    return image;
  }

  async #sync(fd: number, sync: () => Promise<void>): Promise<void> {
    const path = this.opened.get(fd) ?? '';
    const image = this.#images.get(path);
    const pages = [...(image?.dirty ?? [])];
    image?.dirty.clear();
    await sync();
    if (image !== undefined) image.bytes = await withPages(path, image.bytes, pages);
  }
}

/** The bytes, with these pages from the file. */
async function withPages(path: string, old: Buffer, pages: readonly number[]): Promise<Buffer> {
  const file = await open(path, 'r');
  try {
    const bytes = Buffer.alloc((await file.stat()).size);
    old.copy(bytes);
    for (const page of pages) {
      const at = page * pageBytes;
      await file.read(bytes, at, Math.min(pageBytes, bytes.length - at), at);
    }
    return bytes;
  } finally {
    await file.close();
  }
}
