import { parseArgs } from 'node:util';
import type { StartOptions } from '../main.js';
import type { CompletedCommand } from './completion.js';
import {
  commandFlags,
  serverFlags,
  type CommandEnvironment,
  type CommandFlag,
  type CommandInput,
  type OwnFlag,
} from './command.js';
import type { Plugin, PluginCommand } from '../plugin.js';
import { usageError } from '../problem.js';
import { columns, usageRow, usageText, wrapped } from '../text/columns.js';

export interface CommandLine {
  /** Positional arguments: `['user', 'add', 'anna@example.org']`. */
  readonly words: readonly string[];
  readonly options: StartOptions;
  readonly flags: ReadonlySet<CommandFlag>;
  readonly help: boolean;
  readonly version: boolean;
  /** As it was given: it is parsed again with the flags of the command. */
  readonly argv: readonly string[];
  /** About the first flag that is none of the server's. */
  readonly unknown?: Error;
  /** The given ones of the command's own flags. */
  readonly values: Readonly<Record<string, string | true>>;
}

/**
 * Parses the command line.
 *
 * @param own flags of the command that it names; without them an unknown flag is only noted
 * @throws usage error for a flag without its value, an invalid port or, with `own`, an unknown flag
 */
export function readCommandLine(argv: readonly string[], own?: Readonly<Record<string, OwnFlag>>): CommandLine {
  const { values, positionals, given = {}, unknown } = parse(argv, own);
  return {
    argv,
    values: given,
    ...(unknown !== undefined && { unknown }),
    words: positionals,
    flags: new Set(commandFlags.filter((flag) => values[flag] === true)),
    help: values.help === true,
    version: values.version === true,
    options: {
      ...(values.config !== undefined && { config: values.config }),
      ...(values.data !== undefined && { data: values.data }),
      ...(values['http-port'] !== undefined && { httpPort: portOf('--http-port', values['http-port']) }),
      ...(values['smtp-port'] !== undefined && { smtpPort: portOf('--smtp-port', values['smtp-port']) }),
      ...(values.verbose === true && { verbose: true }),
    },
  };
}

/**
 * Without `own`, an unknown flag is only noted, for the command may be one of a plugin. The first word is known all the
 * same: flags stand after the name of the command.
 */
function parse(argv: readonly string[], own?: Readonly<Record<string, OwnFlag>>) {
  const options = { ...ownFlagTypes(own), ...serverFlags };
  const config = { args: [...argv], allowPositionals: true, options } as const;
  try {
    const { values, positionals } = parseArgs(config);
    const given = Object.entries<unknown>(values).filter(([name]) => !Object.hasOwn(serverFlags, name));
    return { values, positionals, given: Object.fromEntries(given) as Record<string, string | true> };
  } catch (cause) {
    const reason = cause instanceof Error ? (cause.message.split('. ')[0] ?? '') : String(cause);
    const fault = usageError(`${reason}. See postern --help.`, cause);
    const { code } = cause as NodeJS.ErrnoException;
    if (own !== undefined || code !== 'ERR_PARSE_ARGS_UNKNOWN_OPTION') throw fault;
    const { values, positionals } = parseArgs({ ...config, strict: false });
    return { values: wellTyped(values), positionals, unknown: fault };
  }
}

const ownFlagTypes = (own: Readonly<Record<string, OwnFlag>> = {}): Record<string, { type: 'string' | 'boolean' }> =>
  Object.fromEntries(
    Object.entries(own).map(([name, { value }]) => [name, { type: value === undefined ? 'boolean' : 'string' }]),
  );

type ServerValues = ReturnType<typeof parseArgs<{ options: typeof serverFlags }>>['values'];

/** The flags of the server out of values that were read leniently. */
function wellTyped(values: Readonly<Record<string, unknown>>): ServerValues {
  const known = Object.entries(serverFlags).filter(([name, { type }]) => typeof values[name] === type);
  return Object.fromEntries(known.map(([name]) => [name, values[name]])) as ServerValues;
}

function portOf(flag: string, text: string): number {
  const port = Number(text);
  if (/^\d{1,5}$/.test(text) && port <= 65_535) return port;
  throw usageError(`${flag} ${text}: a port is a number from 0 to 65535; 0 takes a free one.`);
}

/** A command that works without a valid configuration. Its code is loaded on demand. */
export interface BuiltInCommand {
  /** One word or two: `config check`. */
  readonly words: string;
  /** Names of its arguments, as `--help` shows them; one that may be left out in brackets. */
  readonly takes?: readonly string[];
  readonly flags?: readonly CommandFlag[];
  readonly ownFlags?: Readonly<Record<string, OwnFlag>>;
  readonly summary: string;
  /**
   * Resolves with the exit status.
   *
   * @throws start error or Problem with a sentence for the operator
   */
  run(call: CommandCall, environment: CommandEnvironment): Promise<number>;
}

export interface CommandCall extends Pick<CommandLine, 'options' | 'flags' | 'values'> {
  readonly args: readonly string[];
}

export const coreCommands: readonly BuiltInCommand[] = [
  {
    words: 'start',
    summary: 'start the server',
    run: async ({ options }, environment) => (await import('./serve.js')).serve(options, environment),
  },
  {
    words: 'call',
    takes: ['METHOD', 'PATH', '[JSON]'],
    summary: 'call any endpoint of the running server as its owner, and print the answer',
    run: async ({ args, options }, environment) => (await import('./call.js')).callServer(args, options, environment),
  },
  {
    words: 'password hash',
    flags: ['json'],
    summary: 'ask for a password and print its hash, for an account in the configuration',
    run: async ({ flags }, { print }) => {
      const passwordHash = await (await import('./terminal.js')).newPasswordHash();
      print(flags.has('json') ? JSON.stringify({ passwordHash }, null, 2) : passwordHash);
      return 0;
    },
  },
];

/**
 * The command that the first words name; undefined when a plugin may have it.
 *
 * @throws start error for a wrong call
 */
export function findCommand(
  commands: readonly BuiltInCommand[],
  line: CommandLine,
): { readonly command: BuiltInCommand; readonly call: CommandCall } | undefined {
  const command = commands.find(({ words }) => words === line.words.slice(0, words.split(' ').length).join(' '));
  if (command === undefined) return refuseHalfCommand(commands, line.words);
  const { words, options, flags, values } = readCommandLine(line.argv, command.ownFlags ?? {});
  refuseStrange(command.words, flags, command.flags);
  const args = words.slice(command.words.split(' ').length);
  const takes = command.takes ?? [];
  const needed = takes.filter((name) => !name.startsWith('[')).length;
  if (args.length < needed || args.length > takes.length) throw usageError(`Usage: postern ${synopsis(command)}`);
  return { command, call: { args, options, flags, values } };
}

function refuseStrange(command: string, given: ReadonlySet<CommandFlag>, accepted: readonly CommandFlag[] = []): void {
  const strange = [...given].find((flag) => !accepted.includes(flag));
  if (strange !== undefined) throw usageError(`postern ${command} takes no --${strange}.`);
}

export type PluginCall = Pick<CommandInput<unknown>, 'args' | 'flags' | 'values'>;

/**
 * The command line of a plugin's command, which begins with its name.
 *
 * @throws usage error for a flag that it does not have
 */
export function pluginCall(
  { name, flags: accepted, ownFlags = {} }: PluginCommand,
  argv: readonly string[],
): PluginCall {
  const { words, flags, values } = readCommandLine(argv, ownFlags);
  refuseStrange(name, flags, accepted);
  return { args: words.slice(1), flags, values };
}

/** For example `plugin new NAME [--typescript]`. */
function synopsis({ words, takes = [], flags = [], ownFlags = {} }: BuiltInCommand): string {
  const own = Object.entries(ownFlags).map(([name, flag]) => `[${flagText(name, flag)}]`);
  return [words, ...takes, ...own, ...flags.map((flag) => `[--${flag}]`)].join(' ');
}

const flagText = (name: string, { value }: OwnFlag): string => `--${name}${value === undefined ? '' : ` ${value}`}`;

const flagNames = (own: Readonly<Record<string, OwnFlag>> = {}): readonly string[] =>
  Object.keys(own).map((name) => `--${name}`);

function refuseHalfCommand(commands: readonly BuiltInCommand[], [first]: readonly string[]): undefined {
  const beginning = commands.filter(({ words }) => words.split(' ')[0] === first);
  if (beginning.length === 0) return undefined;
  throw usageError(`Usage: ${beginning.map((command) => `postern ${synopsis(command)}`).join('\n       ')}`);
}

/** Every command with its words, for the completion of shells. */
export function completedCommands(builtIn: readonly BuiltInCommand[], plugins: readonly Plugin[]): CompletedCommand[] {
  const commands = plugins.flatMap((plugin) => plugin.commands);
  const actions = commands.flatMap(({ usage: lines, summary, ownFlags }) => {
    const options = flagNames(ownFlags);
    return lines.map((line) => ({ words: /^postern (\S+(?: [a-z][a-z-]*)?)/.exec(line)?.[1] ?? '', summary, options }));
  });
  const own = builtIn.map(({ words, summary, ownFlags }) => ({ words, summary, options: flagNames(ownFlags) }));
  return [...own, ...actions, { words: 'completion', summary: completionSummary }];
}

const completionSummary = 'print a script that completes commands: bash, zsh or fish';

/** Text of `postern COMMAND --help`; undefined for an unknown command. */
export function helpOf(
  word: string,
  builtIn: readonly BuiltInCommand[],
  plugins: readonly Pick<Plugin, 'commands'>[],
): string | undefined {
  const own = builtIn.filter(({ words }) => words.split(' ')[0] === word);
  const command = plugins.flatMap(({ commands }) => commands).find(({ name }) => name === word);
  const lines = [...own.map((one) => `postern ${synopsis(one)}  ${one.summary}`), ...(command?.usage ?? [])];
  if (lines.length === 0) return undefined;
  const about = command === undefined ? [] : [command.summary, ''];
  const flags = Object.assign({}, command?.ownFlags, ...own.map(({ ownFlags }) => ownFlags)) as Readonly<
    Record<string, OwnFlag>
  >;
  const more = ['', 'Options of all commands, such as --config and --data: postern --help'];
  return [...about, usageText(lines), ...ownFlagLines(flags), ...more].join('\n');
}

function ownFlagLines(own: Readonly<Record<string, OwnFlag>> = {}): readonly string[] {
  const rows = Object.entries(own).map(([name, flag]) => ({ flag: flagText(name, flag), summary: flag.summary }));
  if (rows.length === 0) return [];
  const width = Math.max(...rows.map(({ flag }) => flag.length)) + 2;
  return ['', 'Options', ...rows.map(({ flag, summary }) => `  ${flag.padEnd(width)}${summary}`)];
}

/** A longer one is on a line of its own. */
const widestName = 24;

/** Text of `postern --help`, with the commands of plugins. */
export function usage(builtIn: readonly BuiltInCommand[], plugins: readonly Plugin[]): string {
  const rows = [
    ...builtIn.map((command) => ({ synopsis: synopsis(command), summary: command.summary })),
    { synopsis: 'completion SHELL', summary: completionSummary },
    ...plugins
      .flatMap((plugin) => plugin.commands)
      .flatMap(({ usage: lines, summary: about }) =>
        lines.map(usageRow).map(({ synopsis: words, summary }) => ({ synopsis: words, summary: summary || about })),
      ),
  ];
  const margin = ' '.repeat(widestName + 4);
  const lines = rows.flatMap(({ synopsis: words, summary }) => {
    const name = words.replace(/ \[--[^\]]*\]/g, '');
    const [first = '', ...rest] = wrapped(summary, columns - margin.length);
    const below = rest.map((line) => `${margin}${line}`);
    if (name.length <= widestName) return [`  ${name.padEnd(widestName)}  ${first}`, ...below];
    return [`  ${name}`, `${margin}${first}`, ...below];
  });
  return [
    'Usage: postern COMMAND [OPTIONS]',
    '',
    'Commands; postern COMMAND --help has the options of one',
    ...lines,
    '',
    'Options',
    '  -c, --config FILE   configuration (JSON5); else what POSTERN_CONFIG names,',
    '                      ./postern.json5, /etc/postern/postern.json5',
    '  -d, --data DIR      data folder',
    '  --http-port N       port of the pages; 0 takes a free one',
    '  --smtp-port N       port of the first SMTP listener; 0 takes a free one',
    '  -v, --verbose       log to the terminal too, and print the plugins',
    '  -h, --help          this text; after a command, its own',
    '  --json              output for programs, of commands that print data',
    '  --dry-run           only say what would change, where a command has it',
    '  --version           the version',
    '',
    'Exit status: 0 done, 1 refused or failed, 2 wrong usage.',
  ].join('\n');
}
