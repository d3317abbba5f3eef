import { type FileLayer, openRegularFile } from '../../../core/disk/file-layer.js';

/** The bytes of a file from `from` on. */
export async function readWhole(files: FileLayer, path: string, from = 0): Promise<Buffer> {
  const fd = await openRegularFile(path, files);
  try {
    const { size } = await files.lstat(path);
    return await readAt(files, fd, from, Math.max(0, size - from));
  } finally {
    await files.close(fd);
  }
}

/** So many bytes at that place, or fewer when the file ends before. */
export async function readAt(files: FileLayer, fd: number, at: number, bytes: number): Promise<Buffer> {
  const buffer = Buffer.allocUnsafe(bytes);
  let done = 0;
  while (done < bytes) {
    const count = await files.read(fd, buffer.subarray(done), at + done);
    if (count === 0) break;
    done += count;
  }
  return buffer.subarray(0, done);
}
