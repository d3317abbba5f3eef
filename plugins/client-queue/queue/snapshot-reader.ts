import type { FileLayer } from '../../../core/disk/file-layer.js';
import { z } from 'zod';
import { decodeLine } from './snapshot-line.js';
import { StoredEntry } from './stored-entry.js';
import { TimeSlice } from '../../../core/concurrency.js';

const pieceBytes = 1024 * 1024;
/** A longer line is none of ours. */
const maxLine = 64 * 1024 * 1024;

export const snapshotForm = 1;
const Frame = z.object({ form: z.number(), upTo: z.number(), end: z.exactOptional(z.number()) });

export interface FoundEntry {
  readonly stored: StoredEntry;
  readonly envelope: string;
  /** Where the history is in the file. */
  readonly historyAt: number;
  readonly historyBytes: number;
}

export interface SnapshotVisitor {
  entry(found: FoundEntry): void;
  /** A piece that cannot be understood. */
  damaged(bytes: Buffer): Promise<void>;
}

export interface ReadSnapshot {
  /** Form of the file; undefined when its first line is damaged. */
  readonly form: number | undefined;
  /** Everything in the journal up to that number is in it. */
  readonly upTo: number;
  /** Nothing of it is damaged or missing. */
  readonly whole: boolean;
  readonly bytes: number;
}

/** Shows every entry of a snapshot. A damaged line harms no other. A file of a later form is not read at all. */
export async function readSnapshot(files: FileLayer, fd: number, visitor: SnapshotVisitor): Promise<ReadSnapshot> {
  const slice = new TimeSlice();
  let frame: z.output<typeof Frame> | undefined;
  let entries = 0;
  let damaged = 0;
  let ended: number | undefined;
  let bytes = 0;
  for await (const { line, at } of linesOf(files, fd)) {
    bytes = at + line.length + 1;
    const decoded = decodeLine(line);
    const json = decoded === undefined ? undefined : parsed(decoded.entry);
    const stored = StoredEntry.safeParse(json).data;
    const found = stored === undefined ? Frame.safeParse(json).data : undefined;
    if (found?.end !== undefined) ended = found.end;
    else if (found !== undefined) frame ??= found;
    else if (stored !== undefined && decoded !== undefined) {
      entries += 1;
      const { envelope, historyAt, historyBytes } = decoded;
      visitor.entry({ stored, envelope, historyAt: at + historyAt, historyBytes });
    } else {
      damaged += 1;
      await visitor.damaged(line);
    }
    if (frame !== undefined && frame.form > snapshotForm) break;
    await slice.yieldIfDue();
  }
  const whole = frame !== undefined && damaged === 0 && ended === entries;
  return { form: frame?.form, upTo: frame?.upTo ?? 0, whole, bytes };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

interface FoundLine {
  readonly line: Buffer;
  /** Offset in the file. */
  readonly at: number;
}

async function* linesOf(files: FileLayer, fd: number): AsyncGenerator<FoundLine> {
  let rest: Buffer = Buffer.alloc(0);
  let at = 0;
  let position = 0;
  for (;;) {
    const piece = Buffer.allocUnsafe(pieceBytes);
    const count = await files.read(fd, piece, position);
    if (count === 0) break;
    position += count;
    rest = rest.length === 0 ? piece.subarray(0, count) : Buffer.concat([rest, piece.subarray(0, count)]);
    let start = 0;
    for (let end = rest.indexOf(10); end >= 0; end = rest.indexOf(10, start)) {
      yield { line: rest.subarray(start, end), at: at + start };
      start = end + 1;
    }
    if (start === 0 && rest.length > maxLine) start = rest.length;
    at += start;
    rest = rest.subarray(start);
  }
  if (rest.length > 0) yield { line: rest, at };
}
