import { z } from 'zod';

const bytes = (): z.ZodInt =>
  z
    .int()
    .min(0)
    .max(2 ** 50);

export const MonitoringOptions = z.strictObject({
  disk: z
    .strictObject({
      degradedBelowBytes: bytes()
        .default(512 * 1024 * 1024)
        .describe('Health is DEGRADED when less than this is free on the disk of the data folder, in bytes.'),
      downBelowBytes: bytes()
        .default(32 * 1024 * 1024)
        .describe('Health is DOWN when less than this is free, in bytes; /health then answers 503.'),
    })
    .prefault({})
    .describe('Thresholds of the health component "disk".'),
  eventLoop: z
    .strictObject({
      degradedAboveMs: z
        .int()
        .min(10)
        .max(60_000)
        .default(500)
        .describe('Health is DEGRADED when the event loop was this late in 1 of 100 turns, in milliseconds.'),
      recordStallsAboveMs: z
        .int()
        .min(0)
        .max(60_000)
        .default(0)
        .refine((ms) => ms === 0 || ms >= 200, 'must be 0 or at least 200')
        .describe(
          'What runs while the event loop is blocked for this number of milliseconds is recorded, for /system/threads and the log; 0: only from watchdog.stallSeconds on.',
        ),
    })
    .prefault({})
    .describe('The event loop: threshold of its health component, and the record of its stalls.'),
  logs: z
    .strictObject({
      maxSearchBytes: bytes()
        .default(512 * 1024 * 1024)
        .describe('How much of the log one search looks through, in bytes; its answer says where to go on.'),
    })
    .prefault({})
    .describe('Search of the log at /logs.'),
  graphite: z
    .strictObject({
      prefix: z
        .string()
        .max(100)
        .regex(/^(?:[\w-]+(?:\.[\w-]+)*)?$/)
        .default('postern')
        .describe('Dotted path before every name at /metrics/graphite; empty for none.'),
      names: z
        .enum(['tagged', 'flat'])
        .default('tagged')
        .describe(
          'Labels as tags (a.b;listener=mx), or as parts of the path (a.b.listener.mx) for a Graphite without tags.',
        ),
    })
    .prefault({})
    .describe('Metrics for Graphite.'),
  environment: z
    .strictObject({
      show: z
        .array(z.string().max(200))
        .max(200)
        .default([])
        .describe('Further names of the environment whose values /system/env shows; names of secrets stay masked.')
        .meta({ examples: [['TZ']] }),
    })
    .prefault({})
    .describe('The environment at /system/env.'),
  heapDumps: z
    .strictObject({
      keep: z.int().min(1).max(100).default(3).describe('How many heap dumps are kept; older ones are removed.'),
    })
    .prefault({})
    .describe('Heap dumps in data/heapdumps.'),
});
export type MonitoringSettings = z.output<typeof MonitoringOptions>;
