import { open } from 'node:fs/promises';
import { FaultyFiles } from './faulty-files.js';

const pageBytes = 4096;

/** What of a file has reached the disk, and which of its pages the system knows to be newer in memory. */
interface Image {
  bytes: Buffer;
  readonly dirty: Set<number>;
}

/**
 * Files on a disk behind a page cache as Linux has it: an fsync that fails has marked the pages clean, so that the next
 * one succeeds and does not write them. Files are written from their beginning on, as segments are.
 */
export class ForgetfulFiles extends FaultyFiles {
  readonly #images = new Map<string, Image>();
  readonly #positions = new Map<number, number>();

  override async open(path: string, flags: string | number, mode?: number): Promise<number> {
    const fd = await super.open(path, flags, mode);
    this.#positions.set(fd, 0);
    return fd;
  }

  override async write(fd: number, buffers: readonly Buffer[]): Promise<number> {
    const written = await super.write(fd, buffers);
    const from = this.#positions.get(fd) ?? 0;
    const { dirty } = this.#imageOf(this.opened.get(fd));
    for (let page = Math.floor(from / pageBytes); page * pageBytes < from + written; page += 1) dirty.add(page);
    this.#positions.set(fd, from + written);
    return written;
  }

  override async fdatasync(fd: number): Promise<void> {
    await this.#sync(fd, () => super.fdatasync(fd));
  }

  override async fsync(fd: number): Promise<void> {
    await this.#sync(fd, () => super.fsync(fd));
  }

  override async rename(from: string, to: string): Promise<void> {
    await super.rename(from, to);
    const image = this.#images.get(from);
    this.#images.delete(from);
    if (image !== undefined) this.#images.set(to, image);
  }

  /** The files hold what was on the disk, and no more. */
  async cutPower(): Promise<void> {
    for (const [path, { bytes, dirty }] of this.#images) {
      dirty.clear();
      const file = await open(path, 'r+');
      await file.truncate(0);
      await file.write(bytes, 0, bytes.length, 0);
      await file.close();
    }
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

/** The bytes, with these pages as they are in the file. */
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
