import { z } from 'zod';
import { SyncOptions } from './sync/sync-options.js';

export const ConfigOptions = z.strictObject({
  maintenance: z
    .boolean()
    .default(false)
    .describe('Maintenance mode: every new SMTP session and message is deferred, pages and calls keep working.'),
  maintenanceText: z
    .string()
    .regex(/^[\x20-\x7e]{1,400}$/, 'one line of printable ASCII')
    .default('Down for maintenance, try again later')
    .describe('Text of the reply in maintenance mode.'),
  watch: z.boolean().default(false).describe('Reload as soon as the configuration file has another content.'),
  sync: SyncOptions.optional().describe(
    'Pull configuration files from elsewhere; only the own file of the server says this.',
  ),
});
export type ConfigSettings = z.output<typeof ConfigOptions>;
