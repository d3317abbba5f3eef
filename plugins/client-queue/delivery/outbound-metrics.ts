import type { Clock } from '../../../core/clock.js';
import { type EntryState, entryStates } from '../../../core/contracts/queue-entry.js';
import type { RelayQueue, Settlement } from '../../../core/contracts/relay-queue-store.js';
import type { PluginContext } from '../../../core/plugin.js';
import type { PoolStatistics } from '../../../core/smtp/client/pool.js';

const attemptSeconds = [0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300, 1800];

/** Number of entries, and age of the oldest. */
interface QueueFigures {
  readonly byState: Readonly<Record<EntryState, number>>;
  /** Seconds; 0 when there is none. */
  readonly oldestAge: number;
}

export interface OutboundMetrics {
  settled(settlement: Settlement, ms: number): void;
  notice(kind: string, result: 'sent' | 'suppressed' | 'undeliverable'): void;
}

/** Counts outgoing mail. */
export function outboundMetrics(
  metrics: PluginContext['metrics'],
  figures: () => Promise<QueueFigures>,
  pool: () => PoolStatistics,
): OutboundMetrics {
  const results = metrics.counter('outbound_results_total', 'Recipients by what came of an attempt.', ['result']);
  const seconds = metrics.histogram('outbound_attempt_seconds', 'Length of attempts to deliver.', attemptSeconds);
  const tls = metrics.counter('outbound_tls_total', 'Attempts that spoke with a server, by version of TLS.', ['tls']);
  const notices = metrics.counter('outbound_notices_total', 'Notices to senders, by kind and result.', [
    'kind',
    'result',
  ]);
  metrics.gauge('queue_entries', 'Entries of the relay queue.', ['state'], async (gauge) => {
    const { byState } = await figures();
    for (const state of entryStates) gauge.set({ state }, byState[state]);
  });
  metrics.gauge('queue_oldest_age_seconds', 'Age of the oldest entry that waits.', [], async (gauge) => {
    gauge.set((await figures()).oldestAge);
  });
  metrics.gauge('outbound_connections', 'Connections to other servers.', ['state'], (gauge) => {
    const { leased, idle, waiting } = pool();
    gauge.set({ state: 'busy' }, leased);
    gauge.set({ state: 'idle' }, idle);
    gauge.set({ state: 'awaited' }, waiting);
  });
  return {
    settled({ attempt, results: recipients }, ms) {
      if (attempt === undefined) return;
      for (const { state } of recipients) results.inc({ result: state });
      seconds.observe(ms / 1000);
      if (attempt.host !== null) tls.inc({ tls: attempt.tls ?? 'none' });
    },
    notice: (kind, result) => notices.inc({ kind, result }),
  };
}

/** Minimum interval between counts, which take a while for a large queue. */
const keepMs = 5000;

/** Figures of the queue for metrics and health. */
export class QueueFiguresSource {
  readonly #queue: Pick<RelayQueue, 'statistics'>;
  readonly #clock: Clock;
  #until = -Infinity;
  #figures: Promise<QueueFigures> | undefined;
  #last: QueueFigures | undefined;

  constructor(queue: Pick<RelayQueue, 'statistics'>, clock: Clock) {
    this.#queue = queue;
    this.#clock = clock;
  }

  /** The latest figures, without waiting; starts the next count. */
  get last(): QueueFigures | undefined {
    this.get().catch(() => undefined);
    return this.#last;
  }

  get(): Promise<QueueFigures> {
    if (this.#figures !== undefined && this.#clock.monotonic() < this.#until) return this.#figures;
    this.#until = this.#clock.monotonic() + keepMs;
    const figures = this.#count();
    this.#figures = figures;
    figures.catch(() => {
      if (this.#figures === figures) this.#figures = undefined;
    });
    return figures;
  }

  async #count(): Promise<QueueFigures> {
    const now = this.#clock.now();
    const { byState, oldest } = await this.#queue.statistics(now);
    this.#last = { byState, oldestAge: oldest === null ? 0 : Math.max(0, now - oldest) / 1000 };
    return this.#last;
  }
}
