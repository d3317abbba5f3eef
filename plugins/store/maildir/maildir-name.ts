import { createHash } from 'node:crypto';
import type { Clock } from '../../../core/clock.js';
import { randomBytes } from '../../../core/disk/id.js';
import { sizesIn } from './message-name.js';

/** What leaves room for a size, flags and 26 keywords below NAME_MAX (255). */
const maxNameBytes = 200;
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
  /** As it stands in a name, before it is cut. */
  readonly #host: string;
  readonly #clock: Clock;
  readonly #pid: number;
  #lastMicros = 0;
  #count = 0;

  constructor({ host, clock, pid = process.pid }: UniqueNamesInput) {
    this.#host = escapeHost(host);
    this.#clock = clock;
    this.#pid = pid;
  }

  /**
   * @param size bytes of the file, which has CRLF line ends: so both sizes are the same
   * @param mark in place of the random part, for a delivery that must be known again (`markOf`)
   */
  next(size: number, mark: string = randomBytes(16).toString('hex')): string {
    const micros = Math.max(this.#lastMicros + 1, Math.floor(this.#clock.now() * 1000));
    this.#lastMicros = micros;
    return this.#unique(micros, `,S=${size},W=${size}`, mark);
  }

  /**
   * A name of its own for a message that has one already and goes to another folder: it keeps the received time, by which
   * lists are ordered, and whatever sizes the old name told.
   * @param receivedAt milliseconds since 1970
   */
  renamed(id: string, receivedAt: number): string {
    return this.#unique(Math.max(0, Math.round(receivedAt * 1000)), sizesIn(id), randomBytes(16).toString('hex'));
  }

  #unique(micros: number, sizes: string, mark: string): string {
    this.#count += 1;
    const time = `${Math.floor(micros / 1e6)}.M${micros % 1e6}`;
    const unique = `${time}P${this.#pid}Q${this.#count}R${mark}.`;
    return unique + this.#host.slice(0, maxNameBytes - unique.length - sizes.length) + sizes;
  }
}

/** The mark of a delivery that may be repeated: 128 bits that are the same for the same id. */
export function markOf(id: string): string {
  return createHash('sha256').update(id).digest('hex').slice(0, 32);
}

/** Whether a message has that mark; a reader that set flags or moved it from `new` to `cur` has left it there. */
export const hasMark = (name: string, mark: string): boolean => name.includes(`R${mark}.`);

/** `/` and `:` would break the name; other characters than those of a host name are left out. */
function escapeHost(host: string): string {
  const escaped = host
    .replace(/[^A-Za-z0-9._/:[\]-]/g, '')
    .replaceAll('/', '\\057')
    .replaceAll(':', '\\072');
  return escaped || 'localhost';
}
