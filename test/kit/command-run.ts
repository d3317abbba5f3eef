import type { CommandInput, Terminal } from '../../core/cli/command.js';
import { helpOf, pluginCall, readCommandLine } from '../../core/cli/command-line.js';
import type { OwnerCall } from '../../core/contracts/server.js';
import type { PluginCommand } from '../../core/plugin.js';
import { exitStatusOf, isProblem, isStartError } from '../../core/problem.js';

/** What a command has said. */
export interface CommandResult {
  /** Exit status: 1 when it refused, 2 for wrong usage. */
  readonly status: 0 | 1 | 2;
  /** What it printed, its questions among it. */
  readonly output: string;
  /** The sentence with which it refused; empty if it did not. */
  readonly error: string;
}

/** A terminal of which the answers are known before. */
class ScriptedTerminal implements Terminal {
  readonly interactive = true;
  readonly printed: string[] = [];
  readonly #answers: string[];

  constructor(answers: readonly string[]) {
    this.#answers = [...answers];
  }

  print(text: string): void {
    this.printed.push(`${text}\n`);
  }

  ask(question: string): Promise<string> {
    this.printed.push(question);
    return Promise.resolve(this.#answers.shift() ?? '');
  }

  askSecret(question: string): Promise<string> {
    return this.ask(question);
  }
}

export interface CommandRunInput extends Omit<
  CommandInput<unknown>,
  'terminal' | 'owner' | 'args' | 'flags' | 'values'
> {
  /** The name of the command and what follows it, flags among it. */
  readonly words: readonly string[];
  /** What is typed when the command asks, one after the other; then nothing. */
  readonly answers: readonly string[];
  readonly owner: OwnerCall;
}

/** Runs a command beside a server that runs. Rejects with what the command does not mean for the operator. */
export async function runCommand(command: PluginCommand, input: CommandRunInput): Promise<CommandResult> {
  const { answers, words, ...rest } = input;
  const terminal = new ScriptedTerminal(answers);
  try {
    if (readCommandLine(words).help) terminal.print(helpOf(command.name, [], [{ commands: [command] }]) ?? '');
    else await command.run({ ...rest, ...pluginCall(command, words), terminal });
    return { status: 0, output: terminal.printed.join(''), error: '' };
  } catch (error) {
    if (!isStartError(error) && !isProblem(error)) throw error;
    return { status: exitStatusOf(error), output: terminal.printed.join(''), error: error.message };
  }
}
