import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { isMissing } from '../disk/fault.js';
import { maxStalls } from './stall-bounds.js';

/** File in the data folder. The watching thread replaces it as a whole. */
export const stallFile = 'stalls.json';

/** A longer file is not ours. */
const maxBytes = 512 * 1024;

const StallRecord = z.object({
  pid: z.int().positive(),
  /** When the event loop last turned, ISO 8601. */
  since: z.iso.datetime(),
  /** When it turned again, or when the next start found that the process had ended; null while open. */
  until: z.iso.datetime().nullable(),
  /** `killed`: the watchdog ended the process, as configured; `ended`: something else did. */
  outcome: z.enum(['lasts', 'over', 'killed', 'ended']),
  /** The plugin whose code ran, and what it did; null when it was the server's own code, or is unknown. */
  plugin: z.string().max(200).nullable(),
  doing: z.string().max(500).nullable(),
  /** The stack, innermost frame first: `function (file:line:column)`. */
  frames: z.array(z.string().max(1000)).max(60),
});
export type StallRecord = Readonly<z.output<typeof StallRecord>>;

const StallFile = z.object({ stalls: z.array(StallRecord).max(maxStalls) });

/**
 * The recorded stalls, newest first; empty when the file is not readable as such.
 *
 * @throws the error of the file system
 */
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
    // Do not wait for the writer of a named pipe.
    const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const stat = await file.stat();
      return stat.isFile() && stat.size <= maxBytes ? await file.readFile('utf8') : '';
    } finally {
      await file.close();
    }
  } catch (error) {
    if (isMissing(error)) return '';
    throw error;
  }
}

/** Closes the stalls that an ended process left open. */
export function closeOpenStalls(stalls: readonly StallRecord[], now: number): readonly StallRecord[] {
  const until = new Date(now).toISOString();
  return stalls.map((stall) =>
    stall.until === null ? { ...stall, until, outcome: stall.outcome === 'lasts' ? 'ended' : stall.outcome } : stall,
  );
}

type Seen = Pick<StallRecord, 'plugin' | 'doing' | 'frames'>;

/** What caused a stall, for a sentence: `hook rcptTo of the plugin greylist, at check (file:///…/index.js:7:9)`. */
export function stallCause({ plugin, doing, frames }: Seen): string {
  const place = frames[0] === undefined ? '' : `, at ${frames[0]}`;
  if (plugin === null) return frames[0] ?? 'unknown code';
  return doing === null ? `code of the plugin ${plugin}${place}` : `${doing} of the plugin ${plugin}${place}`;
}

/** `12 s`, `3 min`, `5 h`, `2 days`. */
export function durationText(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172_800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86_400)} days`;
}
