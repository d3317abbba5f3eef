import { isUtf8 } from 'node:buffer';
import { createHash, type Hash } from 'node:crypto';
import { constants } from 'node:fs';
import { type FileHandle, lstat, mkdir, open, readdir, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { isMissing } from '../../../core/disk/fault.js';
import { coreutilsFlush, syncFolder } from '../../../core/disk/folder.js';
import type { FramedInput } from './framed-input.js';

/** What is in a mailbox. Paths are below its folder. */
type Entry = { readonly folder: string } | { readonly file: string; readonly size: number; readonly mtimeMs: number };

const Line = z.union([
  z.strictObject({ folder: z.string() }),
  z.strictObject({ file: z.string(), size: z.int().min(0), mtimeMs: z.number() }),
  z.strictObject({ end: z.int().min(0), sha256: z.string() }),
]);

const maxLine = 16_384;
const readBytes = 256 * 1024;
/** Neither follows a link nor blocks on a pipe. */
const readOnly = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

/** Folders and files below `root`, in order; none when it is not there. @throws Error for anything else, such as a link */
async function* entriesOf(root: string, path = ''): AsyncGenerator<Entry> {
  const options = { withFileTypes: true, encoding: 'buffer' } as const;
  const names = await readdir(join(root, path), options).catch((error: unknown) => {
    if (path === '' && isMissing(error)) return [];
    throw error;
  });
  for (const entry of names.sort((one, other) => Buffer.compare(one.name, other.name))) {
    const name = entry.name.toString();
    const below = path === '' ? name : `${path}/${name}`;
    if (!isUtf8(entry.name)) throw new Error(`the name ${below} is not UTF-8`);
    if (entry.isDirectory()) {
      yield { folder: below };
      yield* entriesOf(root, below);
      continue;
    }
    if (!entry.isFile()) throw new Error(`${below} is neither a file nor a folder`);
    const { size, mtimeMs } = await lstat(join(root, below));
    yield { file: below, size, mtimeMs };
  }
}

/**
 * A mailbox as one stream: a line of JSON for each folder and file, the bytes of the file after its line, and their
 * hash at the end.
 *
 * @throws Error when it changes meanwhile: nothing of it counts then
 */
export async function* packedMailbox(root: string): AsyncGenerator<Buffer> {
  const [entries, after] = [createHash('sha256'), createHash('sha256')];
  let count = 0;
  const hash = createHash('sha256');
  const hashed = (bytes: Buffer): Buffer => {
    hash.update(bytes);
    return bytes;
  };
  for await (const entry of entriesOf(root)) {
    const line = Buffer.from(`${JSON.stringify(entry)}\n`);
    entries.update(line);
    count += 1;
    yield hashed(line);
    if ('file' in entry) for await (const bytes of bytesOf(join(root, entry.file), entry.size)) yield hashed(bytes);
  }
  for await (const entry of entriesOf(root)) after.update(`${JSON.stringify(entry)}\n`);
  if (!after.digest().equals(entries.digest())) throw new Error('the mailbox was changed while it was copied');
  yield Buffer.from(`${JSON.stringify({ end: count, sha256: hash.digest('hex') })}\n`);
}

async function* bytesOf(path: string, size: number): AsyncGenerator<Buffer> {
  const file = await open(path, readOnly);
  try {
    for (let at = 0; at < size;) {
      const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(Math.min(readBytes, size - at)), 0, null, at);
      if (bytesRead === 0) throw new Error('a file became shorter while it was copied');
      at += bytesRead;
      yield buffer.subarray(0, bytesRead);
    }
  } finally {
    await file.close();
  }
}

/**
 * Writes a packed mailbox into an empty folder. Durable and compared with its hash when it resolves.
 *
 * @throws Error when it is not whole
 */
export async function unpackMailbox(input: FramedInput, root: string): Promise<void> {
  const hash = createHash('sha256');
  const paths: string[] = [];
  for (let count = 0; ; count += 1) {
    const text = await input.line(maxLine);
    const line = Line.parse(JSON.parse(text));
    if ('end' in line) {
      if (line.end !== count || line.sha256 !== hash.digest('hex')) throw new Error('the copy is not like the mailbox');
      break;
    }
    hash.update(`${text}\n`);
    const path = join(root, checked('folder' in line ? line.folder : line.file));
    paths.push(path);
    if ('folder' in line) await mkdir(path, 0o700);
    else await writeFile(path, line, input, hash);
  }
  if (await coreutilsFlush.flush(root)) return;
  for (const path of paths) await syncFolder(path);
  await syncFolder(root);
}

async function writeFile(
  path: string,
  { size, mtimeMs }: { readonly size: number; readonly mtimeMs: number },
  input: FramedInput,
  hash: Hash,
): Promise<void> {
  const file: FileHandle = await open(path, 'wx', 0o600);
  try {
    for await (const bytes of input.bytes(size)) {
      hash.update(bytes);
      await file.writeFile(bytes);
    }
  } finally {
    await file.close();
  }
  await utimes(path, mtimeMs / 1000, mtimeMs / 1000);
}

/** A path that stays below its root. */
function checked(path: string): string {
  const parts = path.split('/');
  const isOutside = parts.some((part) => part === '' || part === '.' || part === '..' || part.includes('\0'));
  if (isOutside || parts.length > 20) throw new Error('a path is not below the mailbox');
  return path;
}
