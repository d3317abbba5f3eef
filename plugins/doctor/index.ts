import type { BuiltInCommand } from '../../core/cli/command-line.js';

/** Commands that check a server and its configuration. */
export const doctorCommands: readonly BuiltInCommand[] = [
  {
    words: 'config check',
    flags: ['json'],
    summary: 'check the configuration and list mistakes',
    run: async ({ options, flags }, environment) => {
      const { checkConfiguration } = await import('./configuration-check.js');
      return checkConfiguration(options, environment, flags.has('json'));
    },
  },
  {
    words: 'doctor outbound',
    takes: ['DOMAIN'],
    flags: ['json'],
    summary: 'connect to the mail servers of a domain, to test outbound port 25',
    run: async ({ args: [domain = ''], options, flags }, environment) => {
      const { dialOut } = await import('./doctor.js');
      return dialOut(domain, { options, json: flags.has('json'), terminal: process.stdout.isTTY }, environment);
    },
  },
  {
    words: 'doctor',
    flags: ['json'],
    summary: 'check ports, DNS, TLS, rights, disk and configuration, and suggest fixes',
    run: async ({ options, flags }, environment) => {
      const { doctor } = await import('./doctor.js');
      return doctor({ options, json: flags.has('json'), terminal: process.stdout.isTTY }, environment);
    },
  },
];
