import { closeSync, constants, openSync, readFileSync, readSync, renameSync, rmSync, writeSync } from 'node:fs';
import { endianness } from 'node:os';
import { crc32 } from 'node:zlib';
import { uniqueId } from '../../../core/disk/id.js';
import { type FolderRows, NamePool } from './folder-rows.js';
import type { FolderNames } from './folder-reading.js';

/**
 * The rows of a folder in a file: 24 bytes of head (`PSTNFLD2`, bytes of the description, CRC-32 of everything after
 * the head, bytes after the head), the description as JSON, padded with spaces to a multiple of eight, then the columns
 * and the names as they are in memory. It is replaced as a whole. A file with any difference is ignored.
 */
const magic = Buffer.from('PSTNFLD2');
const headBytes = 24;
const maxIndexBytes = 0x7fff_0000;

export interface StoredFolder {
  readonly folder: string;
  readonly names: FolderNames;
  /** The summary log that the rows refer to, and its size at that time. */
  readonly log: { readonly mark: string; readonly end: number; readonly records: number };
}

/** The JSON; the checksum protects it. */
interface Description extends Pick<StoredFolder, 'folder' | 'log'> {
  readonly stamps: FolderNames['stamps'];
  readonly count: number;
  readonly namesBytes: number;
  /** Byte order of the machine, since columns are written as they are in memory. */
  readonly order: string;
}

type Column = Float64Array | Uint32Array | Uint16Array | Uint8Array;

const columnsOf = (rows: FolderRows): readonly Column[] => [
  rows.receivedAt,
  rows.size,
  rows.start,
  rows.summary,
  rows.length,
  rows.idLength,
  rows.bits,
  rows.pool.names,
];

/** @throws errors of the file system; then an older file is still there */
export function writeIndex(path: string, { folder, names: { rows, stamps }, log }: StoredFolder): void {
  const { count } = rows;
  const described: Description = { folder, stamps, count, namesBytes: rows.pool.used, order: endianness(), log };
  const text = Buffer.from(JSON.stringify(described), 'utf8');
  const description = Buffer.concat([text, Buffer.alloc((8 - (text.length % 8)) % 8, ' ')]);
  const parts = [description, ...columnsOf(rows).map(bytesOf)].filter(({ length }) => length > 0);
  const bytes = parts.reduce((sum, part) => sum + part.length, 0);
  const head = Buffer.alloc(headBytes);
  magic.copy(head);
  head.writeUInt32LE(description.length, 8);
  head.writeUInt32LE(
    parts.reduce((sum, part) => crc32(part, sum), 0),
    12,
  );
  head.writeDoubleLE(bytes, 16);
  replaceFile(path, [head, ...parts]);
}

const bytesOf = (column: Column): Buffer => Buffer.from(column.buffer, column.byteOffset, column.byteLength);

/** Not fsynced: the checksum detects what a power cut leaves. */
function replaceFile(path: string, parts: readonly Buffer[]): void {
  const temporary = `${path}.${uniqueId()}.tmp`;
  try {
    const fd = openSync(temporary, 'wx', 0o600);
    try {
      for (const part of parts) {
        for (let at = 0; at < part.length;) at += writeSync(fd, part, at, part.length - at);
      }
    } finally {
      closeSync(fd);
    }
    renameSync(temporary, path);
  } catch (error) {
    rmSync(temporary, { force: true });
    throw error;
  }
}

/** Undefined when there is none, or it is damaged or of another folder. */
export function readIndex(path: string, folder: string): StoredFolder | undefined {
  try {
    const stored = reading(path, (fd) => parseIndex(readFileSync(fd)));
    return stored?.folder === folder ? stored : undefined;
  } catch {
    return undefined;
  }
}

/** The folder of an index, from its first bytes; undefined for other files. */
export function folderOfIndex(path: string): string | undefined {
  const head = Buffer.alloc(8192);
  try {
    const read = reading(path, (fd) => readSync(fd, head, 0, head.length, 0));
    if (!head.subarray(0, 8).equals(magic)) return undefined;
    const end = headBytes + head.readUInt32LE(8);
    return end > read ? undefined : (JSON.parse(head.toString('utf8', headBytes, end)) as Description).folder;
  } catch {
    return undefined;
  }
}

/** Does not block on a FIFO. */
function reading<T>(path: string, read: (fd: number) => T): T {
  const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    return read(fd);
  } finally {
    closeSync(fd);
  }
}

/** @throws any error for bytes that are not an index */
function parseIndex(file: Buffer): StoredFolder | undefined {
  const bytes = file.length - headBytes;
  if (bytes < 0 || bytes > maxIndexBytes || !file.subarray(0, 8).equals(magic)) return undefined;
  if (file.readDoubleLE(16) !== bytes || file.readUInt32LE(12) !== crc32(file.subarray(headBytes))) return undefined;
  const columnsAt = headBytes + file.readUInt32LE(8);
  const described = JSON.parse(file.toString('utf8', headBytes, columnsAt)) as Description;
  const { folder, stamps, count, namesBytes, order, log } = described;
  if (order !== endianness()) return undefined;
  // Columns need an aligned buffer.
  const aligned = file.buffer.slice(file.byteOffset + columnsAt, file.byteOffset + file.length);
  const rows = rowsIn(aligned, count, namesBytes);
  return rows !== undefined && isSound(rows, log.end) ? { folder, names: { rows, stamps }, log } : undefined;
}

function rowsIn(bytes: ArrayBufferLike, count: number, namesBytes: number): FolderRows | undefined {
  let at = 0;
  const next = (size: number): number => {
    at += size;
    return at - size;
  };
  const rows = {
    count,
    receivedAt: new Float64Array(bytes, next(8 * count), count),
    size: new Float64Array(bytes, next(8 * count), count),
    start: new Uint32Array(bytes, next(4 * count), count),
    summary: new Uint32Array(bytes, next(4 * count), count),
    length: new Uint16Array(bytes, next(2 * count), count),
    idLength: new Uint16Array(bytes, next(2 * count), count),
    bits: new Uint8Array(bytes, next(count), count),
    pool: new NamePool(Buffer.from(bytes, next(namesBytes), namesBytes)),
  };
  return at === bytes.byteLength ? rows : undefined;
}

function isSound({ count, start, length, idLength, summary, pool }: FolderRows, logEnd: number): boolean {
  for (let row = 0; row < count; row++) {
    if ((start[row] ?? 0) + (length[row] ?? 0) > pool.used) return false;
    if ((idLength[row] ?? 0) > (length[row] ?? 0) || (summary[row] ?? 0) >= logEnd) return false;
  }
  return true;
}
