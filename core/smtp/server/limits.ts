import { z } from 'zod';
import { AttemptLimiter, ConcurrentAttempts } from '../../auth/rate.js';
import { forClient } from '../../auth/password.js';
import type { Clock } from '../../clock.js';
import type { AttemptLimits } from '../../contracts/cluster.js';
import { connectionShares } from '../../net/process-limits.js';
import { clientKey, isLoopbackAddress } from '../../net/ip-address.js';

type ClientLimitSettings = Pick<
  SmtpLimits,
  'clients' | 'clientsPerAddress' | 'authFailuresPerAddress' | 'authWindowSeconds' | 'exemptLoopback'
>;

/** A counted session. */
export interface ClientPlace {
  readonly place: 'given';
  /** The session has ended. Idempotent. */
  leave(): void;
}

/** Which limit a connection exceeds: of all sessions, or of its address. */
interface NoClientPlace {
  readonly place: 'all' | 'address';
}

const maxAddresses = 100_000;

/** Current and recent use of the server by clients, over all listeners; IPv6 clients are counted per /64. */
export class ClientLimits {
  readonly #clock: Clock;
  #settings: ClientLimitSettings;
  #signIns: AttemptLimiter;
  readonly #signInLine = new ConcurrentAttempts(() => this.#signIns);
  /** What the limit of open files allows. */
  readonly #share = connectionShares().smtp;
  #sessions = 0;
  readonly #perAddress = new Map<string, number>();

  /** @param attemptLimits learns of the limit of failed sign-ins */
  constructor(settings: ClientLimitSettings, clock: Clock, attemptLimits?: Pick<AttemptLimits, 'add'>) {
    this.#clock = clock;
    this.#settings = settings;
    this.#signIns = this.#newSignIns();
    attemptLimits?.add('smtp', () => this.#signIns);
  }

  /** Current sessions, exempt ones included. */
  get sessions(): number {
    return this.#sessions;
  }

  /** Keeps the sessions; failed sign-ins are counted anew when their limit or window changes. */
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

  /** Loopback clients are exempt from limits per address, unless configured otherwise. */
  isExempt(ip: string): boolean {
    return this.#settings.exemptLoopback && isLoopbackAddress(ip);
  }

  /** Counts a session until it leaves, or refuses it. */
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

  /** Seconds until the address may authenticate again; 0 for now. */
  retryAfter(ip: string): number {
    return this.isExempt(ip) ? 0 : this.#signIns.retryAfter(clientKey(ip));
  }

  /**
   * Runs a sign-in of that address, one after the other where too many might fail; undefined when the address must
   * wait.
   */
  attempt<T>(ip: string, attempt: () => Promise<T>): Promise<T | undefined> {
    const work = (): Promise<T> => forClient('smtp', ip, attempt);
    return this.isExempt(ip) ? work() : this.#signInLine.run(clientKey(ip), work);
  }

  /** Counts a failed sign-in. True when the address must wait now; returned once in each window. */
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

const count = (usual: number, most: number) => z.int().min(1).max(most).default(usual);

/** Bounds of everything that clients can make this server do. Times are in seconds unless named otherwise. */
export const LimitOptions = z.strictObject({
  messageBytes: count(50 * 1024 * 1024, 2 ** 40).describe(
    'Largest message, in bytes: announced by SIZE, refused with 552. A quarter more is read before the connection is cut.',
  ),
  recipients: count(1000, 1_000_000).describe('Recipients of one message; further ones get 452.'),
  transactions: count(10_000, 1_000_000).describe('Messages of one session; then 421.'),
  commandsWithoutMessage: count(200, 1_000_000).describe(
    'Commands of a session that lead to no message, beside one for each of `recipients`; the next one is 421 and the end.',
  ),
  errors: count(20, 10_000).describe('Error replies of one session; the next one is 421 and the end.'),
  clients: count(4000, 1_000_000).describe('Sessions at once, over all listeners; further ones get 421.'),
  clientsPerAddress: count(50, 1_000_000).describe('Sessions at once from one address; further ones get 421.'),
  authFailures: count(3, 1000).describe('Failed sign-ins of one session; the next one is 421 and the end.'),
  authFailuresPerAddress: count(20, 1_000_000).describe(
    'Failed sign-ins from one address within authWindowSeconds; then AUTH gets 454.',
  ),
  authWindowSeconds: count(600, 86_400).describe('How long failed sign-ins of an address are remembered.'),
  authDelaySeconds: z
    .array(z.number().min(0).max(60))
    .max(10)
    .default([1, 2, 4])
    .describe('How long the answer to the first, second, … failed sign-in of a session waits.'),
  exemptLoopback: z
    .boolean()
    .default(true)
    .describe('Leave loopback clients out of the limits per address and of the sign-in delays.'),
  commandSeconds: count(300, 3600).describe('Time for one command line to arrive whole.'),
  dataGraceSeconds: z
    .int()
    .min(0)
    .max(3600)
    .default(60)
    .describe('After this time the text of a message must have come at dataBytesPerSecond at least.'),
  dataBytesPerSecond: count(500, 1_000_000).describe('Least average rate of the text of a message, in bytes a second.'),
  tlsSeconds: count(30, 600).describe('Time for a TLS handshake.'),
  handlerSeconds: count(30, 600).describe('Time for this server to decide on a command; then 451.'),
  deliverySeconds: count(300, 3600).describe('Time for this server to take over a received message; then 451.'),
  lineBytes: count(65_536, 16 * 1024 * 1024).describe('Longest line of a message; a longer one is 554.'),
  headerFields: count(5000, 1_000_000).describe('Header fields of a message; more are 552.'),
  headerBytes: count(1024 * 1024, 64 * 1024 * 1024).describe('Size of the header of a message; more is 552.'),
  hops: count(100, 1000).describe('Received header fields of a message; more are a loop, 554.'),
});

export type SmtpLimits = z.output<typeof LimitOptions>;
