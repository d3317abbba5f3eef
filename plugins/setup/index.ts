import type { BuiltInCommand } from '../../core/cli/command-line.js';

/** Commands that set up a mail server: its files, its keys and its records in the DNS. */
export const setupCommands: readonly BuiltInCommand[] = [
  {
    words: 'init',
    takes: ['[DOMAIN]'],
    settings: ['mail-host', 'folder'],
    flags: ['table', 'json'],
    summary: 'set up a mail server for a domain: configuration, keys, systemd unit, DNS records; overwrites nothing',
    run: async ({ args: [domain], settings, flags }, environment) =>
      (await import('./init.js')).init(
        { domain, mailHost: settings.get('mail-host'), folder: settings.get('folder') ?? '.', form: formOf(flags) },
        environment,
      ),
  },
  {
    words: 'config show',
    takes: ['[TEXT]'],
    flags: ['json'],
    summary: 'print the settings in force and where each comes from; TEXT filters them',
    run: async ({ args: [text], options, flags }, environment) =>
      (await import('./config-command.js')).showSettings({ text, options, json: flags.has('json') }, environment),
  },
  {
    words: 'config schema',
    summary: 'print the JSON Schema of the configuration, for editors',
    run: async ({ options }, environment) => (await import('./config-command.js')).printSchema(options, environment),
  },
  {
    words: 'config reference',
    summary: 'print every key of the configuration with type, unit, default and example, as Markdown',
    run: async ({ options }, environment) => (await import('./config-command.js')).printReference(options, environment),
  },
  {
    words: 'zone',
    takes: ['[DOMAIN]'],
    flags: ['table', 'json'],
    summary: 'print the DNS records that a domain needs, as a zone file or as a table',
    run: async ({ args: [domain], options, flags }, environment) =>
      (await import('./zone.js')).zone({ domain, options, form: formOf(flags) }, environment),
  },
  {
    words: 'dkim list',
    flags: ['json'],
    summary: 'list the keys that sign mail',
    run: async ({ options, flags }, environment) =>
      (await import('./dkim-command.js')).listKeys({ options, json: flags.has('json') }, environment),
  },
  {
    words: 'dkim show',
    takes: ['DOMAIN'],
    flags: ['json'],
    summary: 'print the DNS records of the keys of a domain',
    run: async ({ args: [domain = ''], options, flags }, environment) =>
      (await import('./dkim-command.js')).showKeys({ domain, options, json: flags.has('json') }, environment),
  },
  {
    words: 'dkim create',
    takes: ['DOMAIN'],
    flags: ['json'],
    summary: 'make new keys for a domain, and say what to publish and to configure',
    run: async ({ args: [domain = ''], options, flags }, environment) =>
      (await import('./dkim-command.js')).createKeys({ domain, options, json: flags.has('json') }, environment),
  },
];

function formOf(flags: ReadonlySet<string>): 'zone' | 'table' | 'json' {
  if (flags.has('json')) return 'json';
  return flags.has('table') ? 'table' : 'zone';
}
