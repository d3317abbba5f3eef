/**
 * What a new password must be, after NIST SP 800-63B §3.1.1: long enough, and not the first thing that somebody would try.
 * No rules of composition and no expiry: they make people choose worse.
 */
export const shortestPassword = 10;
/** Characters; far above what people type, far below what costs us something. */
export const longestPassword = 256;

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
  if (length < shortestPassword) return `The password must have at least ${shortestPassword} characters.`;
  if (length > longestPassword) return `The password may have at most ${longestPassword} characters.`;
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
