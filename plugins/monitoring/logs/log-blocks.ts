import type { FileHandle } from 'node:fs/promises';

/** More than the longest line of ours many times over: what fills a block without a line end is none. */
const BLOCK_BYTES = 256 * 1024;
const LF = 0x0a;
const none = Buffer.alloc(0);

/** Whole lines of a file, and where the first of them begins; no bytes where the file has no lines. */
export interface LogBlock {
  readonly start: number;
  readonly bytes: Buffer;
}

/** The lines of a file before byte `end`, last block first, each up to where the one before began; each read lets the event loop go on. */
export async function* blocksBackwards(file: FileHandle, end: number): AsyncGenerator<LogBlock> {
  let carried = none;
  // Where there are no lines, the next read takes the same memory.
  let free: Buffer<ArrayBuffer> | undefined;
  for (let position = end; position > 0;) {
    const size = Math.min(BLOCK_BYTES, position);
    position -= size;
    const { buffer, bytesRead } = await file.read(free ?? Buffer.allocUnsafe(size), 0, size, position);
    const read = buffer.subarray(0, bytesRead);
    const block = carried.length === 0 ? read : Buffer.concat([read, carried]);
    const first = position === 0 ? 0 : block.indexOf(LF) + 1;
    const holdsNoLine = position > 0 && (first === 0 || first === block.length);
    carried = holdsNoLine ? none : block.subarray(0, first);
    free = holdsNoLine ? buffer : undefined;
    yield holdsNoLine ? { start: position, bytes: carried } : { start: position + first, bytes: block.subarray(first) };
  }
}

export interface RawLine {
  /** Byte in the file. */
  readonly offset: number;
  /** Without its line end. */
  readonly bytes: Buffer;
}

/** The lines of a block, the last first. */
export function* linesBackwards({ start, bytes }: LogBlock): Generator<RawLine> {
  let end = bytes.at(-1) === LF ? bytes.length - 1 : bytes.length;
  while (end >= 0) {
    const before = end === 0 ? -1 : bytes.lastIndexOf(LF, end - 1);
    if (before + 1 < end) yield { offset: start + before + 1, bytes: bytes.subarray(before + 1, end) };
    end = before;
  }
}
