import type { Decision } from '../../pipeline/chain.js';
import type { Reply } from '../protocol/reply.js';

/** The answer to one command. A promise only where a hook answers later. */
export type Answer = Reply | Promise<Reply>;

/** What the connection does behind the reply. */
export type After = 'close' | 'tls' | 'data';

export function whenDecided(decision: Decision | Promise<Decision>, then: (decision: Decision) => Answer): Answer {
  return decision instanceof Promise ? decision.then(then) : then(decision);
}
