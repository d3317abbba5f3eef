import type { Clock } from '../../core/clock.js';
import type { HealthReport } from '../../core/host/health.js';
import type { HookDescription } from '../../core/pipeline/hook.js';

/** How long a failure is remembered. */
const MEMORY_MS = 5 * 60_000;

/** Whether hooks have failed lately: mail that meets one is put off, and nobody else would say why. */
export class HookFailures {
  readonly #hooks: () => readonly HookDescription[];
  readonly #clock: Clock;
  #counts = new Map<string, number>();
  #seen: { readonly at: number; readonly place: string; readonly count: number }[] = [];

  constructor(hooks: () => readonly HookDescription[], clock: Clock) {
    this.#hooks = hooks;
    this.#clock = clock;
  }

  look(): void {
    const now = this.#clock.monotonic();
    const counts = countsOf(this.#hooks());
    for (const [place, count] of counts) {
      const known = this.#counts.get(place) ?? 0;
      // A hook that was registered anew counts from zero.
      const fresh = count >= known ? count - known : count;
      if (fresh > 0) this.#seen.push({ at: now, place, count: fresh });
    }
    this.#counts = counts;
    this.#seen = this.#seen.filter(({ at }) => now - at < MEMORY_MS);
  }

  report(): HealthReport {
    const last = this.#seen.at(-1);
    if (last === undefined) return { status: 'up' };
    const total = this.#seen.reduce((all, { count }) => all + count, 0);
    const times = total === 1 ? 'once' : `${total} times`;
    const why = `Hooks failed ${times} in the last five minutes, the last one ${last.place}: their mail was put off.`;
    return { status: 'degraded', why };
  }
}

function countsOf(hooks: readonly HookDescription[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { plugin, stage, failures } of hooks) {
    const place = `of ${plugin} at ${stage}`;
    counts.set(place, (counts.get(place) ?? 0) + failures);
  }
  return counts;
}
