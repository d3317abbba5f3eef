import { createHash } from 'node:crypto';
import type { Clock } from '../../../core/clock.js';
import { randomBytes } from '../../../core/disk/id.js';
import { sizesIn } from './message-name.js';

/** Leaves room for size, flags and 26 keywords below NAME_MAX (255). */
const maxNameBytes = 200;
/**
 * Generates names of new messages: `<seconds>.M<µs>P<pid>Q<n>R<random>.<host>,S=<size>,W=<size>`. Within a process,
 * (seconds, µs) strictly increases, so that a clock that goes back creates no duplicates; the random part has 128 bits.
 */
export class UniqueNames {
  /** The encoded host name, before truncation. */
  readonly #host: string;
  readonly #clock: Clock;
  readonly #pid: number;
  #lastMicros = 0;
  #count = 0;

  constructor({
    host,
    clock,
    pid = process.pid,
  }: {
    readonly host: string;
    readonly clock: Clock;
    readonly pid?: number;
  }) {
    this.#host = escapeHost(host);
    this.#clock = clock;
    this.#pid = pid;
  }

  /**
   * @param size bytes of the file, which has CRLF line ends: so both sizes are equal
   * @param mark instead of the random part, for a delivery that must be recognised later (`markOf`)
   */
  next(size: number, mark: string = randomBytes(16).toString('hex')): string {
    const micros = Math.max(this.#lastMicros + 1, Math.floor(this.#clock.now() * 1000));
    this.#lastMicros = micros;
    return this.#unique(micros, `,S=${size},W=${size}`, mark);
  }

  /**
   * A new name for a message that moves to another folder: keeps the received time, by which lists are ordered, and the
   * sizes of the old name.
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

/** Mark of a repeatable delivery: 128 bits derived from the id. */
export function deliveryMarkOf(id: string): string {
  return createHash('sha256').update(id).digest('hex').slice(0, 32);
}

/** True when a message has that mark; flags and moves from `new` to `cur` keep it. */
export const hasMark = (name: string, mark: string): boolean => name.includes(`R${mark}.`);

/** `/` and `:` would break the name; only host name characters are kept. */
function escapeHost(host: string): string {
  const escaped = host
    .replace(/[^A-Za-z0-9._/:[\]-]/g, '')
    .replaceAll('/', '\\057')
    .replaceAll(':', '\\072');
  return escaped || 'localhost';
}
