import type { Clock } from '../../core/clock.js';
import { isClientFailure } from '../../core/smtp/client/failure.js';
import type { Hook, StageInput } from '../../core/smtp/hook.js';
import type { Transaction } from '../../core/smtp/transaction.js';
import { refusalOf } from '../../core/smtp/upstream/answer.js';
import type { LiveTransaction } from '../../core/smtp/upstream/live-transaction.js';
import type { LiveTransactions } from '../../core/smtp/upstream/live-transactions.js';
import type { UpstreamShelf } from '../../core/smtp/upstream/upstream-shelf.js';
import { defer, next, reject, route, type Hop, type Verdict } from '../../core/smtp/verdict.js';
import type { ProxyRule } from './rule.js';
import { candidateOf } from './rule.js';
import type { RuleBook } from './rule-book.js';
import type { RuleCounts } from './rule-counts.js';

export const proxyTarget = 'proxy';

export interface ProxyHookInput {
  readonly book: () => RuleBook;
  readonly shelf: UpstreamShelf;
  readonly live: LiveTransactions;
  readonly counts: RuleCounts;
  /** Whether there is a queue that takes what cannot be sent at once. */
  readonly hasQueue: boolean;
  readonly clock: Clock;
}

type Asked = StageInput['rcptTo'];

/** A recipient that a rule matches is asked for at the server of the rule, and that one's answer is the client's. */
export function proxyHook(input: ProxyHookInput): Hook<'rcptTo'> {
  return (asked) => {
    const { transaction, address } = asked;
    const rule = input.book().find(candidateOf(transaction, address));
    const first = firstRule(input, transaction);
    if (rule === undefined) return first === undefined ? next() : forOthers(input, first, asked);
    const isSecond = first !== undefined && first.name !== rule.name;
    if (isSecond && (rule.settings.split === 'defer' || !input.hasQueue)) {
      return defer(450, '4.5.3', 'Send this recipient in a message of its own');
    }
    return ask(input, rule, asked, isSecond);
  };
}

/** The rule that has the first recipient of the transaction. */
function firstRule({ book, live }: ProxyHookInput, transaction: Transaction): ProxyRule | undefined {
  const first = live.first(transaction);
  return first === undefined ? undefined : book().byName(first);
}

function forOthers(input: ProxyHookInput, first: ProxyRule, asked: Asked): Verdict | Promise<Verdict> {
  const { recipients } = first.settings;
  if (recipients === 'reject') return reject(550, '5.7.1', 'Not in one message with the recipients before');
  return recipients === 'accept' ? ask(input, first, asked, false) : next();
}

function ask(input: ProxyHookInput, rule: ProxyRule, asked: Asked, isSecond: boolean): Verdict | Promise<Verdict> {
  const { transaction } = asked;
  const hop: Hop = { target: proxyTarget, destination: rule.name };
  const way: Hop = isSecond ? { target: 'relay', destination: `target:${proxyTarget}`, data: { hop } } : hop;
  const upstream = input.shelf.get(rule.name);
  if (upstream === undefined) return defer(451, '4.4.4', 'This rule has no servers');
  const live = input.live.at(transaction, rule.name, upstream);
  const claim = (): void => input.live.claim(transaction, rule.name);
  if (transaction.session.dryRun !== true) return answer(input, rule, live.rcpt(asked.address, asked.dsn), way, claim);
  claim();
  return route(way);
}

async function answer(
  { counts, clock }: ProxyHookInput,
  { name }: ProxyRule,
  asked: ReturnType<LiveTransaction['rcpt']>,
  way: Hop,
  claim: () => void,
): Promise<Verdict> {
  const began = clock.monotonic();
  const said = await asked;
  const ms = clock.monotonic() - began;
  if (!isClientFailure(said) && said.code < 300) {
    counts.answered(name, way.target === proxyTarget ? 'accepted' : 'spooled', ms);
    claim();
    return route(way, said);
  }
  const { code, status, text } = refusalOf(said);
  counts.answered(name, code < 500 ? 'deferred' : 'refused', ms);
  return code < 500 ? defer(code, status, text) : reject(code, status, text);
}
