import { scryptSync } from 'node:crypto';

/** A stored password whose cost is a toy, so that tests need not wait for the real one. */
export function cheapHash(password: string, cost = '1024$8$1'): string {
  const salt = Buffer.from('0123456789abcdef');
  const [N, r, p] = cost.split('$').map(Number);
  const hash = scryptSync(password, salt, 32, { N, r, p });
  return `scrypt$${cost}$${salt.toString('base64url')}$${hash.toString('base64url')}`;
}
