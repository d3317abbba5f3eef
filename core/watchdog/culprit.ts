import type { StallRecord } from './stall-file.js';

type Seen = Pick<StallRecord, 'plugin' | 'doing' | 'frames'>;

/** What held the event loop up, for a sentence: `hook rcptTo of the plugin greylist, at check (file:///…/index.js:7:9)`. */
export function culpritOf({ plugin, doing, frames }: Seen): string {
  const place = frames[0] === undefined ? '' : `, at ${frames[0]}`;
  if (plugin === null) return frames[0] ?? 'something that could not be seen';
  return doing === null ? `code of the plugin ${plugin}${place}` : `${doing} of the plugin ${plugin}${place}`;
}

/** `12 s`, `3 min`, `5 h`, `2 days`: as long as somebody has to wait, not to the second. */
export function durationText(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172_800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86_400)} days`;
}
