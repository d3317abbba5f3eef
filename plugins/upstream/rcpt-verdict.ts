import type { Clock } from '../../core/clock.js';
import { isClientFailure, type ClientFailure } from '../../core/smtp/client/failure.js';
import type { Reply } from '../../core/smtp/protocol/replies.js';
import { defer, type Hop, reject, route, type Verdict } from '../../core/pipeline/verdict.js';
import { refusalOf } from './answer.js';

export interface RcptGround {
  readonly clock: Clock;
  /** Told how it went, and how long it took. */
  readonly answered: (answer: 'accepted' | 'refused' | 'deferred', ms: number) => void;
}

/** What a hook of `rcptTo` answers when a server was asked: that server's words, and the hop for a yes. */
export async function rcptVerdict(
  asked: Promise<Reply | ClientFailure>,
  hop: Hop,
  { clock, answered }: RcptGround,
): Promise<Verdict> {
  const began = clock.monotonic();
  const said = await asked;
  const ms = clock.monotonic() - began;
  if (!isClientFailure(said) && said.code < 300) {
    answered('accepted', ms);
    return route(hop, said);
  }
  const { code, status, text } = refusalOf(said);
  answered(code < 500 ? 'deferred' : 'refused', ms);
  return code < 500 ? defer(code, status, text) : reject(code, status, text);
}
