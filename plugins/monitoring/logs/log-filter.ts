import { type LogLevel, logLevels } from '../../../core/log/log.js';
import { problem } from '../../../core/problem.js';
import { parseTime } from '../../../core/text/format.js';

/** Criteria for lines of the log. */
export interface LogFilter {
  /** All must occur; ignores case. */
  readonly words: readonly string[];
  /** That level and more severe ones. */
  readonly level: LogLevel | undefined;
  /** ISO 8601, inclusive. */
  readonly since: string | undefined;
  readonly until: string | undefined;
}

/** Words, and phrases in quotes: `session "not well"`. */
export function wordsOf(query: string): readonly string[] {
  return [...query.matchAll(/"([^"]+)"|(\S+)/g)].map(([, phrase, word]) => phrase ?? word ?? '').slice(0, 20);
}

const seconds: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600, d: 86_400 };

const latest = Date.parse('9999-12-31T23:59:59.999Z');

/**
 * Parses a time: `90s`, `15m`, `2h` and `7d` are relative; else ISO 8601, in UTC without a zone.
 *
 * @param name of the parameter, for the problem
 */
export function parseMoment(name: string, text: string | undefined, now: number): string | undefined {
  if (text === undefined) return undefined;
  const [, count, unit = ''] = /^(\d{1,6})([smhd])$/.exec(text) ?? [];
  const at = count === undefined ? parseTime(text) : now - Number(count) * (seconds[unit] ?? 0) * 1000;
  // Years with more than four digits cannot be compared with the lines.
  if (at <= latest) return new Date(at).toISOString();
  const message = 'must be an age (15m, 2h, 7d) or an ISO 8601 time';
  throw problem('bad-request', { detail: `The parameter ${name} ${message}.`, errors: [{ pointer: name, message }] });
}

/** Level and time come first in each line of the log. */
const head = /^\{"level":"([a-z]+)","time":"([^"]{10,40})"/;
const HEAD_BYTES = 80;

/** Matches lines of the files, mostly without decoding them. */
export class LineMatcher {
  readonly #needles: readonly string[];
  readonly #levels: ReadonlySet<string> | undefined;
  readonly #filter: LogFilter;

  constructor(filter: LogFilter) {
    this.#filter = filter;
    this.#needles = filter.words.map(asLogged);
    this.#levels = filter.level === undefined ? undefined : new Set(logLevels.slice(logLevels.indexOf(filter.level)));
  }

  /** Cheap test whether lines of this block could match. */
  mayMatch(bytes: Buffer): boolean {
    if (this.#needles.length === 0) return true;
    const text = bytes.toString('utf8').toLowerCase();
    return this.#needles.every((needle) => text.includes(needle));
  }

  /** `older`: this line and all before it are older than `since`. */
  judge(bytes: Buffer): 'match' | 'no' | 'older' {
    const [, level = '', time] = head.exec(bytes.toString('latin1', 0, HEAD_BYTES)) ?? [];
    const { since, until } = this.#filter;
    if (time !== undefined && since !== undefined && time < since) return 'older';
    if (until !== undefined && (time === undefined || time > until)) return 'no';
    if (this.#levels !== undefined && !this.#levels.has(level)) return 'no';
    if (this.#needles.length === 0) return 'match';
    const text = bytes.toString('utf8').toLowerCase();
    return this.#needles.every((needle) => text.includes(needle)) ? 'match' : 'no';
  }
}

/** A word as escaped in JSON. */
const asLogged = (word: string): string => JSON.stringify(word).slice(1, -1).toLowerCase();
