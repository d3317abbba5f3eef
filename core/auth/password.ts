import { AsyncLocalStorage } from 'node:async_hooks';
import { randomBytes, scrypt, timingSafeEqual, type ScryptOptions } from 'node:crypto';
import { FairQueue } from './fair-queue.js';
import { clientNetworks } from '../net/ip-address.js';

/**
 * Passwords are kept as `scrypt$N$r$p$salt$hash` (RFC 7914), salt and hash in base64url without padding.
 *
 * One hash takes 32 MiB and some tens of milliseconds per lane on a thread of the pool, so few run at once. Clients take
 * turns, and one with too many guesses at once is told to come back: guessing does not stop the sign-ins of others.
 */
interface Cost {
  readonly N: number;
  readonly r: number;
  readonly p: number;
}

interface StoredHash extends Cost {
  readonly salt: Buffer;
  readonly hash: Buffer;
}

const cost: Cost = { N: 2 ** 15, r: 8, p: 3 };
const saltBytes = 16;
const hashBytes = 32;

/** Bounds on what a stored string may ask of us: never weaker than a toy, never more than 256 MiB or some seconds. */
const bounds = { minN: 2 ** 10, maxN: 2 ** 20, maxR: 32, maxP: 16, maxMemory: 256 * 2 ** 20 };

/** Whose password is checked, so that callers of `verifyPassword` need not pass it on. */
const client = new AsyncLocalStorage<readonly [protocol: string, ...networks: string[]]>();
const queue = new FairQueue({ atOnce: 2, maxWaitingPerClient: 32, maxWaiting: 256, retryAfterSeconds: 5 });

/** Salt of the hash that nobody has. */
const nobody = randomBytes(saltBytes);

/** Hashes that `work` asks for count for the client at this address. */
export function onBehalfOf<T>(protocol: 'http' | 'smtp', address: string, work: () => Promise<T>): Promise<T> {
  return client.run([protocol, ...clientNetworks(address)], work);
}

/** A hash that is asked for now waits for nobody. */
export const canHashNow = (): boolean => queue.idle;

function inTurn<T>(work: () => Promise<T>): Promise<T> {
  return queue.run(client.getStore() ?? ['local'], work);
}

/** Throws the problem `unavailable` when too many others wait. */
export async function hashPassword(password: string): Promise<string> {
  const salt = randomBytes(saltBytes);
  const hash = await inTurn(() => derive(password, salt, hashBytes, cost));
  return ['scrypt', cost.N, cost.r, cost.p, salt.toString('base64url'), hash.toString('base64url')].join('$');
}

/** A string that is no hash of ours matches nothing, and takes as long. Throws `unavailable` when too many others wait. */
export async function verifyPassword(password: string, stored: string): Promise<boolean> {
  const parsed = parseHash(stored);
  if (parsed === undefined) return verifyNobody(password);
  const given = await inTurn(() => derive(password, parsed.salt, parsed.hash.length, parsed));
  return timingSafeEqual(given, parsed.hash);
}

/** Does the work of a verification for a user that is not there, so that the time does not tell. */
export async function verifyNobody(password: string): Promise<false> {
  await inTurn(() => derive(password, nobody, hashBytes, cost));
  return false;
}

/** For schemas: the string is a hash that `verifyPassword` can work with. */
export function isPasswordHash(text: string): boolean {
  return parseHash(text) !== undefined;
}

const shape = /^scrypt\$(\d{1,7})\$(\d{1,2})\$(\d{1,2})\$([\w-]{11,86})\$([\w-]{22,86})$/;

function parseHash(text: string): StoredHash | undefined {
  const [, N, r, p, salt, hash] = shape.exec(text) ?? [];
  if (salt === undefined || hash === undefined) return undefined;
  const asked: Cost = { N: Number(N), r: Number(r), p: Number(p) };
  if (!isBearable(asked)) return undefined;
  return { ...asked, salt: Buffer.from(salt, 'base64url'), hash: Buffer.from(hash, 'base64url') };
}

function isBearable({ N, r, p }: Cost): boolean {
  const isPowerOfTwo = (N & (N - 1)) === 0;
  if (!isPowerOfTwo || N < bounds.minN || N > bounds.maxN) return false;
  return r >= 1 && r <= bounds.maxR && p >= 1 && p <= bounds.maxP && 128 * N * r <= bounds.maxMemory;
}

/** Passwords are compared in Unicode normal form C (RFC 8265 §4.2), because keyboards differ in how they compose. */
function derive(password: string, salt: Buffer, length: number, { N, r, p }: Cost): Promise<Buffer> {
  const options: ScryptOptions = { N, r, p, maxmem: 128 * N * r + 128 * r * p + 2 ** 20 };
  return new Promise((resolve, reject) => {
    scrypt(password.normalize('NFC'), salt, length, options, (error, key) => {
      if (error === null) resolve(key);
      else reject(error);
    });
  });
}
