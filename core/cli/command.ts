import type { Clock } from '../clock.js';
import type { OwnerCall } from '../contracts/server.js';

/** Options of single commands: `--json`, `--typescript`, `--dry-run`. */
export const commandFlags = ['json', 'typescript', 'dry-run'] as const;
export type CommandFlag = (typeof commandFlags)[number];

/**
 * A command of a plugin: `postern user add anna@example.org` runs the command `user` with the other words.
 *
 * It works with and without a running server: `owner` reaches the process that owns the data folder; without one, the
 * command owns the folder while it runs and may write there what its plugin writes.
 */
export interface Command<O> {
  /** One lower-case word, unique among all plugins. */
  readonly name: string;
  /** One line for `postern --help`. */
  readonly summary: string;
  /** Lines as `postern --help` and wrong usage show them: `postern user add NAME`. */
  readonly usage: readonly string[];
  /** Options that it accepts: `dry-run` for `--dry-run`. */
  readonly flags?: readonly CommandFlag[];
  /**
   * Exit status 1 when it throws.
   *
   * @throws start error or Problem with a sentence for the operator
   */
  run(input: CommandInput<O>): Promise<void>;
}

export interface CommandInput<O> {
  /** The words after the name of the command. */
  readonly args: readonly string[];
  /** The given ones of its options. */
  readonly flags?: ReadonlySet<CommandFlag> | undefined;
  /** Validated options of the plugin. */
  readonly options: O;
  readonly configuration: CommandConfiguration;
  readonly terminal: Terminal;
  readonly clock: Clock;
  /** Undefined when no server runs: the caller then holds the lock of the data folder until `run` has ended. */
  readonly owner: OwnerCall | undefined;
}

export interface CommandConfiguration {
  /** Absolute path of the data folder; it exists. */
  readonly data: string;
  /** Local domains, canonical; at least one. */
  readonly domains: readonly string[];
}

/** Input and output of a command. */
export interface Terminal {
  /** True on a terminal: prompts are shown. Otherwise each question reads the next line of the standard input. */
  readonly interactive: boolean;
  /** Writes one or more lines to the standard output; adds the line end. */
  print(text: string): void;
  /** The answer without its line end, echoed; empty at the end of the input. */
  ask(question: string): Promise<string>;
  /** The same without echo. */
  askSecret(question: string): Promise<string>;
}

/** Environment of a CLI command: working directory, variables, output. */
export interface CommandEnvironment {
  readonly cwd: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly print: (text: string) => void;
}

/** How the operator calls the command: `npx postern` in a checkout and in npm scripts. */
export const programName = ({ env }: Pick<CommandEnvironment, 'env'>): string =>
  env['npm_lifecycle_event'] === undefined ? 'postern' : 'npx postern';
