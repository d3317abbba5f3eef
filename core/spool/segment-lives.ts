import { join } from 'node:path';
import { z } from 'zod';
import { writeFileAtomic } from '../disk/atomic.js';
import type { FileLayer } from '../disk/file-layer.js';
import { openRegularFile } from '../disk/regular-file.js';

/** The file that names the segments in use. */
export const segmentLivesName = 'segments.json';

const SegmentLife = z.object({
  name: z.string(),
  /** Number of its first record. */
  first: z.number(),
  /** When that was written, in milliseconds since the epoch. */
  at: z.number(),
});
/** A segment from its first record until none of its records is wanted any more. */
export type SegmentLife = z.output<typeof SegmentLife>;

const Lives = z.object({ segments: z.array(SegmentLife) });

/** Undefined when there is no list, or none that can be understood: then a missing segment shows by the numbers alone. */
export async function readSegmentLives(folder: string, files: FileLayer): Promise<readonly SegmentLife[] | undefined> {
  try {
    const path = join(folder, segmentLivesName);
    const bytes = Buffer.alloc((await files.lstat(path)).size);
    const fd = await openRegularFile(path, files);
    try {
      await files.read(fd, bytes, 0);
    } finally {
      await files.close(fd);
    }
    return Lives.parse(JSON.parse(bytes.toString('utf8'))).segments;
  } catch {
    return undefined;
  }
}

export function writeSegmentLives(folder: string, lives: readonly SegmentLife[], files: FileLayer): Promise<void> {
  const list: z.input<typeof Lives> = { segments: [...lives] };
  return writeFileAtomic(join(folder, segmentLivesName), `${JSON.stringify(list)}\n`, { files });
}
