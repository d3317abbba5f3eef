import { copyFile, utimes } from 'node:fs/promises';
import { faultCode, isMissing } from '../../../core/disk/fault.js';
import type { FileLayer } from '../../../core/disk/file-layer.js';

const linkless = new Set(['EPERM', 'EMLINK', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS']);

/** The file under another name, or a durable copy where the file system allows no more links. */
export async function linkOrCopy(files: FileLayer, from: string, to: string): Promise<void> {
  try {
    await files.link(from, to);
  } catch (error) {
    if (isMissing(error) || !linkless.has(faultCode(error) ?? '')) throw error;
    const { atime, mtime } = await files.lstat(from);
    await copyFile(from, to);
    await utimes(to, atime, mtime);
    const fd = await files.open(to, 'r');
    try {
      await files.fsync(fd);
    } finally {
      await files.close(fd);
    }
  }
}
