import fc, { type RunDetails } from 'fast-check';
import { HeldLoop, type Hold } from './held-loop.js';
import type { FuzzTarget } from './target.js';

export interface TrialOptions {
  readonly seed: number;
  readonly runs: number;
  readonly path?: string | undefined;
  /** Ends the trial after the run that is under way then. */
  readonly timeLimitMs?: number;
}

export interface Trial {
  readonly runs: number;
  /** The servers run in the event loop of this process, and so do the clients. */
  readonly hold: Hold;
  /** The counterexample and what is wrong with it; undefined when there is none. */
  readonly failure: { readonly path: string | undefined; readonly report: string } | undefined;
}

/** Feeds one target. */
export async function attempt(target: FuzzTarget, { seed, runs, path, timeLimitMs }: TrialOptions): Promise<Trial> {
  let begun = 0;
  const held = new HeldLoop(() => begun - 1);
  target.property.beforeEach(() => {
    held.look();
    begun += 1;
  });
  const details: RunDetails<unknown[]> = await fc.check(target.property, {
    seed,
    numRuns: runs,
    includeErrorInReport: true,
    ...(path !== undefined && { path }),
    ...(timeLimitMs !== undefined && { interruptAfterTimeLimit: timeLimitMs }),
  });
  const failure = details.failed
    ? { path: details.counterexamplePath ?? undefined, report: fc.defaultReportMessage(details) ?? 'no report' }
    : undefined;
  return { runs: details.numRuns, hold: held.stop(), failure };
}
