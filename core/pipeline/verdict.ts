import type { Address } from '../mime/address.js';
import type { Reply } from '../smtp/protocol/replies.js';

/** Where a recipient goes: a delivery target by name, and the destination in it (recipients of one destination share a delivery). */
export interface Hop {
  /** Name given to `smtp.deliverTo`: `mailbox`, `lmtp`, `proxy`, `relay`. */
  readonly target: string;
  readonly destination: string;
  /** For the target alone. */
  readonly data?: unknown;
}

/** What an authenticated session is known as. */
export interface AuthenticatedUser {
  /** `local@domain` of the user. */
  readonly username: string;
}

export type Change =
  | { readonly change: 'add-header'; readonly name: string; readonly value: string }
  | { readonly change: 'remove-header'; readonly name: string }
  | { readonly change: 'add-recipient'; readonly address: Address; readonly hop?: Hop }
  | { readonly change: 'remove-recipient'; readonly address: Address };

interface Branded {
  readonly postern: 'verdict';
}

/** What a deciding hook answers. An answer that is not one of these counts as a failure: `451 4.3.0`, never "continue". */
export type Verdict = Branded &
  (
    | { readonly kind: 'next' }
    | { readonly kind: 'accept'; readonly user?: AuthenticatedUser }
    | { readonly kind: 'reject'; readonly code: number; readonly status: string; readonly text: string }
    | { readonly kind: 'defer'; readonly code: number; readonly status: string; readonly text: string }
    | { readonly kind: 'discard'; readonly reason: string }
    | { readonly kind: 'hold'; readonly reason: string }
    | { readonly kind: 'route'; readonly hop: Hop; readonly reply?: Reply }
    | { readonly kind: 'change'; readonly changes: readonly Change[] }
  );

const NEXT: Verdict = Object.freeze({ postern: 'verdict', kind: 'next' });
const ACCEPT: Verdict = Object.freeze({ postern: 'verdict', kind: 'accept' });

/** No opinion: the next hook decides. */
export const next = (): Verdict => NEXT;
/** Yes, and the rest of this phase is not asked. In stage `auth` it names who has signed in. */
export const accept = (user?: AuthenticatedUser): Verdict =>
  user === undefined ? ACCEPT : { postern: 'verdict', kind: 'accept', user };
/** No, for good (5yz). `status` is the enhanced status code (RFC 3463), `5.y.z`. */
export const reject = (code: number, status: string, text: string): Verdict => ({
  postern: 'verdict',
  kind: 'reject',
  code,
  status,
  text,
});
/** Not now (4yz). `status` is the enhanced status code (RFC 3463), `4.y.z`. */
export const defer = (code: number, status: string, text: string): Verdict => ({
  postern: 'verdict',
  kind: 'defer',
  code,
  status,
  text,
});
/** Answer yes and keep nothing; the reason is logged. Stages `rcptTo`, `message` and `deliver`. */
export const discard = (reason: string): Verdict => ({ postern: 'verdict', kind: 'discard', reason });
/**
 * Answer yes and keep the message for an operator. Stages `rcptTo`, `message` and `deliver`. Needs a target named `hold`;
 * without one the answer is 4yz.
 */
export const hold = (reason: string): Verdict => ({ postern: 'verdict', kind: 'hold', reason });
/** This recipient is mine: it goes to `hop`. Stage `rcptTo`. `reply` (2yz) is what the client gets in place of the usual yes. */
export const route = (hop: Hop, reply?: Reply): Verdict => ({
  postern: 'verdict',
  kind: 'route',
  hop,
  ...(reply !== undefined && { reply }),
});
/** Go on, with these changes to the message or its recipients. Stage `message`. */
export const change = (...changes: readonly Change[]): Verdict => ({ postern: 'verdict', kind: 'change', changes });

export function isVerdict(value: unknown): value is Verdict {
  return typeof value === 'object' && value !== null && (value as Partial<Branded>).postern === 'verdict';
}
