import { hostname } from 'node:os';
import { z } from 'zod';
import { DnsOptions } from '../dns/system-resolver.js';
import { HttpOptions } from '../http/options.js';
import { SitePluginOption } from '../host/site-files.js';
import { SmtpOptions } from '../smtp/server/listeners.js';
import { WatchdogOptions } from '../watchdog/options.js';

const LogOptions = z.strictObject({
  level: z
    .enum(['trace', 'debug', 'info', 'warn', 'error'])
    .default('info')
    .describe('The least severe lines that are written.'),
  maxFileBytes: z
    .int()
    .min(64 * 1024)
    .max(1024 ** 3)
    .default(64 * 1024 * 1024)
    .describe('A log file that has grown to this size, in bytes, is closed and the next one begun.'),
  keepFiles: z.int().min(1).max(1000).default(14).describe('How many log files are kept, the current one included.'),
  auditFileBytes: z
    .int()
    .min(64 * 1024)
    .max(1024 ** 3)
    .default(16 * 1024 * 1024)
    .describe('The audit log is set aside when it has grown to this size, in bytes.'),
  keepAuditFiles: z
    .int()
    .min(1)
    .max(1000)
    .default(10)
    .describe('How many files of the audit log are kept, the current one included.'),
  ringLines: z.int().min(100).max(100_000).default(2000).describe('How many of the newest lines are kept in memory.'),
});

/** The whole configuration file. The plugins' schemas check their options. */
export const ServerOptions = z.strictObject({
  $schema: z
    .string()
    .optional()
    .describe('The JSON Schema by which editors complete this file; the server does not read it.')
    .meta({ examples: ['/usr/local/lib/node_modules/postern/docs/postern.schema.json'] }),
  hostname: z
    .string()
    .regex(/^[A-Za-z0-9]([A-Za-z0-9.-]{0,253}[A-Za-z0-9])?$/, 'must be a host name such as mail.example.org')
    .default(() => hostname().toLowerCase())
    .meta({ computedDefault: 'the name of the machine' })
    .describe('The name of this server: in the greeting, in Received header fields and as Reporting-MTA.')
    .meta({ examples: ['mail.example.org'] }),
  data: z.string().min(1).default('data').describe('The data folder; relative to the configuration file.'),
  durability: z
    .enum(['file', 'log'])
    .default('log')
    .describe(
      'How a message becomes durable before it is acknowledged: "log" writes all messages that wait into one log with one fsync, which is faster; "file" fsyncs a file for each message. See docs/on-disk.md.',
    ),
  domains: z
    .array(z.string().min(1))
    .min(1, 'name at least one domain, for example ["example.org"]')
    .default(['localhost'])
    .describe('The domains whose mail ends here. The first one is where postmaster lives.'),
  http: HttpOptions.prefault({}).describe('The management interface.'),
  smtp: SmtpOptions.prefault({}).describe('How mail comes in.'),
  dns: DnsOptions.prefault({}).describe('The name servers that plugins ask.'),
  log: LogOptions.prefault({}).describe('The server log in data/logs.'),
  watchdog: WatchdogOptions.prefault({}).describe('What happens when the event loop stalls.'),
  shutdownSeconds: z
    .int()
    .min(0)
    .max(600)
    .default(20)
    .describe('How long sessions, requests and outgoing attempts together may continue after SIGTERM, in seconds.'),
  plugins: z
    .record(z.string(), z.union([z.literal(false), z.record(z.string(), z.unknown())]))
    .default({})
    .describe('Options by plugin name; false switches a plugin off.'),
  sitePlugins: z
    .array(SitePluginOption)
    .default([])
    .describe(
      'Plugins of this site: folders or files (relative to the configuration file) or package names; or objects with from, mode, required and startSeconds.',
    ),
});

export type ServerSettings = z.output<typeof ServerOptions>;
