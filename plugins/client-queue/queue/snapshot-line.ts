import { crc32 } from 'node:zlib';

/** A line is the CRC-32 of what follows as 8 hex digits, a blank, and three pieces of JSON with tabs between them. */
const sumBytes = 8;
const contentAt = sumBytes + 1;
const tab = 9;

export interface SnapshotLine {
  readonly entry: string;
  readonly envelope: string;
  /** Where the history begins in the line, and how long it is. */
  readonly historyAt: number;
  readonly historyBytes: number;
}

export interface EncodedLine {
  /** With its line end. */
  readonly bytes: Buffer;
  readonly historyAt: number;
}

export function encodeLine(entry: string, envelope: string, history: string): EncodedLine {
  const head = `${entry}\t${envelope}\t`;
  const headBytes = Buffer.byteLength(head);
  const historyAt = contentAt + headBytes;
  const bytes = Buffer.allocUnsafe(historyAt + Buffer.byteLength(history) + 1);
  bytes.write(head, contentAt);
  bytes.write(history, historyAt);
  bytes[bytes.length - 1] = 10;
  bytes.write(hex(crc32(bytes.subarray(contentAt, -1))), 0);
  bytes[sumBytes] = 32;
  return { bytes, historyAt };
}

/** Undefined when it is damaged. */
export function decodeLine(line: Buffer): SnapshotLine | undefined {
  const content = line.subarray(contentAt);
  if (line.length < contentAt || line.toString('latin1', 0, sumBytes) !== hex(crc32(content))) return undefined;
  const entryEnd = content.indexOf(tab);
  const envelopeEnd = entryEnd < 0 ? -1 : content.indexOf(tab, entryEnd + 1);
  if (envelopeEnd < 0) return undefined;
  return {
    entry: content.toString('utf8', 0, entryEnd),
    envelope: content.toString('utf8', entryEnd + 1, envelopeEnd),
    historyAt: contentAt + envelopeEnd + 1,
    historyBytes: content.length - envelopeEnd - 1,
  };
}

function hex(sum: number): string {
  return sum.toString(16).padStart(sumBytes, '0');
}
