import type { Clock } from '../../../core/clock.js';
import { clientFailure, type ClientFailure } from '../../../core/smtp/client/failure.js';

/** How long a dead server is not dialled again. */
const deadMs = 120_000;
const maxRemembered = 10_000;
/** Number of different messages that must stall before a server counts as dead. */
const othersStalled = 2;

/** The caller. */
export interface HostCaller {
  readonly uid: string;
  /** An operator demands a call: only results of other such calls count. */
  readonly asked: boolean;
  /** The mail is about to expire: it is returned unless the server accepts it now. */
  readonly last: boolean;
}

interface Found {
  readonly until: number;
  readonly failure: ClientFailure;
  readonly asked: boolean;
  /** It accepts connections, but no message. */
  readonly stalls: boolean;
}

interface Address {
  readonly address: string;
  readonly port: number;
}

/**
 * Servers that recently could not be reached, or stalled at messages: one dead server must not cost every message a
 * timeout.
 */
export class DeadHosts {
  readonly #clock: Clock;
  readonly #dead = new Map<string, Found>();
  /** The last stalled messages of each server since its last reply to one. */
  readonly #stalled = new Map<string, readonly string[]>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Why it is not dialled. */
  get(server: Address, { asked, last }: HostCaller): ClientFailure | undefined {
    const found = this.#dead.get(key(server));
    if (found === undefined || (asked && !found.asked) || (last && found.stalls)) return undefined;
    if (found.until > this.#clock.monotonic()) return found.failure;
    this.#dead.delete(key(server));
    return undefined;
  }

  /** It could not be reached. */
  unreached(server: Address, failure: ClientFailure, { asked }: HostCaller): void {
    this.#add(server, { failure, asked, stalls: false });
  }

  /**
   * It stalled or left before answering a message. True when it did so with several in a row, and is dead: a single
   * message, however often tried, may be the cause itself.
   */
  stalled(server: Address, failure: ClientFailure, { uid, asked }: HostCaller): boolean {
    const others = (this.#stalled.get(key(server)) ?? []).filter((other) => other !== uid);
    if (this.#stalled.size >= maxRemembered) this.#stalled.clear();
    this.#stalled.set(key(server), [...others, uid].slice(-othersStalled));
    if (others.length < othersStalled) return false;
    this.#add(server, { failure: inARow(failure), asked, stalls: true });
    return true;
  }

  /** It accepts connections, which says nothing about messages. */
  spoke(server: Address): void {
    if (this.#dead.get(key(server))?.stalls === false) this.#dead.delete(key(server));
  }

  /** It answered a message, or counts as working. */
  remove(server: Address): void {
    if (this.#dead.size > 0) this.#dead.delete(key(server));
    if (this.#stalled.size > 0) this.#stalled.delete(key(server));
  }

  forget(): void {
    this.#dead.clear();
    this.#stalled.clear();
  }

  #add(server: Address, found: Omit<Found, 'until'>): void {
    if (this.#dead.size >= maxRemembered) this.#dead.clear();
    this.#dead.set(key(server), { ...found, until: this.#clock.monotonic() + deadMs });
  }
}

const key = ({ address, port }: Address): string => `${address} ${port}`;

/** As reported for a message that was not sent. */
function inARow({ kind, step, code, status, text }: ClientFailure): ClientFailure {
  return clientFailure({ kind, step, code, status, text: `${text}, at three messages in a row` });
}
