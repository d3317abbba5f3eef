import type { Clock } from '../clock.js';

/** Options that only some commands take: `--json`, `--typescript`, `--dry-run`. */
export const commandFlags = ['json', 'typescript', 'dry-run'] as const;
export type CommandFlag = (typeof commandFlags)[number];

/**
 * A command of a plugin: `postern user add anna@example.org` runs the command `user` with the words behind it.
 *
 * It works whether or not a server runs: `owner` reaches the process that owns the data folder; without one the command
 * owns the folder itself while it runs, and may write there what its plugin writes.
 */
export interface Command<O> {
  /** One lower-case word, unique among all plugins. */
  readonly name: string;
  /** One line for `postern --help`. */
  readonly summary: string;
  /** Lines as `postern --help` and wrong usage show them: `postern user add NAME`. */
  readonly usage: readonly string[];
  /** Options that it takes: `dry-run` for `--dry-run`. */
  readonly flags?: readonly CommandFlag[];
  /** Throws a start error, or a problem, with a sentence for the operator: then the exit status is 1. */
  run(input: CommandInput<O>): Promise<void>;
}

export interface CommandInput<O> {
  /** The words behind the name of the command. */
  readonly args: readonly string[];
  /** Those of its options that were given. */
  readonly flags?: ReadonlySet<CommandFlag> | undefined;
  /** The plugin's checked options. */
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

/** Where a command writes and asks. */
export interface Terminal {
  /** A person sits there: prompts are shown. Otherwise every question takes the next line of the standard input. */
  readonly interactive: boolean;
  /** One line or several to the standard output; a line end is added. */
  print(text: string): void;
  /** The answer without its line end; what is typed is shown. Empty at the end of the input. */
  ask(question: string): Promise<string>;
  /** The same, but nothing that is typed is shown. */
  askSecret(question: string): Promise<string>;
}

export interface OwnerAnswer {
  readonly status: number;
  /** Parsed JSON; a problem document when the status is 400 or more. */
  readonly body: unknown;
}

/**
 * Asks the running server over HTTP, with the role `admin` and as JSON. Statuses of 400 and more are answers, not errors;
 * throws a start error when the server cannot be reached.
 *
 * @param path absolute, its parameters already encoded: `/users/anna%40example.org`
 */
export type OwnerCall = (
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE',
  path: string,
  body?: unknown,
) => Promise<OwnerAnswer>;

/** Environment of a CLI command: working directory, variables, output. The process, or a test. */
export interface CommandEnvironment {
  readonly cwd: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly print: (text: string) => void;
}

/** How an operator calls the command: in a checkout, and wherever npm runs it, with npx. */
export const programName = ({ env }: Pick<CommandEnvironment, 'env'>): string =>
  env['npm_lifecycle_event'] === undefined ? 'postern' : 'npx postern';
