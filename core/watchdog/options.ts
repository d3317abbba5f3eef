import { z } from 'zod';

/** Options of the thread that watches the main thread. */
export const WatchdogOptions = z.strictObject({
  stallSeconds: z
    .int()
    .min(1)
    .max(3600)
    .default(10)
    .describe('Stalls of the event loop of this length are recorded in stalls.json and shown by health. Seconds.'),
  restartAfterSeconds: z
    .int()
    .min(0)
    .max(86_400)
    .default(0)
    .describe(
      'A stall of this length ends the process (SIGKILL), so that the service manager restarts it; 0 is never. Seconds.',
    ),
});

export type WatchdogSettings = z.output<typeof WatchdogOptions>;

/** When the watching thread acts; all in milliseconds. */
export interface Thresholds {
  /** Between two beats of the main thread, and between two checks. */
  readonly intervalMs: number;
  /** Stalls of this length are sampled and reported. */
  readonly reportAboveMs: number;
  /** Stalls of this length are recorded. */
  readonly recordAboveMs: number;
  /** Stalls of this length end the process; 0 is never. */
  readonly killAboveMs: number;
}

const minMs = 200;

/** @param asked lengths that observers asked for, in milliseconds */
export function thresholdsOf(
  { stallSeconds, restartAfterSeconds }: WatchdogSettings,
  asked: readonly number[],
): Thresholds {
  const killAboveMs = restartAfterSeconds * 1000;
  const recordAboveMs = Math.min(stallSeconds * 1000, killAboveMs || Infinity);
  const reportAboveMs = Math.max(minMs, Math.min(recordAboveMs, ...asked.filter((ms) => ms > 0)));
  return {
    // Long while no observer asks for short stalls: an idle server should sleep.
    intervalMs: Math.min(1000, Math.max(minMs / 2, Math.floor(reportAboveMs / 3))),
    reportAboveMs,
    recordAboveMs,
    killAboveMs,
  };
}
