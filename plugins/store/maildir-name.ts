import { randomBytes } from 'node:crypto';
import type { Clock } from '../../core/clock.js';

/** What leaves room for a size, flags and 26 keywords below NAME_MAX (255). */
const longestName = 200;
const infoMark = ':2,';

/** A message file of a Maildir by its name. */
export interface MaildirName {
  /** What stays the same when flags change: everything in front of the first `:`. The id of the message. */
  readonly base: string;
  /** Standard flags (D F P R S T) and keyword letters (a-z), sorted by ASCII, each once. */
  readonly flags: string;
  /** Bytes of the file as its `S=` says; undefined when the name does not say. */
  readonly size: number | undefined;
  /** Bytes with CRLF line ends as its `W=` says. */
  readonly wireSize: number | undefined;
  /** Seconds since 1970 that the name begins with; undefined for a name of another kind. */
  readonly seconds: number | undefined;
}

/** Reads any name that is found in `new` or `cur`; what it does not say is undefined. */
export function parseMaildirName(file: string): MaildirName {
  const colon = file.indexOf(':');
  const base = colon < 0 ? file : file.slice(0, colon);
  const info = colon >= 0 && file.startsWith(infoMark, colon) ? file.slice(colon + infoMark.length) : '';
  const seconds = /^(\d{1,15})\./.exec(base)?.[1];
  return {
    base,
    flags: sortFlags(info.split(',', 1)[0] ?? ''),
    size: field(base, 'S'),
    wireSize: field(base, 'W'),
    seconds: seconds === undefined ? undefined : Number(seconds),
  };
}

/** The file name in `cur` of a message with these flags; letters that we do not know stay. */
export function withFlags(base: string, flags: string): string {
  return `${base}${infoMark}${sortFlags(flags)}`;
}

function sortFlags(flags: string): string {
  return [...new Set(flags)]
    .filter((flag) => /[A-Za-z]/.test(flag))
    .sort()
    .join('');
}

function field(base: string, name: 'S' | 'W'): number | undefined {
  const digits = new RegExp(`,${name}=(\\d{1,15})(?:,|$)`).exec(base)?.[1];
  return digits === undefined ? undefined : Number(digits);
}

export interface UniqueNamesInput {
  readonly host: string;
  readonly clock: Clock;
  readonly pid?: number;
}

/**
 * Makes the names of new messages: `<seconds>.M<µs>P<pid>Q<n>R<random>.<host>,S=<size>,W=<size>`. Within a process
 * (seconds, µs) rises strictly, so that a clock that goes back cannot make a name twice; the random part has 128 bits.
 */
export class UniqueNames {
  readonly #host: string;
  readonly #clock: Clock;
  readonly #pid: number;
  #lastMicros = 0;
  #count = 0;

  constructor({ host, clock, pid = process.pid }: UniqueNamesInput) {
    this.#host = host;
    this.#clock = clock;
    this.#pid = pid;
  }

  /** @param size bytes of the file, which has CRLF line ends: so both sizes are the same */
  next(size: number): string {
    const micros = Math.max(this.#lastMicros + 1, Math.floor(this.#clock.now() * 1000));
    this.#lastMicros = micros;
    this.#count += 1;
    const time = `${Math.floor(micros / 1e6)}.M${micros % 1e6}`;
    const unique = `${time}P${this.#pid}Q${this.#count}R${randomBytes(16).toString('hex')}.`;
    const sizes = `,S=${size},W=${size}`;
    return unique + escapeHost(this.#host, longestName - unique.length - sizes.length) + sizes;
  }
}

/** `/` and `:` would break the name; other characters than those of a host name are left out. */
function escapeHost(host: string, limit: number): string {
  const escaped = host
    .replace(/[^A-Za-z0-9._/:[\]-]/g, '')
    .replaceAll('/', '\\057')
    .replaceAll(':', '\\072');
  return escaped.slice(0, limit) || 'localhost';
}
