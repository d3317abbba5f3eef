import { Readable } from 'node:stream';
import { basename, dirname, join } from 'node:path';
import { type FileLayer, nodeFiles, writeAll } from './file-layer.js';
import { folderSyncOf } from './folder.js';
import { uniqueId } from './id.js';

export interface AtomicOptions {
  /** Permission bits of the new file; default 0600. */
  readonly mode?: number;
  readonly files?: FileLayer;
}

/**
 * Replaces a file: after a crash it holds the old content or the new one, complete. Durable when it resolves. When it
 * rejects, nothing is left behind; only if the last fsync failed may the new content be visible without being durable.
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

/** Writes a new file and fsyncs it. A failing close is a failure: some file systems report a failed write there. */
export async function writeDurable(
  files: FileLayer,
  path: string,
  data: readonly Buffer[] | Readable,
  mode = 0o600,
): Promise<void> {
  const fd = await files.open(path, 'wx', mode);
  try {
    if (data instanceof Readable) {
      for await (const chunk of data as AsyncIterable<Buffer>) await writeAll(files, fd, [chunk]);
    } else {
      await writeAll(files, fd, data);
    }
    await files.fsync(fd);
  } catch (error) {
    await files.close(fd).catch(() => undefined);
    throw error;
  }
  await files.close(fd);
}
