import { z } from 'zod';
import type { Clock } from '../clock.js';
import type { OwnerAnswer, OwnerCall } from '../contracts/server.js';
import { startError } from '../problem.js';

/** Options that many commands have: `--json`, `--dry-run`. */
export const commandFlags = ['json', 'dry-run'] as const;
export type CommandFlag = (typeof commandFlags)[number];

/** Every flag of the server, as `parseArgs` of Node.js takes them. */
export const serverFlags = {
  config: { type: 'string', short: 'c' },
  data: { type: 'string', short: 'd' },
  'http-port': { type: 'string' },
  'smtp-port': { type: 'string' },
  verbose: { type: 'boolean', short: 'v' },
  json: { type: 'boolean' },
  'dry-run': { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
  version: { type: 'boolean' },
} as const;

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
  /** Flags of its own by their names, lower-case words joined by `-`: `{ since: { value: 'DATE', summary: '…' } }`. */
  readonly ownFlags?: Readonly<Record<string, OwnFlag>>;
  /** It also runs before the first start, when there is no data folder. */
  readonly needsNoData?: true;
  /**
   * Exit status 1 when it throws, and 2 for a `usageError`.
   *
   * @throws start error or Problem with a sentence for the operator
   */
  run(input: CommandInput<O>): Promise<void>;
}

/** A flag of one command: `--since DATE`, or `--all`. */
export interface OwnFlag {
  /** One line for the help. */
  readonly summary: string;
  /** Name of its value in the help: `DATE`. Without one it takes no value. */
  readonly value?: string;
}

export interface CommandInput<O> {
  /** The words after the name of the command. */
  readonly args: readonly string[];
  /** The given ones of its options. */
  readonly flags?: ReadonlySet<CommandFlag> | undefined;
  /** The given ones of its own flags: the value, true for one that takes none. */
  readonly values: Readonly<Record<string, string | true>>;
  /** Validated options of the plugin. */
  readonly options: O;
  readonly configuration: CommandConfiguration;
  readonly terminal: Terminal;
  readonly clock: Clock;
  /** Undefined when no server runs: the caller then holds the lock of the data folder until `run` has ended. */
  readonly owner: OwnerCall | undefined;
}

/** @throws start error when no server runs */
export function runningServer(owner: OwnerCall | undefined): OwnerCall {
  if (owner === undefined) throw startError('No server runs over this data folder. Start it first: postern start');
  return owner;
}

const Refusal = z.object({
  title: z.string().optional(),
  detail: z.string().optional(),
  errors: z.array(z.object({ message: z.string() })).optional(),
});

/**
 * What the server has answered.
 *
 * @throws start error with its reason when it refused
 */
export function answered<T>({ status, body }: OwnerAnswer, schema: z.ZodType<T>): T {
  if (status >= 400) {
    const { title, detail, errors = [] } = Refusal.safeParse(body).data ?? {};
    const why = detail ?? title ?? `The running server refused this with status ${status}.`;
    throw startError([...new Set([why, ...errors.map(({ message }) => message)])].join('\n'));
  }
  const read = schema.safeParse(body);
  if (read.success) return read.data;
  throw startError('The running server gave an answer that cannot be understood: is it another version?');
}

/**
 * Asks before something is removed or returned. A command that is not on a terminal is not asked.
 *
 * @throws start error unless the answer is yes
 */
export async function confirm(terminal: Terminal, question: string): Promise<void> {
  if (!terminal.interactive) return;
  const answer = await terminal.ask(`${question} Type yes: `);
  if (answer.trim().toLowerCase() !== 'yes') throw startError('Nothing was changed.');
}

export interface CommandConfiguration {
  /** Absolute path of the data folder; it exists. */
  readonly data: string;
  /** Local domains, canonical; at least one. */
  readonly domains: readonly string[];
  readonly hostname: string;
}

/** Input and output of a command. */
export interface Terminal {
  /** True on a terminal: prompts are shown. Otherwise each question reads the next line of the standard input. */
  readonly interactive: boolean;
  /** Writes one or more lines to the standard output; adds the line end. */
  print(text: string): void;
  /** Asks on the standard error. The answer without its line end, echoed; empty at the end of the input. */
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
