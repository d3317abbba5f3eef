import type { BuiltInCommand } from '../../core/cli/command-line.js';

/** Commands that check a server and its configuration. */
export const doctorCommands: readonly BuiltInCommand[] = [
  {
    words: 'config check',
    summary: 'check the configuration and say what is wrong',
    run: async ({ options }, surroundings) =>
      (await import('./configuration-check.js')).checkConfiguration(options, surroundings),
  },
  {
    words: 'doctor outbound',
    takes: ['DOMAIN'],
    flags: ['json'],
    summary: 'dial the mail servers of a domain: whether port 25 is open outwards',
    run: async ({ args: [domain = ''], options, flags }, surroundings) => {
      const { dialOut } = await import('./doctor.js');
      return dialOut(domain, { options, json: flags.has('json'), terminal: process.stdout.isTTY }, surroundings);
    },
  },
  {
    words: 'doctor',
    flags: ['json'],
    summary: 'look at ports, DNS, TLS, rights, disk and configuration and say what to do',
    run: async ({ options, flags }, surroundings) => {
      const { doctor } = await import('./doctor.js');
      return doctor({ options, json: flags.has('json'), terminal: process.stdout.isTTY }, surroundings);
    },
  },
];
