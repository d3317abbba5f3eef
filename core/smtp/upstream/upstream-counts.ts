import type { PluginContext } from '../../plugin.js';
import type { Handed } from './upstream-target.js';
import type { UpstreamShelf } from './upstream-shelf.js';

/** Since the start of the server. */
export interface UpstreamCount {
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

const none: UpstreamCount = { matched: 0, accepted: 0, refused: 0, deferred: 0, spooled: 0, messages: 0, bytes: 0 };
const buckets = [0.005, 0.02, 0.1, 0.5, 2, 10, 60];
const states = { closed: 0, 'half-open': 1, open: 2 } as const;

/** What counts are called: rules of the proxy, routes of LMTP. */
export interface CountedAs {
  /** In front of every metric: `proxy`. */
  readonly prefix: string;
  /** Label of the metrics: `rule`. */
  readonly label: 'rule' | 'route';
  readonly names: () => readonly string[];
}

/** Counts for each upstream, for the page and as metrics. */
export class UpstreamCounts {
  readonly #counts = new Map<string, UpstreamCount>();
  readonly #label: CountedAs['label'];
  readonly #metrics: ReturnType<typeof metricsOf>;

  constructor(metrics: PluginContext['metrics'], shelf: UpstreamShelf, as: CountedAs) {
    this.#label = as.label;
    this.#metrics = metricsOf(metrics, shelf, as);
  }

  of(name: string): UpstreamCount {
    return this.#counts.get(name) ?? none;
  }

  /** A recipient was answered. @param ms how long that took */
  answered(name: string, answer: Answer, ms: number): void {
    const before = this.of(name);
    const counted: Answer[] = answer === 'spooled' ? ['accepted', 'spooled'] : [answer];
    const change = Object.fromEntries(counted.map((key) => [key, before[key] + 1]));
    this.#counts.set(name, { ...before, matched: before.matched + 1, ...change });
    this.#metrics.recipients.inc(this.#labels(name, { result: answer }));
    this.#metrics.seconds.observe(this.#labels(name, { step: 'rcpt' }), ms / 1000);
  }

  handed({ destination: name, outcomes, bytes, ms }: Handed): void {
    const before = this.of(name);
    const isTaken = outcomes.some(({ outcome }) => outcome === 'delivered');
    const result = isTaken ? 'delivered' : (outcomes[0]?.outcome ?? 'deferred');
    if (isTaken) {
      this.#counts.set(name, { ...before, messages: before.messages + 1, bytes: before.bytes + bytes });
      this.#metrics.bytes.inc(this.#labels(name, {}), bytes);
    }
    this.#metrics.messages.inc(this.#labels(name, { result }));
    this.#metrics.seconds.observe(this.#labels(name, { step: 'message' }), ms / 1000);
  }

  #labels(name: string, more: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
    return { [this.#label]: name, ...more };
  }
}

function metricsOf(metrics: PluginContext['metrics'], shelf: UpstreamShelf, { prefix, label, names }: CountedAs) {
  metrics.gauge(
    `${prefix}_breaker_state`,
    `Servers of each ${label}: 0 is called, 1 is tried again, 2 is passed over.`,
    [label, 'host'],
    (gauge) => {
      gauge.reset();
      for (const name of names()) {
        for (const { host, port, state } of shelf.get(name)?.states() ?? []) {
          gauge.set({ [label]: name, host: `${host}:${port}` }, states[state]);
        }
      }
    },
  );
  const by = [label, 'result'] as const;
  return {
    recipients: metrics.counter<string>(`${prefix}_recipients_total`, `Recipients that a ${label} has taken.`, by),
    messages: metrics.counter<string>(`${prefix}_messages_total`, `Messages handed to servers of each ${label}.`, by),
    bytes: metrics.counter<string>(`${prefix}_bytes_total`, `Bytes that servers of each ${label} have taken.`, [label]),
    seconds: metrics.histogram<string>(`${prefix}_seconds`, `Time of servers of each ${label}.`, buckets, [
      label,
      'step',
    ]),
  };
}
