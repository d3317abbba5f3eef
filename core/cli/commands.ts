import type { CommandFlag, CommandLine } from './arguments.js';
import type { Surroundings } from '../main.js';
import { startError } from './start-error.js';

/** A command that works without a valid configuration. What it needs is loaded when it runs. */
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

export const coreCommands: readonly BuiltInCommand[] = [
  {
    words: 'start',
    summary: 'start the server',
    run: async ({ options }, surroundings) => (await import('./serve.js')).serve(options, surroundings),
  },
  {
    words: 'password hash',
    summary: 'ask for a password and print its hash, for an account of the configuration',
    run: async (_call, { print }) => {
      print(await (await import('./new-password.js')).newPasswordHash());
      return 0;
    },
  },
];

/** The command that the words begin with, and its call; undefined when a plugin may bring it. Throws a start error. */
export function findCommand(
  commands: readonly BuiltInCommand[],
  line: CommandLine,
): { readonly command: BuiltInCommand; readonly call: CommandCall } | undefined {
  const { words, options, flags } = line;
  const command = commands.find(({ words: own }) => own === words.slice(0, own.split(' ').length).join(' '));
  if (command === undefined) return refuseHalfCommand(commands, words);
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

function refuseHalfCommand(commands: readonly BuiltInCommand[], [first]: readonly string[]): undefined {
  const beginning = commands.filter(({ words }) => words.split(' ')[0] === first);
  if (beginning.length === 0) return undefined;
  throw startError(`Usage: ${beginning.map((command) => `postern ${synopsis(command)}`).join('\n       ')}`);
}
