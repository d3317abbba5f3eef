import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { asStorageProblem } from '../../../core/disk/fault.js';
import { type FileLayer, writeAll } from '../../../core/disk/file-layer.js';
import type { FolderSync } from '../../../core/disk/folder.js';
import { problem } from '../../../core/problem.js';
import { LineEndings } from '../../../core/mime/line-endings.js';
import type { UniqueNames } from '../maildir/maildir-name.js';

export interface FilingGround {
  readonly files: FileLayer;
  readonly sync: FolderSync;
  readonly names: UniqueNames;
}

/** A message that is durable, and that nobody sees yet. */
export interface WrittenMessage {
  readonly path: string;
  /** Bytes of the file. */
  readonly size: number;
}

export interface FiledMessage {
  readonly id: string;
  /** Bytes of the file. */
  readonly size: number;
}

/** Absolute path of a folder, and `new` or the letters behind `:2,` of a message in `cur`. */
export interface Filing {
  readonly folder: string;
  readonly as: { readonly part: 'new' } | { readonly part: 'cur'; readonly flags: string };
}

/** Writes a message that comes as a stream into `tmp` of a folder. When it rejects, nothing is there. @throws Problem */
export async function writeMessage(source: Readable, folder: string, ground: FilingGround): Promise<WrittenMessage> {
  const { files, names } = ground;
  const path = join(folder, 'tmp', names.next(0));
  try {
    return { path, size: await write(files, path, source) };
  } catch (error) {
    await files.unlink(path).catch(() => undefined);
    throw asStorageProblem(error);
  }
}

/** Puts it into a folder, durably. When it rejects, nothing is there. The written file stays. @throws Problem */
export async function fileMessage(
  { path, size }: WrittenMessage,
  { folder, as }: Filing,
  { files, sync, names }: FilingGround,
): Promise<FiledMessage> {
  const id = names.next(size);
  const target = join(folder, as.part, as.part === 'new' ? id : `${id}:2,${as.flags}`);
  try {
    await files.link(path, target);
    try {
      await sync.sync(join(folder, as.part));
    } catch (error) {
      await files.unlink(target).catch(() => undefined);
      throw error;
    }
    return { id, size };
  } catch (error) {
    throw asStorageProblem(error);
  }
}

async function write(files: FileLayer, path: string, source: Readable): Promise<number> {
  const lines = new LineEndings();
  let size = 0;
  const fd = await files.open(path, 'wx', 0o600);
  try {
    for await (const chunk of source as AsyncIterable<Buffer>) {
      const text = lines.push(chunk);
      size += text.length;
      await writeAll(files, fd, [text]);
    }
    const rest = lines.end();
    size += rest.length;
    await writeAll(files, fd, [rest]);
    if (size === 0) throw problem('invalid', 'The message is empty.');
    await files.fsync(fd);
  } finally {
    await files.close(fd);
  }
  return size;
}
