import {
  closeSync,
  constants,
  fdatasync,
  fsync,
  link,
  linkSync,
  lstatSync,
  mkdir,
  open,
  openSync,
  read,
  readdir,
  rename,
  renameSync,
  rmdir,
  statfs,
  type Stats,
  type StatsFs,
  unlink,
  writev,
  writevSync,
} from 'node:fs';
import { open as openHandle } from 'node:fs/promises';

/**
 * File operations of the spool, the stores and `core/disk`; a test can make any single call fail. All reject with
 * system errors.
 *
 * Uses callbacks, not `node:fs/promises`: a FileHandle per message costs more than the calls themselves.
 */
export interface FileLayer {
  open(path: string, flags: string | number, mode?: number): Promise<number>;
  /** Reads from `position`, or from the current one when null; 0 at the end. */
  read(fd: number, buffer: Buffer, position: number | null): Promise<number>;
  /** Resolves with the number of bytes written, which may be too few. */
  write(fd: number, buffers: readonly Buffer[]): Promise<number>;
  fsync(fd: number): Promise<void>;
  /** Like fsync, without metadata that no reader of the data needs. */
  fdatasync(fd: number): Promise<void>;
  close(fd: number): Promise<void>;
  link(existing: string, path: string): Promise<void>;
  /**
   * The calls whose names end in `Now` block. For many small files without fsync they finish sooner than a thread
   * starts.
   */
  openNow(path: string, flags: string | number, mode?: number): Promise<number>;
  createNow(path: string, buffers: readonly Buffer[]): Promise<void>;
  writeNow(fd: number, buffers: readonly Buffer[]): Promise<void>;
  linkNow(existing: string, path: string): Promise<void>;
  renameNow(from: string, to: string): Promise<void>;
  rename(from: string, to: string): Promise<void>;
  unlink(path: string): Promise<void>;
  mkdir(path: string, mode: number): Promise<void>;
  rmdir(path: string): Promise<void>;
  lstat(path: string): Promise<Stats>;
  /** Rejects as `lstat` does for reasons other than ENOENT. */
  exists(path: string): Promise<boolean>;
  readdir(path: string): Promise<string[]>;
  statfs(path: string): Promise<StatsFs>;
}

export const nodeFiles: FileLayer = {
  open: (path, flags, mode) => callback((done) => open(path, flags, mode, done)),
  read: (fd, buffer, position) => callback((done) => read(fd, buffer, 0, buffer.length, position, done)),
  write: (fd, buffers) => callback((done) => writev(fd, buffers, done)),
  fsync: (fd) => callback((done) => fsync(fd, done)),
  fdatasync: (fd) => callback((done) => fdatasync(fd, done)),
  // Blocks: the file was fsynced or given up before, so nothing is left to wait for.
  close: (fd) => blocking(() => closeSync(fd)),
  link: (existing, path) => callback((done) => link(existing, path, done)),
  openNow: (path, flags, mode) => blocking(() => openSync(path, flags, mode)),
  createNow: (path, buffers) => blocking(() => createFile(path, buffers)),
  writeNow: (fd, buffers) => blocking(() => writeToFile(fd, buffers)),
  linkNow: (existing, path) => blocking(() => linkSync(existing, path)),
  renameNow: (from, to) => blocking(() => renameSync(from, to)),
  rename: (from, to) => callback((done) => rename(from, to, done)),
  unlink: (path) => callback((done) => unlink(path, done)),
  mkdir: (path, mode) => callback((done) => mkdir(path, { mode }, done)),
  rmdir: (path) => callback((done) => rmdir(path, done)),
  // Blocks: the path to a mailbox in use is in memory.
  lstat: (path) => blocking(() => lstatSync(path)),
  // Cheaper than an error with its stack.
  exists: (path) => blocking(() => lstatSync(path, { throwIfNoEntry: false }) !== undefined),
  readdir: (path) => callback((done) => readdir(path, done)),
  statfs: (path) => callback((done) => statfs(path, done)),
};

function callback<T>(run: (done: (error: NodeJS.ErrnoException | null, value?: T) => void) => void): Promise<T> {
  return new Promise((resolve, reject) =>
    run((error, value) => (error === null ? resolve(value as T) : reject(error))),
  );
}

function blocking<T>(run: () => T): Promise<T> {
  return new Promise((resolve) => resolve(run()));
}

function createFile(path: string, buffers: readonly Buffer[]): void {
  const fd = openSync(path, 'wx', 0o600);
  try {
    writeToFile(fd, buffers);
  } finally {
    closeSync(fd);
  }
}

function writeToFile(fd: number, buffers: readonly Buffer[]): void {
  for (let rest = nonEmpty(buffers); rest.length > 0;) rest = afterWritten(rest, writevSync(fd, rest));
}

/** Writes all bytes, in as many calls as needed. */
export async function writeAll(files: FileLayer, fd: number, buffers: readonly Buffer[]): Promise<void> {
  let rest = nonEmpty(buffers);
  while (rest.length > 0) {
    rest = afterWritten(rest, await files.write(fd, rest));
  }
}

function nonEmpty(buffers: readonly Buffer[]): Buffer[] {
  return buffers.filter((buffer) => buffer.length > 0);
}

/** The bytes that are left. A write of 0 bytes is an error, or the caller would loop for ever. */
function afterWritten(buffers: readonly Buffer[], written: number): Buffer[] {
  if (written === 0) throw Object.assign(new Error('nothing was written'), { code: 'EIO' });
  let left = written;
  const rest: Buffer[] = [];
  for (const buffer of buffers) {
    if (left < buffer.length) rest.push(left > 0 ? buffer.subarray(left) : buffer);
    left = Math.max(0, left - buffer.length);
  }
  return rest;
}

const nothing = (): Promise<void> => Promise.resolve();
const refuse = (): Promise<never> =>
  Promise.reject(Object.assign(new Error('only read here'), { code: 'EROFS', syscall: 'open' }));
const isReading = (flags: string | number): boolean =>
  typeof flags === 'number'
    ? (flags & (constants.O_WRONLY | constants.O_RDWR | constants.O_CREAT)) === 0
    : flags === 'r';

/** For inspection: writing fails, and moves and removals do nothing. */
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

/** Without O_NONBLOCK, opening a FIFO blocks until it has a writer. */
const readFlags = constants.O_RDONLY | constants.O_NONBLOCK;

function irregular(): Error {
  return Object.assign(new Error('it is not a regular file'), { code: 'EFTYPE' });
}

/** Opens a regular file for reading; rejects everything else, links too. */
export async function openRegularFile(path: string, files: FileLayer): Promise<number> {
  if (!(await files.lstat(path)).isFile()) throw irregular();
  return files.open(path, readFlags | constants.O_NOFOLLOW);
}

/** The text of a regular file, or of the one that a link points to. */
export async function readRegularText(path: string): Promise<string> {
  const handle = await openHandle(path, readFlags);
  try {
    if (!(await handle.stat()).isFile()) throw irregular();
    return await handle.readFile('utf8');
  } finally {
    await handle.close();
  }
}
