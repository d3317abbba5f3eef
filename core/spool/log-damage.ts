import { basename } from 'node:path';
import type { FoundSegments } from './log-folder.js';
import type { NumberRange } from './log-record.js';
import type { SegmentLife } from './segment-lives.js';

export interface LogDamage {
  /** Name of the note about it. */
  readonly note: string;
  readonly sentence: string;
  /** How many records are lost; undefined when nobody can know. */
  readonly records: number | undefined;
}

/**
 * What had been acknowledged, was not released, and cannot be read. The end of the newest segment may be torn; every other gap in the
 * numbers, every segment that is gone and every damaged header is damage.
 */
export function damageOf({ sealed, lives }: FoundSegments, released: number, now: number): readonly LogDamage[] {
  const damage = missingRanges(sealed, released).map((range) => lossOf(range, lives, now));
  const newest = sealed.at(-1)?.first ?? 0;
  const found = new Set(sealed.map(({ path }) => basename(path)));
  for (const { name, first, at } of lives) {
    // One that is older shows as a gap in the numbers, unless nothing in it is wanted.
    if (found.has(name) || first <= newest) continue;
    damage.push({
      note: `damage-from-${first}.txt`,
      sentence: `A segment of the log is gone or cannot be read: ${name}. It holds the records from number ${first} on, written between ${timeOf(at)} and ${timeOf(now)}; how many is not known.`,
      records: undefined,
    });
  }
  for (const { path, first, last, isDamaged, gaps } of sealed) {
    if (!isDamaged || gaps.length > 0 || last <= released) continue;
    const name = basename(path);
    damage.push({
      note: `damage-header-${first}.txt`,
      sentence: `The header of a segment of the log is damaged: ${name}. Its records from number ${first} to ${last} can be read.`,
      records: 0,
    });
  }
  return damage;
}

function missingRanges(sealed: FoundSegments['sealed'], released: number): readonly NumberRange[] {
  const missing: NumberRange[] = [];
  let next = released + 1;
  const add = (from: number, to: number): void => {
    if (to >= Math.max(from, next)) missing.push({ from: Math.max(from, next), to });
  };
  for (const { first, last, gaps, acknowledgedBefore } of sealed) {
    // What was not acknowledged before the segment began is a write that failed.
    add(next, Math.min(first - 1, acknowledgedBefore));
    for (const { from, to } of gaps) add(from, to);
    next = Math.max(next, last + 1);
  }
  return missing;
}

function lossOf({ from, to }: NumberRange, lives: readonly SegmentLife[], now: number): LogDamage {
  const records = to - from + 1;
  const since = Math.max(-Infinity, ...lives.filter(({ first }) => first <= from).map(({ at }) => at));
  const until = Math.min(now, ...lives.filter(({ first }) => first > to).map(({ at }) => at));
  const time = Number.isFinite(since) ? `between ${timeOf(since)} and ${timeOf(until)}` : `before ${timeOf(until)}`;
  return {
    note: `damage-${from}-${to}.txt`,
    sentence: `${records} ${records === 1 ? 'record' : 'records'} of the log cannot be read: number ${from} to ${to}, written ${time}.`,
    records,
  };
}

function timeOf(milliseconds: number): string {
  return new Date(milliseconds).toISOString();
}
