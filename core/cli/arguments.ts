import { parseArgs } from 'node:util';
import { startError } from './start-error.js';
import type { StartOptions } from '../main.js';

/** Options that only some commands take: `--json`, `--typescript`, `--dry-run`. */
export const commandFlags = ['json', 'typescript', 'dry-run'] as const;
export type CommandFlag = (typeof commandFlags)[number];

export interface CommandLine {
  /** The words that are not options: `['user', 'add', 'anna@example.org']`. */
  readonly words: readonly string[];
  readonly options: StartOptions;
  readonly flags: ReadonlySet<CommandFlag>;
  readonly help: boolean;
  readonly version: boolean;
}

/** Reads the command line; an unknown option or a port that is none is a start error. */
export function readCommandLine(argv: readonly string[]): CommandLine {
  const { values, positionals } = parse(argv);
  return {
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

function parse(argv: readonly string[]) {
  try {
    return parseArgs({
      args: [...argv],
      allowPositionals: true,
      options: {
        config: { type: 'string', short: 'c' },
        data: { type: 'string', short: 'd' },
        'http-port': { type: 'string' },
        'smtp-port': { type: 'string' },
        verbose: { type: 'boolean', short: 'v' },
        json: { type: 'boolean' },
        typescript: { type: 'boolean' },
        'dry-run': { type: 'boolean' },
        help: { type: 'boolean', short: 'h' },
        version: { type: 'boolean' },
      },
    });
  } catch (cause) {
    const reason = cause instanceof Error ? (cause.message.split('. ')[0] ?? '') : String(cause);
    throw startError(`${reason}. See postern --help.`, cause);
  }
}

function portOf(flag: string, text: string): number {
  const port = Number(text);
  if (/^\d{1,5}$/.test(text) && port <= 65_535) return port;
  throw startError(`${flag} ${text}: a port is a number from 0 to 65535; 0 takes a free one.`);
}
