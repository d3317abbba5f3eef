import { targets } from '../../../core/contracts/targets.js';
import type { Clock } from '../../../core/clock.js';
import type { Hook, StageInput } from '../../../core/pipeline/hook.js';
import type { Transaction } from '../../../core/pipeline/transaction.js';
import type { LiveTransactions } from '../live-transaction.js';
import { rcptVerdict, type UpstreamRegistry } from '../upstream-target.js';
import type { UpstreamCounts } from '../upstream-counts.js';
import { defer, type Hop, next, reject, route, type Verdict } from '../../../core/pipeline/verdict.js';
import { candidateOf, type ProxyRule, type RuleBook } from './rule.js';

export const proxyTarget = 'proxy';

export interface ProxyHookInput {
  readonly book: () => RuleBook;
  readonly upstreams: UpstreamRegistry;
  readonly live: LiveTransactions;
  readonly counts: UpstreamCounts;
  /** True when a queue can accept mail that cannot be sent at once. */
  readonly hasQueue: boolean;
  readonly clock: Clock;
}

type Asked = StageInput['rcptTo'];

/** Asks the server of the matching rule about a recipient, and passes its reply to the client. */
export function proxyHook(input: ProxyHookInput): Hook<'rcptTo'> {
  return (asked) => {
    const { transaction, address } = asked;
    const rule = input.book().find(candidateOf(transaction, address));
    const first = firstRule(input.book(), transaction);
    if (rule === undefined) return first === undefined ? next() : forOthers(input, first, asked);
    const isSecond = first !== undefined && first.name !== rule.name;
    if (isSecond && (rule.settings.split === 'defer' || !input.hasQueue)) {
      return defer(450, '4.5.3', 'Send this recipient in a message of its own');
    }
    return ask(input, rule, asked, isSecond);
  };
}

/** The rule whose server has accepted a recipient that no later hook has refused. */
function firstRule(book: RuleBook, { recipients }: Transaction): ProxyRule | undefined {
  const hop = recipients.find((recipient) => recipient.hop?.target === proxyTarget)?.hop;
  return hop && book.byName(hop.destination);
}

function forOthers(input: ProxyHookInput, first: ProxyRule, asked: Asked): Verdict | Promise<Verdict> {
  const { recipients } = first.settings;
  if (recipients === 'reject') return reject(550, '5.7.1', 'Not in one message with the recipients before');
  return recipients === 'accept' ? ask(input, first, asked, false) : next();
}

function ask(input: ProxyHookInput, rule: ProxyRule, asked: Asked, isSecond: boolean): Verdict | Promise<Verdict> {
  const { transaction } = asked;
  const hop: Hop = { target: proxyTarget, destination: rule.name };
  const way: Hop = isSecond ? { target: targets.relay, destination: `target:${proxyTarget}`, data: { hop } } : hop;
  const upstream = input.upstreams.get(rule.name);
  if (upstream === undefined) return defer(451, '4.4.4', 'This rule has no servers');
  if (transaction.session.dryRun === true) return route(way);
  const live = input.live.at(transaction, rule.name, upstream);
  const { counts, clock } = input;
  return rcptVerdict(live.rcpt(asked.address, asked.dsn), way, clock, (answer, ms) =>
    counts.answered(rule.name, answer === 'accepted' && isSecond ? 'spooled' : answer, ms),
  );
}
