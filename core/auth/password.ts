import { AsyncLocalStorage } from 'node:async_hooks';
import { randomBytes, scrypt, type ScryptOptions, timingSafeEqual } from 'node:crypto';
import { clientNetworks } from '../net/ip-address.js';
import { FairQueue } from './fair-queue.js';

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
const dummySalt = randomBytes(saltBytes);

/** Hashes that `work` asks for count for the client at this address. */
export function forClient<T>(protocol: 'http' | 'smtp', address: string, work: () => Promise<T>): Promise<T> {
  return client.run([protocol, ...clientNetworks(address)], work);
}

/** A hash that is asked for now waits for nobody. */
export const canHashNow = (): boolean => queue.idle;

function queued<T>(work: () => Promise<T>): Promise<T> {
  return queue.run(client.getStore() ?? ['local'], work);
}

/** Throws the problem `unavailable` when too many others wait. */
export async function hashPassword(password: string): Promise<string> {
  const salt = randomBytes(saltBytes);
  const hash = await queued(() => derive(password, salt, hashBytes, cost));
  return ['scrypt', cost.N, cost.r, cost.p, salt.toString('base64url'), hash.toString('base64url')].join('$');
}

/** A string that is no hash of ours matches nothing, and takes as long. Throws `unavailable` when too many others wait. */
export async function verifyPassword(password: string, stored: string): Promise<boolean> {
  const parsed = parseHash(stored);
  if (parsed === undefined) return verifyUnknownUser(password);
  const given = await queued(() => derive(password, parsed.salt, parsed.hash.length, parsed));
  return timingSafeEqual(given, parsed.hash);
}

/** Does the work of a verification for a user that is not there, so that the time does not tell. */
export async function verifyUnknownUser(password: string): Promise<false> {
  await queued(() => derive(password, dummySalt, hashBytes, cost));
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

/**
 * What a new password must be, after NIST SP 800-63B §3.1.1: long enough, and not the first thing that somebody would try.
 * No rules of composition and no expiry: they make people choose worse.
 */
export const minPasswordCharacters = 10;
/** Characters; far above what people type, far below what costs us something. */
export const maxPasswordCharacters = 256;

/** What is left of the lists of common passwords when everything short, repeated or in sequence is out. */
const common = new Set(
  (
    'password password1 password12 password123 passwordpassword passw0rd123 p@ssw0rd123 qwertyuiop qwerty12345 qwerty123456 ' +
    'iloveyou12 iloveyou123 letmein123 letmein1234 welcome123 welcome1234 admin12345 administrator changeme123 changeme1234 ' +
    'football123 baseball123 sunshine123 princess123 superman123 dragon12345 monkey12345 trustno1trustno1 1q2w3e4r5t ' +
    '1qaz2wsx3edc q1w2e3r4t5 zaq12wsxcde3 asdfghjkl123 postmaster postmaster1 postmaster123'
  ).split(' '),
);

const sequences = ['01234567890123456789', 'abcdefghijklmnopqrstuvwxyz', 'qwertyuiopasdfghjklzxcvbnm'];

/** What is wrong with a new password, or undefined; the sentence never quotes it. */
export function passwordComplaint(given: string, username: string): string | undefined {
  const password = given.normalize('NFC');
  const length = Array.from(password).length;
  if (length < minPasswordCharacters) return `The password must have at least ${minPasswordCharacters} characters.`;
  if (length > maxPasswordCharacters) return `The password may have at most ${maxPasswordCharacters} characters.`;
  if (/\p{Cc}/u.test(password)) return 'The password must not hold control characters.';
  if (isGuessable(password.toLowerCase(), username)) {
    return 'This password is among the first that somebody would try. Choose another, for example four words.';
  }
  return undefined;
}

function isGuessable(password: string, username: string): boolean {
  const [local = ''] = username.split('@');
  if (password === username || password === local || password === `${local}${local}`) return true;
  if (common.has(password) || isRepetition(password)) return true;
  return sequences.some((sequence) => sequence.includes(password) || reversed(sequence).includes(password));
}

/** The same one to three characters over and over. */
function isRepetition(password: string): boolean {
  return /^(.{1,3}?)\1+$/su.test(password);
}

const reversed = (text: string): string => Array.from(text).toReversed().join('');
