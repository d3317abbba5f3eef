import type { Clock } from '../../../core/clock.js';
import type { RelayQueue } from '../../../core/contracts/relay-queue.js';
import type { QueueFigures } from '../delivery/outbound-metrics.js';

/** Counting a large queue takes a moment: it is done at most so often. */
const keepMs = 5000;

/** What is counted of the queue, for metrics and health. */
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

  /** What was counted last, for callers that cannot wait; starts the next count. */
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
