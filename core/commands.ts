import type { CommandFlag, CommandLine } from './cli-arguments.js';
import type { Surroundings } from './main.js';
import { programName } from './program-name.js';
import { startError } from './start-error.js';

/** A command of the server itself. What it needs is loaded when it runs. */
export interface BuiltInCommand {
  /** One word or two: `config check`. */
  readonly words: string;
  /** Names of the arguments behind them, as `--help` shows them. */
  readonly takes?: readonly string[];
  readonly flags?: readonly CommandFlag[];
  readonly summary: string;
  /** Resolves with the exit status. Throws a start error, or a problem, with a sentence for the operator. */
  run(call: CommandCall, surroundings: Surroundings): Promise<number>;
}

export interface CommandCall extends Pick<CommandLine, 'options' | 'flags'> {
  /** As many as the command takes. */
  readonly args: readonly string[];
}

export const builtInCommands: readonly BuiltInCommand[] = [
  {
    words: 'start',
    summary: 'start the server',
    run: async ({ options }, surroundings) => (await import('./serve.js')).serve(options, surroundings),
  },
  {
    words: 'config check',
    summary: 'check the configuration and say what is wrong',
    run: async ({ options }, surroundings) =>
      (await import('./configuration-check.js')).checkConfiguration(options, surroundings),
  },
  {
    words: 'password hash',
    summary: 'ask for a password and print its hash, for an account of the configuration',
    run: async (_call, { print }) => {
      print(await (await import('./new-password.js')).newPasswordHash());
      return 0;
    },
  },
  {
    words: 'doctor outbound',
    takes: ['DOMAIN'],
    flags: ['json'],
    summary: 'dial the mail servers of a domain: whether port 25 is open outwards',
    run: async ({ args: [domain = ''], options, flags }, surroundings) => {
      const { dialOut } = await import('./doctor/doctor.js');
      return dialOut(domain, { options, json: flags.has('json'), terminal: process.stdout.isTTY }, surroundings);
    },
  },
  {
    words: 'doctor',
    flags: ['json'],
    summary: 'look at ports, DNS, TLS, rights, disk and configuration and say what to do',
    run: async ({ options, flags }, surroundings) => {
      const { doctor } = await import('./doctor/doctor.js');
      return doctor({ options, json: flags.has('json'), terminal: process.stdout.isTTY }, surroundings);
    },
  },
  {
    words: 'plugin new',
    takes: ['NAME'],
    flags: ['typescript'],
    summary: 'write a plugin that works to ./NAME',
    run: async ({ args: [name = ''], flags }, { cwd, env, print }) => {
      const { newPlugin, stripsTypes } = await import('./plugin-tools/new-plugin.js');
      const language = flags.has('typescript') ? 'typescript' : 'javascript';
      print(await newPlugin({ name, language, cwd, stripsTypes, program: programName({ env }) }));
      return 0;
    },
  },
  {
    words: 'plugin check',
    takes: ['PATH'],
    flags: ['json'],
    summary: 'try a plugin, without starting the server',
    run: async ({ args: [path = ''], flags, options }, surroundings) => {
      const { checkPlugin } = await import('./plugin-tools/check-plugin.js');
      return checkPlugin({ path, options, json: flags.has('json') }, surroundings);
    },
  },
  {
    words: 'plugin list',
    flags: ['json'],
    summary: 'who there is, who needs whom, and who decides about mail in which order',
    run: async ({ flags, options }, surroundings) => {
      const { listPlugins } = await import('./plugin-tools/list-plugins.js');
      return listPlugins({ options, json: flags.has('json') }, surroundings);
    },
  },
  {
    words: 'plugin test',
    takes: ['PATH'],
    summary: 'run the tests in the folder of a plugin',
    run: async ({ args: [path = ''] }, { cwd }) =>
      (await import('./plugin-tools/test-plugin.js')).testPlugin(path, cwd),
  },
];

/** The command that the words begin with, and the call of it; undefined when a plugin may know it. */
export function findCommand(
  line: CommandLine,
): { readonly command: BuiltInCommand; readonly call: CommandCall } | undefined {
  const { words, options, flags } = line;
  const command = builtInCommands.find(({ words: own }) => own === words.slice(0, own.split(' ').length).join(' '));
  if (command === undefined) return refuseHalfCommand(words);
  const args = words.slice(command.words.split(' ').length);
  const strange = [...flags].find((flag) => command.flags?.includes(flag) !== true);
  if (strange !== undefined) throw startError(`postern ${command.words} takes no --${strange}.`);
  if (args.length !== (command.takes ?? []).length) throw startError(`Usage: postern ${synopsis(command)}`);
  return { command, call: { args, options, flags } };
}

/** The command as one types it: `plugin new NAME [--typescript]`. */
export function synopsis({ words, takes = [], flags = [] }: BuiltInCommand): string {
  return [words, ...takes, ...flags.map((flag) => `[--${flag}]`)].join(' ');
}

function refuseHalfCommand([first]: readonly string[]): undefined {
  const beginning = builtInCommands.filter(({ words }) => words.split(' ')[0] === first);
  if (beginning.length === 0) return undefined;
  throw startError(`Usage: ${beginning.map((command) => `postern ${synopsis(command)}`).join('\n       ')}`);
}
