import { AsyncLocalStorage } from 'node:async_hooks';
import { randomBytes, scrypt, type ScryptOptions, timingSafeEqual } from 'node:crypto';
import { FairQueue, type TaskPath } from '../fair-queue.js';
import { clientPath } from '../turns.js';

/**
 * Passwords are stored as `scrypt$N$r$p$salt$hash` (RFC 7914), salt and hash in base64url without padding.
 *
 * One hash takes 32 MiB and some tens of milliseconds per lane on the thread pool, so few run at once. Clients take
 * turns, and one with too many pending attempts gets a temporary refusal: guessing does not block the sign-ins of
 * others.
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

/** Bounds on the parameters of a stored hash: at most 256 MiB and some seconds. */
const bounds = { minN: 2 ** 10, maxN: 2 ** 20, maxR: 32, maxP: 16, maxMemory: 256 * 2 ** 20 };

/** The client whose password is checked, so that callers of `verifyPassword` need not pass it on. */
const client = new AsyncLocalStorage<TaskPath>();
const queue = new FairQueue({
  concurrency: 2,
  maxWaitingPerClient: 32,
  maxWaiting: 256,
  retryAfterSeconds: 5,
  detail: 'Too many sign-ins are being checked. Try again in a moment.',
});

/** For the hash of an unknown user. */
const dummySalt = randomBytes(saltBytes);

let attributed = 0;

/** Attributes the hashes in `work` to the client at this address. */
export async function forClient<T>(protocol: 'http' | 'smtp', address: string, work: () => Promise<T>): Promise<T> {
  attributed += 1;
  try {
    return await client.run([protocol, ...clientPath(address)], work);
  } finally {
    attributed -= 1;
    // While it is enabled, every promise of the process costs more.
    if (attributed === 0) client.disable();
  }
}

/** Whether a hash would run at once. */
export const canHashNow = (): boolean => queue.idle;

function queued<T>(work: () => Promise<T>): Promise<T> {
  return queue.run(client.getStore() ?? ['local'], work);
}

/** @throws Problem `unavailable` when too many tasks wait */
export async function hashPassword(password: string): Promise<string> {
  const salt = randomBytes(saltBytes);
  const hash = await queued(() => derive(password, salt, hashBytes, cost));
  return ['scrypt', cost.N, cost.r, cost.p, salt.toString('base64url'), hash.toString('base64url')].join('$');
}

/**
 * An invalid stored hash matches nothing and takes as long.
 *
 * @throws Problem `unavailable` when too many tasks wait
 */
export async function verifyPassword(password: string, stored: string): Promise<boolean> {
  const parsed = parseHash(stored);
  if (parsed === undefined) return verifyUnknownUser(password);
  const given = await queued(() => derive(password, parsed.salt, parsed.hash.length, parsed));
  return timingSafeEqual(given, parsed.hash);
}

/** Takes as long as a verification, so that the time does not tell whether a user exists. */
export async function verifyUnknownUser(password: string): Promise<false> {
  await queued(() => derive(password, dummySalt, hashBytes, cost));
  return false;
}

/** Whether `verifyPassword` can use the string; for schemas. */
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
 * Rules for new passwords after NIST SP 800-63B §3.1.1: long enough and not common. No rules of composition and no
 * expiry: they lead to worse passwords.
 */
export const minPasswordCharacters = 10;
/** Bounds the cost of hashing. */
export const maxPasswordCharacters = 256;

/** Common passwords that the other rules do not catch. */
const common = new Set(
  (
    'password password1 password12 password123 passwordpassword passw0rd123 p@ssw0rd123 qwertyuiop qwerty12345 qwerty123456 ' +
    'iloveyou12 iloveyou123 letmein123 letmein1234 welcome123 welcome1234 admin12345 administrator changeme123 changeme1234 ' +
    'football123 baseball123 sunshine123 princess123 superman123 dragon12345 monkey12345 trustno1trustno1 1q2w3e4r5t ' +
    '1qaz2wsx3edc q1w2e3r4t5 zaq12wsxcde3 asdfghjkl123 postmaster postmaster1 postmaster123'
  ).split(' '),
);

const sequences = ['01234567890123456789', 'abcdefghijklmnopqrstuvwxyz', 'qwertyuiopasdfghjklzxcvbnm'];

/** Why a new password is refused, or undefined; the sentence never quotes it. */
export function passwordComplaint(given: string, username: string): string | undefined {
  const password = given.normalize('NFC');
  const length = Array.from(password).length;
  if (length < minPasswordCharacters) return `The password must have at least ${minPasswordCharacters} characters.`;
  if (length > maxPasswordCharacters) return `The password may have at most ${maxPasswordCharacters} characters.`;
  if (/\p{Cc}/u.test(password)) return 'The password must not hold control characters.';
  if (isGuessable(password.toLowerCase(), username)) {
    return 'This password is easy to guess. Choose another, for example four words.';
  }
  return undefined;
}

function isGuessable(password: string, username: string): boolean {
  const [local = ''] = username.split('@');
  if (password === username || password === local || password === `${local}${local}`) return true;
  if (common.has(password) || isRepetition(password)) return true;
  return sequences.some((sequence) => sequence.includes(password) || reversed(sequence).includes(password));
}

/** One to three characters repeated. */
function isRepetition(password: string): boolean {
  return /^(.{1,3}?)\1+$/su.test(password);
}

const reversed = (text: string): string => Array.from(text).toReversed().join('');
