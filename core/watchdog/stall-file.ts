import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { isMissing } from '../disk/fault.js';
import { mostStalls } from './stall-bounds.js';

/** In the data folder. The thread that watches replaces it as a whole. */
export const stallFile = 'stalls.json';

/** A file that is longer is none of ours. */
const mostBytes = 512 * 1024;

const StallRecord = z.object({
  pid: z.int().positive(),
  /** When the event loop turned last, ISO 8601. */
  since: z.iso.datetime(),
  /** When it turned again, or when the next start found that the process had ended; null before. */
  until: z.iso.datetime().nullable(),
  /** `killed`: the watchdog ended the process, as it was told to; `ended`: somebody else did. */
  outcome: z.enum(['lasts', 'over', 'killed', 'ended']),
  /** Whose code ran, and what of it; null when it was the server's own, or is not known. */
  plugin: z.string().max(200).nullable(),
  doing: z.string().max(500).nullable(),
  /** The stack as it was seen, the innermost frame first: `function (file:line:column)`. */
  frames: z.array(z.string().max(1000)).max(60),
});
export type StallRecord = Readonly<z.output<typeof StallRecord>>;

const StallFile = z.object({ stalls: z.array(StallRecord).max(mostStalls) });

/** The stalls that are on record, newest first; none when the file cannot be understood. @throws what the system says */
export async function readStalls(data: string): Promise<readonly StallRecord[]> {
  const text = await readBounded(join(data, stallFile));
  try {
    return StallFile.safeParse(JSON.parse(text)).data?.stalls ?? [];
  } catch {
    return [];
  }
}

async function readBounded(path: string): Promise<string> {
  try {
    // Of a pipe that somebody has put there no writer is waited for.
    const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const stat = await file.stat();
      return stat.isFile() && stat.size <= mostBytes ? await file.readFile('utf8') : '';
    } finally {
      await file.close();
    }
  } catch (error) {
    if (isMissing(error)) return '';
    throw error;
  }
}

/** The stalls with those closed that a process which is gone has left open. */
export function closed(stalls: readonly StallRecord[], now: number): readonly StallRecord[] {
  const until = new Date(now).toISOString();
  return stalls.map((stall) =>
    stall.until === null ? { ...stall, until, outcome: stall.outcome === 'lasts' ? 'ended' : stall.outcome } : stall,
  );
}
