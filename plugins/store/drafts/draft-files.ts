import { createReadStream } from 'node:fs';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { asStorageProblem } from '../../../core/disk/fault.js';
import { type FileLayer, writeAll } from '../../../core/disk/file-layer.js';
import type { FolderSync } from '../../../core/disk/folder.js';
import { uniqueId, uniqueIdPattern } from '../../../core/disk/id.js';
import { problem } from '../../../core/problem.js';
import { LineEndings } from '../../../core/mime/line-endings.js';

/** A file of ours that nobody else sees yet. */
export interface PreparedFile {
  readonly path: string;
  /** Bytes. */
  readonly size: number;
}

export interface DraftFilesInput {
  /** Private, on the file system of the mailboxes. */
  readonly folder: string;
  readonly files: FileLayer;
  readonly sync: FolderSync;
  /** Bytes of the largest message. */
  readonly messageBytes: () => number;
}

/** Writes messages aside, and puts them into folders when they are whole and durable. */
export class DraftFiles {
  readonly #input: DraftFilesInput;

  constructor(input: DraftFilesInput) {
    this.#input = input;
  }

  /** What a killed process left behind goes, but for what is still to be filed. What is not ours stays as it is. */
  async sweep(wanted: readonly PreparedFile[]): Promise<void> {
    const { files, folder } = this.#input;
    const kept = new Set(wanted.map(({ path }) => path));
    for (const name of await files.readdir(folder)) {
      const path = join(folder, name);
      if (kept.has(path) || !uniqueIdPattern.test(name)) continue;
      if ((await files.lstat(path)).isFile()) await files.unlink(path);
    }
  }

  /** A message or a part of one, with CRLF line ends, durable. @throws Problem `too-large`, `invalid` for a NUL byte */
  async prepare(content: AsyncIterable<Buffer>): Promise<PreparedFile> {
    const { files, folder } = this.#input;
    const path = join(folder, uniqueId());
    try {
      return { path, size: await this.#write(path, content) };
    } catch (error) {
      await files.unlink(path).catch(() => undefined);
      throw asStorageProblem(error);
    }
  }

  open({ path }: PreparedFile): Readable {
    return createReadStream(path);
  }

  /** Into `cur` of a folder, durably. When it rejects, nothing is there. The prepared file stays. */
  async place({ path }: PreparedFile, folder: string, name: string): Promise<void> {
    const { files, sync } = this.#input;
    const cur = join(folder, 'cur');
    try {
      await files.link(path, join(cur, name));
      try {
        await sync.sync(cur);
      } catch (error) {
        await files.unlink(join(cur, name)).catch(() => undefined);
        throw error;
      }
    } catch (error) {
      throw asStorageProblem(error);
    }
  }

  async discard(...prepared: readonly PreparedFile[]): Promise<void> {
    for (const { path } of prepared) await this.#input.files.unlink(path).catch(() => undefined);
  }

  async #write(path: string, content: AsyncIterable<Buffer>): Promise<number> {
    const { files } = this.#input;
    const messageBytes = this.#input.messageBytes();
    const lines = new LineEndings();
    let size = 0;
    const fd = await files.open(path, 'wx', 0o600);
    const write = async (bytes: Buffer): Promise<void> => {
      size += bytes.length;
      if (size > messageBytes) throw problem('too-large', `A message may have ${messageBytes} bytes at most.`);
      await writeAll(files, fd, [bytes]);
    };
    try {
      for await (const chunk of content) await write(lines.push(chunk));
      await write(lines.end());
      await files.fsync(fd);
    } finally {
      await files.close(fd);
    }
    return size;
  }
}
