import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { asStorageProblem } from '../../core/disk/fault.js';
import { type FileLayer, writeAll } from '../../core/disk/file-layer.js';
import type { FolderSync } from '../../core/disk/folder.js';
import { problem } from '../../core/problem.js';
import { LineEndings } from '../../core/mime/line-endings.js';
import type { UniqueNames } from './maildir-name.js';

export interface FilingGround {
  readonly files: FileLayer;
  readonly sync: FolderSync;
  readonly names: UniqueNames;
}

export interface FiledMessage {
  readonly id: string;
  /** Bytes of the file. */
  readonly size: number;
}

export interface Filing {
  /** Absolute path of the folder, which has its tmp, new and cur. */
  readonly folder: string;
  /** `new`, or the letters behind `:2,` of a message in `cur`. */
  readonly as: { readonly part: 'new' } | { readonly part: 'cur'; readonly flags: string };
  /** Asked when the size is known, before the message can be seen. */
  readonly admit: (size: number) => Promise<void> | undefined;
}

/** Puts a message that comes as a stream into a folder, durably. When it rejects, nothing is there. @throws Problem */
export async function fileMessage(source: Readable, filing: Filing, ground: FilingGround): Promise<FiledMessage> {
  const { files, sync, names } = ground;
  const temporary = join(filing.folder, 'tmp', names.next(0));
  try {
    const size = await write(files, temporary, source);
    await filing.admit(size);
    const id = names.next(size);
    const { as } = filing;
    const path = join(filing.folder, as.part, as.part === 'new' ? id : `${id}:2,${as.flags}`);
    await files.link(temporary, path);
    try {
      await sync.sync(join(filing.folder, as.part));
    } catch (error) {
      await files.unlink(path).catch(() => undefined);
      throw error;
    }
    return { id, size };
  } catch (error) {
    throw asStorageProblem(error);
  } finally {
    await files.unlink(temporary).catch(() => undefined);
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
