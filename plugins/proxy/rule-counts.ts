import type { PluginContext } from '../../core/plugin.js';
import type { Handed } from '../../core/smtp/upstream/upstream-target.js';
import type { UpstreamShelf } from '../../core/smtp/upstream/upstream-shelf.js';

/** Since the start of the server. */
export interface RuleCount {
  /** Recipients. */
  readonly matched: number;
  readonly accepted: number;
  readonly refused: number;
  readonly deferred: number;
  /** Accepted ones that go through the queue. */
  readonly spooled: number;
  readonly messages: number;
  readonly bytes: number;
}

type Answer = 'accepted' | 'refused' | 'deferred' | 'spooled';

const none: RuleCount = { matched: 0, accepted: 0, refused: 0, deferred: 0, spooled: 0, messages: 0, bytes: 0 };
const buckets = [0.005, 0.02, 0.1, 0.5, 2, 10, 60];
const states = { closed: 0, 'half-open': 1, open: 2 } as const;

/** Counts for each rule, for the page and as metrics. */
export class RuleCounts {
  readonly #counts = new Map<string, RuleCount>();
  readonly #metrics: ReturnType<typeof metricsOf>;

  constructor(metrics: PluginContext['metrics'], shelf: UpstreamShelf, rules: () => readonly string[]) {
    this.#metrics = metricsOf(metrics, shelf, rules);
  }

  of(rule: string): RuleCount {
    return this.#counts.get(rule) ?? none;
  }

  /** A recipient was answered. @param ms how long that took */
  answered(rule: string, answer: Answer, ms: number): void {
    const before = this.of(rule);
    const counted: Answer[] = answer === 'spooled' ? ['accepted', 'spooled'] : [answer];
    const change = Object.fromEntries(counted.map((key) => [key, before[key] + 1]));
    this.#counts.set(rule, { ...before, matched: before.matched + 1, ...change });
    this.#metrics.recipients.inc({ rule, result: answer });
    this.#metrics.seconds.observe({ rule, step: 'rcpt' }, ms / 1000);
  }

  handed({ destination: rule, outcomes, bytes, ms }: Handed): void {
    const before = this.of(rule);
    const isTaken = outcomes.some(({ outcome }) => outcome === 'delivered');
    const result = isTaken ? 'delivered' : (outcomes[0]?.outcome ?? 'deferred');
    if (isTaken) {
      this.#counts.set(rule, { ...before, messages: before.messages + 1, bytes: before.bytes + bytes });
      this.#metrics.bytes.inc({ rule }, bytes);
    }
    this.#metrics.messages.inc({ rule, result });
    this.#metrics.seconds.observe({ rule, step: 'message' }, ms / 1000);
  }
}

function metricsOf(metrics: PluginContext['metrics'], shelf: UpstreamShelf, rules: () => readonly string[]) {
  metrics.gauge(
    'proxy_breaker_state',
    'Servers of proxy rules: 0 is called, 1 is tried again, 2 is passed over.',
    ['rule', 'host'],
    (gauge) => {
      gauge.reset();
      for (const rule of rules()) {
        for (const { host, port, state } of shelf.get(rule)?.states() ?? []) {
          gauge.set({ rule, host: `${host}:${port}` }, states[state]);
        }
      }
    },
  );
  return {
    recipients: metrics.counter('proxy_recipients_total', 'Recipients that a proxy rule has matched.', [
      'rule',
      'result',
    ]),
    messages: metrics.counter('proxy_messages_total', 'Messages that were handed to servers of proxy rules.', [
      'rule',
      'result',
    ]),
    bytes: metrics.counter('proxy_bytes_total', 'Bytes of messages that servers of proxy rules have taken.', ['rule']),
    seconds: metrics.histogram('proxy_seconds', 'Time of servers of proxy rules.', buckets, ['rule', 'step']),
  };
}
