import type { PluginContext } from '../../core/plugin.js';
import type { Handed, UpstreamRegistry } from './upstream-target.js';

/** Since the start of the server. */
export interface UpstreamCount {
  /** Recipients. */
  readonly matched: number;
  readonly accepted: number;
  readonly refused: number;
  readonly deferred: number;
  /** Accepted ones that were queued. */
  readonly spooled: number;
  readonly messages: number;
  readonly bytes: number;
}

type Counting = { -readonly [key in keyof UpstreamCount]: number };
type Add = (by: number) => void;
type Answer = 'accepted' | 'refused' | 'deferred' | 'spooled';

const none: UpstreamCount = { matched: 0, accepted: 0, refused: 0, deferred: 0, spooled: 0, messages: 0, bytes: 0 };
const buckets = [0.005, 0.02, 0.1, 0.5, 2, 10, 60];
const states = { closed: 0, 'half-open': 1, open: 2 } as const;

/** Names of counters: rules of the proxy, routes of LMTP. */
export interface CountedAs {
  /** Prefix of the metrics: `proxy`. */
  readonly prefix: string;
  /** Label of the metrics: `rule`. */
  readonly label: 'rule' | 'route';
  readonly names: () => readonly string[];
}

/** Counters of each upstream, for the page and as metrics. */
export class UpstreamCounts {
  readonly #counts = new Map<string, Counting>();
  readonly #series = new Map<string, Add>();
  readonly #label: CountedAs['label'];
  readonly #metrics: ReturnType<typeof metricsOf>;

  constructor(metrics: PluginContext['metrics'], upstreams: UpstreamRegistry, as: CountedAs) {
    this.#label = as.label;
    this.#metrics = metricsOf(metrics, upstreams, as);
  }

  of(name: string): UpstreamCount {
    return { ...(this.#counts.get(name) ?? none) };
  }

  /** Counts the reply to a recipient. @param ms its duration */
  answered(name: string, answer: Answer, ms: number): void {
    const count = this.#countOf(name);
    count.matched += 1;
    count[answer] += 1;
    if (answer === 'spooled') count.accepted += 1;
    this.#bound(`recipients ${answer} ${name}`, () =>
      bindInc(this.#metrics.recipients.labels(this.#labels(name, { result: answer }))),
    )(1);
    this.#bound(`seconds rcpt ${name}`, () => this.#timer(name, 'rcpt'))(ms / 1000);
  }

  handed({ destination: name, outcomes, bytes, ms }: Handed): void {
    const count = this.#countOf(name);
    const isTaken = outcomes.some(({ outcome }) => outcome === 'delivered');
    const result = isTaken ? 'delivered' : (outcomes[0]?.outcome ?? 'deferred');
    if (isTaken) {
      count.messages += 1;
      count.bytes += bytes;
      this.#bound(`bytes ${name}`, () => bindInc(this.#metrics.bytes.labels(this.#labels(name, {}))))(bytes);
    }
    this.#bound(`messages ${result} ${name}`, () =>
      bindInc(this.#metrics.messages.labels(this.#labels(name, { result }))),
    )(1);
    this.#bound(`seconds message ${name}`, () => this.#timer(name, 'message'))(ms / 1000);
  }

  #countOf(name: string): Counting {
    const known = this.#counts.get(name);
    if (known !== undefined) return known;
    const count = { ...none };
    this.#counts.set(name, count);
    return count;
  }

  /** Caches the labelled series of a metric. */
  #bound(key: string, bind: () => Add): Add {
    const known = this.#series.get(key);
    if (known !== undefined) return known;
    const made = bind();
    this.#series.set(key, made);
    return made;
  }

  #timer(name: string, step: 'rcpt' | 'message'): Add {
    const series = this.#metrics.seconds.labels(this.#labels(name, { step }));
    return (seconds) => series.observe(seconds);
  }

  #labels(name: string, more: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
    return { [this.#label]: name, ...more };
  }
}

const bindInc =
  (series: { inc(by: number): void }): Add =>
  (by) =>
    series.inc(by);

function metricsOf(
  metrics: PluginContext['metrics'],
  upstreams: UpstreamRegistry,
  { prefix, label, names }: CountedAs,
) {
  metrics.gauge(
    `${prefix}_breaker_state`,
    `Servers of each ${label}: 0 is called, 1 is tried again, 2 is passed over.`,
    [label, 'host'],
    (gauge) => {
      gauge.reset();
      for (const name of names()) {
        for (const { host, port, state } of upstreams.get(name)?.states() ?? []) {
          gauge.set({ [label]: name, host: `${host}:${port}` }, states[state]);
        }
      }
    },
  );
  return {
    recipients: metrics.counter<string>(`${prefix}_recipients_total`, `Recipients that a ${label} has taken.`, [
      label,
      'result',
    ]),
    messages: metrics.counter<string>(`${prefix}_messages_total`, `Messages handed to servers of each ${label}.`, [
      label,
      'result',
    ]),
    bytes: metrics.counter<string>(`${prefix}_bytes_total`, `Bytes that servers of each ${label} have taken.`, [label]),
    seconds: metrics.histogram<string>(`${prefix}_seconds`, `Time of servers of each ${label}.`, buckets, [
      label,
      'step',
    ]),
  };
}
