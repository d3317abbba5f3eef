import fc, { type RunDetails } from 'fast-check';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import type { FuzzTarget } from './target.js';

export interface TrialOptions {
  readonly seed: number;
  readonly runs: number;
  readonly path?: string | undefined;
}

export interface Trial {
  readonly runs: number;
  /** Longest pause of the event loop, in milliseconds; the servers run in it, and so do the clients. */
  readonly pauseMs: number;
  /** The counterexample and what is wrong with it; undefined when there is none. */
  readonly failure: { readonly path: string | undefined; readonly report: string } | undefined;
}

/** Feeds one target. */
export async function attempt(target: FuzzTarget, { seed, runs, path }: TrialOptions): Promise<Trial> {
  const delay = monitorEventLoopDelay({ resolution: 10 });
  delay.enable();
  const details: RunDetails<unknown[]> = await fc.check(target.property, {
    seed,
    numRuns: runs,
    includeErrorInReport: true,
    ...(path !== undefined && { path }),
  });
  delay.disable();
  const failure = details.failed
    ? { path: details.counterexamplePath ?? undefined, report: fc.defaultReportMessage(details) ?? 'no report' }
    : undefined;
  return { runs: details.numRuns, pauseMs: delay.max / 1e6, failure };
}
