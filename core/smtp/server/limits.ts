import { AttemptLine } from '../../auth/attempt-line.js';
import type { Clock } from '../../clock.js';
import { clientKey, isLoopbackAddress } from '../../net/ip-address.js';
import { forClient } from '../../auth/password.js';
import { connectionShares } from '../../host/process-limits.js';
import { AttemptLimiter } from '../../auth/rate.js';
import type { SmtpLimits } from './limit-options.js';

export type ClientLimitSettings = Pick<
  SmtpLimits,
  'clients' | 'clientsPerAddress' | 'authFailuresPerAddress' | 'authWindowSeconds' | 'exemptLoopback'
>;

/** A session that counts. */
export interface ClientPlace {
  readonly place: 'given';
  /** The session has ended. Idempotent. */
  leave(): void;
}

/** Why a connection is one too many: of all sessions, or of those of its address. */
export interface NoClientPlace {
  readonly place: 'all' | 'address';
}

const maxAddresses = 100_000;

/** What clients use of this server at once and within a while, over all listeners; IPv6 clients are counted per /64. */
export class ClientLimits {
  readonly #clock: Clock;
  #settings: ClientLimitSettings;
  #signIns: AttemptLimiter;
  readonly #signInLine = new AttemptLine(() => this.#signIns);
  /** What the limit of open files allows. */
  readonly #share = connectionShares().smtp;
  #sessions = 0;
  readonly #perAddress = new Map<string, number>();

  constructor(settings: ClientLimitSettings, clock: Clock) {
    this.#clock = clock;
    this.#settings = settings;
    this.#signIns = this.#newSignIns();
  }

  /** Sessions at present, exempt ones included. */
  get sessions(): number {
    return this.#sessions;
  }

  /** Sessions stay; failed sign-ins are counted anew when their limit or window is another one. */
  reconfigure(settings: ClientLimitSettings): void {
    const { authFailuresPerAddress, authWindowSeconds } = this.#settings;
    this.#settings = settings;
    if (
      settings.authFailuresPerAddress !== authFailuresPerAddress ||
      settings.authWindowSeconds !== authWindowSeconds
    ) {
      this.#signIns = this.#newSignIns();
    }
  }

  /** Loopback clients are outside the limits per address, unless the configuration says otherwise. */
  isExempt(ip: string): boolean {
    return this.#settings.exemptLoopback && isLoopbackAddress(ip);
  }

  /** Counts a session until it leaves, or says that there is no place for it. */
  enter(ip: string): ClientPlace | NoClientPlace {
    const key = clientKey(ip);
    const ofAddress = this.#perAddress.get(key) ?? 0;
    if (this.#sessions >= Math.min(this.#settings.clients, this.#share)) return { place: 'all' };
    if (!this.isExempt(ip) && ofAddress >= this.#settings.clientsPerAddress) return { place: 'address' };
    this.#sessions += 1;
    this.#perAddress.set(key, ofAddress + 1);
    let left = false;
    return {
      place: 'given',
      leave: () => {
        if (!left) this.#leave(key);
        left = true;
      },
    };
  }

  /** Seconds until the address may try to sign in again; 0 is now. */
  retryAfter(ip: string): number {
    return this.isExempt(ip) ? 0 : this.#signIns.retryAfter(clientKey(ip));
  }

  /** Has a sign-in from that address tried, after others where too many might fail; undefined when the address must wait. */
  attempt<T>(ip: string, attempt: () => Promise<T>): Promise<T | undefined> {
    const work = (): Promise<T> => forClient('smtp', ip, attempt);
    return this.isExempt(ip) ? work() : this.#signInLine.make(clientKey(ip), work);
  }

  /** A sign-in from that address has failed. True when it must wait now; that is said once in each window. */
  record(ip: string): boolean {
    return !this.isExempt(ip) && this.#signIns.record(clientKey(ip));
  }

  #leave(key: string): void {
    this.#sessions -= 1;
    const others = (this.#perAddress.get(key) ?? 1) - 1;
    if (others > 0) this.#perAddress.set(key, others);
    else this.#perAddress.delete(key);
  }

  #newSignIns(): AttemptLimiter {
    return new AttemptLimiter({
      limit: this.#settings.authFailuresPerAddress,
      windowSeconds: this.#settings.authWindowSeconds,
      maxKeys: maxAddresses,
      clock: this.#clock,
    });
  }
}
