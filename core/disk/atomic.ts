import { Readable } from 'node:stream';
import { basename, dirname, join } from 'node:path';
import { nodeFiles, writeAll, type FileLayer } from './file-layer.js';
import { folderSyncOf } from './folder.js';
import { uniqueId } from './id.js';

export interface AtomicOptions {
  /** Permission bits of the new file; 0600 if absent. */
  readonly mode?: number;
  readonly files?: FileLayer;
}

/**
 * Replaces a file: after a crash it holds the old content or the new one, wholly. Durable when it resolves. When it
 * rejects, nothing is left behind; only if the last fsync failed may the new content be there, visible but perhaps not durable.
 */
export async function writeFileAtomic(
  path: string,
  data: string | Buffer,
  { mode = 0o600, files = nodeFiles }: AtomicOptions = {},
): Promise<void> {
  const folder = dirname(path);
  const temporary = join(folder, `.${basename(path)}.${uniqueId()}.tmp`);
  try {
    await writeDurable(files, temporary, [typeof data === 'string' ? Buffer.from(data) : data], mode);
    await files.rename(temporary, path);
  } catch (error) {
    await files.unlink(temporary).catch(() => undefined);
    throw error;
  }
  await folderSyncOf(files).sync(folder);
}

/** Writes a new file and fsyncs it; a failing close counts, for some file systems report a failed write there. */
export function writeDurable(
  files: FileLayer,
  path: string,
  data: readonly Buffer[] | Readable,
  mode = 0o600,
): Promise<void> {
  return writeNew(files, path, mode, async (fd) => {
    if (data instanceof Readable) {
      for await (const chunk of data as AsyncIterable<Buffer>) await writeAll(files, fd, [chunk]);
    } else {
      await writeAll(files, fd, data);
    }
    await files.fsync(fd);
  });
}

/** Writes a new file and leaves it to the system when it comes to the disk. */
export function writeUnsynced(files: FileLayer, path: string, data: readonly Buffer[]): Promise<void> {
  return writeNew(files, path, 0o600, (fd) => writeAll(files, fd, data));
}

async function writeNew(
  files: FileLayer,
  path: string,
  mode: number,
  write: (fd: number) => Promise<void>,
): Promise<void> {
  const fd = await files.open(path, 'wx', mode);
  try {
    await write(fd);
  } catch (error) {
    await files.close(fd).catch(() => undefined);
    throw error;
  }
  await files.close(fd);
}
