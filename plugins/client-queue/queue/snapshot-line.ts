import { crc32 } from 'node:zlib';

/** A line is the CRC-32 of what follows as 8 hex digits, a blank, two pieces of JSON with a tab between them. */
const sumBytes = 8;
const contentAt = sumBytes + 1;
const tab = 9;

export interface SnapshotLine {
  readonly entry: string;
  /** Where the history begins in the line, and how long it is. */
  readonly historyAt: number;
  readonly historyBytes: number;
}

/** The line with its line end. */
export function encodeLine(entry: string, history: string): { readonly bytes: Buffer; readonly historyAt: number } {
  const head = Buffer.byteLength(entry) + 1;
  const bytes = Buffer.allocUnsafe(contentAt + head + Buffer.byteLength(history) + 1);
  bytes.write(entry, contentAt);
  bytes[contentAt + head - 1] = tab;
  bytes.write(history, contentAt + head);
  bytes[bytes.length - 1] = 10;
  bytes.write(hex(crc32(bytes.subarray(contentAt, -1))), 0);
  bytes[sumBytes] = 32;
  return { bytes, historyAt: contentAt + head };
}

/** Undefined when it is damaged. */
export function decodeLine(line: Buffer): SnapshotLine | undefined {
  const content = line.subarray(contentAt);
  if (line.length < contentAt || line.toString('latin1', 0, sumBytes) !== hex(crc32(content))) return undefined;
  const at = content.indexOf(tab);
  if (at < 0) return undefined;
  return {
    entry: content.toString('utf8', 0, at),
    historyAt: contentAt + at + 1,
    historyBytes: content.length - at - 1,
  };
}

function hex(sum: number): string {
  return sum.toString(16).padStart(sumBytes, '0');
}
