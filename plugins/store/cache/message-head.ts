import { closeSync, readSync } from 'node:fs';
import { join } from 'node:path';
import { summarise, type Summary } from '../mime/summary.js';
import { ConfinedDirectory } from './confined-directory.js';
import { type FolderRows, hasBit, nameAt, rowBits } from './folder-rows.js';
import type { SummaryRecord } from './summary-record.js';

/** Usual and maximum bytes that contain the header and the beginning of the text. */
const defaultHeadBytes = 16 * 1024;
const headBytes = 64 * 1024;
const bytes = Buffer.allocUnsafeSlow(headBytes);

/** Reads the beginnings of a folder's messages through its open directories. */
export class MessageHeads {
  readonly #open: (part: 'new' | 'cur') => ConfinedDirectory | undefined;
  readonly #directories = new Map<'new' | 'cur', ConfinedDirectory | undefined>();

  constructor(root: string, folder: string) {
    this.#open = (part) => ConfinedDirectory.open(root, join(folder, part));
  }

  /** Undefined when the file no longer has that name. */
  read(rows: FolderRows, row: number): SummaryRecord | undefined {
    const part = hasBit(rows, row, rowBits.current) ? 'cur' : 'new';
    if (!this.#directories.has(part)) this.#directories.set(part, this.#open(part));
    const file = this.#directories.get(part)?.openFile(nameAt(rows, row));
    if (file === undefined) return undefined;
    try {
      return { summary: summaryOf(file), size: file.size };
    } finally {
      closeSync(file.fd);
    }
  }

  close(): void {
    for (const directory of this.#directories.values()) directory?.close();
    this.#directories.clear();
  }
}

function summaryOf({ fd, size }: { readonly fd: number; readonly size: number }): Summary {
  const head = readHead(fd, Math.min(size, defaultHeadBytes));
  const summary = summarise(head, size);
  const saysEnough = summary.snippet !== '' && !summary.hasAttachments && head.includes('\r\n\r\n');
  if (saysEnough || size <= defaultHeadBytes) return summary;
  return summarise(readHead(fd, Math.min(size, headBytes)), size);
}

function readHead(fd: number, length: number): Buffer {
  let read = 0;
  while (read < length) {
    const more = readSync(fd, bytes, read, length - read, read);
    if (more === 0) break;
    read += more;
  }
  return bytes.subarray(0, read);
}
