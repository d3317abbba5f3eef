import { z } from 'zod';

/** The thread that watches the main thread. */
export const WatchdogOptions = z.strictObject({
  stallSeconds: z
    .int()
    .min(1)
    .max(3600)
    .default(10)
    .describe(
      'When the event loop stands still for so long, what runs is written to stalls.json and shown by health. Seconds.',
    ),
  restartAfterSeconds: z
    .int()
    .min(0)
    .max(86_400)
    .default(0)
    .describe(
      'When it stands still for so long, the process ends itself (SIGKILL), so that what has started it starts it again; 0 is never. Seconds.',
    ),
});

export type WatchdogSettings = z.output<typeof WatchdogOptions>;
