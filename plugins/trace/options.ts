import { z } from 'zod';

/** How long, and how much, is known of each message. */
export const TraceOptions = z.strictObject({
  traceDays: z
    .int()
    .min(0)
    .max(400)
    .default(14)
    .describe('Days for which /trace keeps the history of a message; 0 records nothing.'),
  traceBytes: z
    .int()
    .min(16 * 1024 * 1024)
    .max(64 * 1024 ** 3)
    .default(256 * 1024 * 1024)
    .describe('Bytes on disk, the oldest go first. A message takes about 500, and a sixth more for the index.'),
});
