import type { Clock } from '../../../core/clock.js';
import { clientFailure, type ClientFailure } from '../../../core/smtp/client/failure.js';

/** So long a server that did not take a call, or no message, is not called again. */
const deadMs = 120_000;
const maxRemembered = 10_000;
/** Of so many other messages the end was not heard either, when one more makes a server dead. */
const othersStalled = 2;

/** Who wants to call. */
export interface Caller {
  readonly uid: string;
  /** An operator wants a call: only what another such call has found counts. */
  readonly asked: boolean;
  /** The time of the mail is over: it is returned unless the server takes it now. */
  readonly last: boolean;
}

interface Found {
  readonly until: number;
  readonly failure: ClientFailure;
  readonly asked: boolean;
  /** It takes calls, and no message. */
  readonly stalls: boolean;
}

interface Address {
  readonly address: string;
  readonly port: number;
}

/** Servers that could not be reached, or took no message, a short while ago: one dead server must not cost every message a timeout. */
export class DeadHosts {
  readonly #clock: Clock;
  readonly #dead = new Map<string, Found>();
  /** By server the last messages that it stalled at, since it has answered one. */
  readonly #stalled = new Map<string, readonly string[]>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Why it is not to be called. */
  get(server: Address, { asked, last }: Caller): ClientFailure | undefined {
    const found = this.#dead.get(key(server));
    if (found === undefined || (asked && !found.asked) || (last && found.stalls)) return undefined;
    if (found.until > this.#clock.monotonic()) return found.failure;
    this.#dead.delete(key(server));
    return undefined;
  }

  /** It could not be reached. */
  unreached(server: Address, failure: ClientFailure, { asked }: Caller): void {
    this.#add(server, { failure, asked, stalls: false });
  }

  /**
   * It was given a message, and stalled or left before it had answered. True when it did so with several in a row, and is dead: a single
   * message, however often it is tried, may be to blame itself.
   */
  stalled(server: Address, failure: ClientFailure, { uid, asked }: Caller): boolean {
    const others = (this.#stalled.get(key(server)) ?? []).filter((other) => other !== uid);
    if (this.#stalled.size >= maxRemembered) this.#stalled.clear();
    this.#stalled.set(key(server), [...others, uid].slice(-othersStalled));
    if (others.length < othersStalled) return false;
    this.#add(server, { failure: inARow(failure), asked, stalls: true });
    return true;
  }

  /** It takes calls: that says nothing of messages. */
  spoke(server: Address): void {
    if (this.#dead.get(key(server))?.stalls === false) this.#dead.delete(key(server));
  }

  /** It has answered a message, or is to be believed to. */
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

/** As it is told of a message that was not sent. */
function inARow({ kind, step, code, status, text }: ClientFailure): ClientFailure {
  return clientFailure({ kind, step, code, status, text: `${text}, at three messages in a row` });
}
