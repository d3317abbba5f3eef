import { constants } from 'node:fs';
import { nodeFiles, type FileLayer } from './file-layer.js';

const nothing = (): Promise<void> => Promise.resolve();
const refuse = (): Promise<never> =>
  Promise.reject(Object.assign(new Error('only read here'), { code: 'EROFS', syscall: 'open' }));
const isReading = (flags: string | number): boolean =>
  typeof flags === 'number'
    ? (flags & (constants.O_WRONLY | constants.O_RDWR | constants.O_CREAT)) === 0
    : flags === 'r';

/** For a look that changes nothing: files cannot be written, and what would be moved or removed stays. */
export const readOnlyFiles: FileLayer = {
  ...nodeFiles,
  open: (path, flags, mode) => (isReading(flags) ? nodeFiles.open(path, flags, mode) : refuse()),
  openNow: (path, flags, mode) => (isReading(flags) ? nodeFiles.openNow(path, flags, mode) : refuse()),
  mkdir: () => Promise.reject(Object.assign(new Error('taken'), { code: 'EEXIST' })),
  write: refuse,
  createNow: refuse,
  writeNow: refuse,
  link: refuse,
  linkNow: refuse,
  rename: nothing,
  renameNow: nothing,
  unlink: nothing,
  rmdir: nothing,
  fsync: nothing,
  fdatasync: nothing,
};
