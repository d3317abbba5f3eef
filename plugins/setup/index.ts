import type { BuiltInCommand, CommandCall } from '../../core/cli/command-line.js';

const table = { summary: 'records as a table, for the form of a provider' };

/** Commands that set up a mail server: its files, its keys and its records in the DNS. */
export const setupCommands: readonly BuiltInCommand[] = [
  {
    words: 'init',
    takes: ['[DOMAIN]'],
    ownFlags: {
      'mail-host': { value: 'HOST', summary: 'name of the server; mail.DOMAIN if absent' },
      folder: { value: 'DIR', summary: 'where the files go; here if absent' },
      table,
    },
    flags: ['json'],
    summary: 'set up a mail server for a domain: configuration, keys, systemd unit, DNS records; overwrites nothing',
    run: async (call, environment) => {
      const { init } = await import('./init.js');
      const { 'mail-host': mailHost, folder = '.' } = call.values as Partial<Record<'mail-host' | 'folder', string>>;
      return init({ domain: call.args[0], mailHost, folder, form: formOf(call) }, environment);
    },
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
    ownFlags: { table },
    flags: ['json'],
    summary: 'print the DNS records that a domain needs, as a zone file or as a table',
    run: async (call, environment) =>
      (await import('./zone.js')).zone(
        { domain: call.args[0], options: call.options, form: formOf(call) },
        environment,
      ),
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

function formOf({ flags, values }: CommandCall): 'zone' | 'table' | 'json' {
  if (flags.has('json')) return 'json';
  return values['table'] === true ? 'table' : 'zone';
}
