import type { BuiltInCommand } from '../../core/cli/command-line.js';

/** Commands that check a server and its configuration. */
export const doctorCommands: readonly BuiltInCommand[] = [
  {
    words: 'config check',
    summary: 'check the configuration and list mistakes',
    run: async ({ options }, surroundings) =>
      (await import('./configuration-check.js')).checkConfiguration(options, surroundings),
  },
  {
    words: 'doctor outbound',
    takes: ['DOMAIN'],
    flags: ['json'],
    summary: 'connect to the mail servers of a domain, to test outbound port 25',
    run: async ({ args: [domain = ''], options, flags }, surroundings) => {
      const { dialOut } = await import('./doctor.js');
      return dialOut(domain, { options, json: flags.has('json'), terminal: process.stdout.isTTY }, surroundings);
    },
  },
  {
    words: 'doctor',
    flags: ['json'],
    summary: 'check ports, DNS, TLS, rights, disk and configuration, and suggest fixes',
    run: async ({ options, flags }, surroundings) => {
      const { doctor } = await import('./doctor.js');
      return doctor({ options, json: flags.has('json'), terminal: process.stdout.isTTY }, surroundings);
    },
  },
];
