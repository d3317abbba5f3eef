import { type CommandLine, completedCommands, findCommand, readCommandLine, usage, helpOf } from './command-line.js';
import { builtInCommands } from '../../plugins/commands.js';
import { version } from '../host/installation.js';
import type { CommandEnvironment } from './command.js';
import type { Plugin } from '../plugin.js';
import { exitStatusOf, sentenceOf } from '../problem.js';

const environment: CommandEnvironment = {
  cwd: process.cwd(),
  env: process.env,
  print: (text) => void process.stdout.write(`${text}\n`),
};

// A closed pipe is not an error and does not stop a server; any other error sets the exit status.
process.stdout.on('error', ({ code }: NodeJS.ErrnoException) => {
  if (code !== 'EPIPE') process.exitCode = 1;
});

void main();

async function main(): Promise<void> {
  try {
    process.exitCode = await run(readCommandLine(process.argv.slice(2)));
  } catch (error) {
    process.stderr.write(`${sentenceOf(error)}\n`);
    process.exitCode = exitStatusOf(error);
  }
}

/** Resolves with the exit status. */
async function run(line: CommandLine): Promise<number> {
  const [first = 'help', second = ''] = line.words;
  const isOurs = line.words.length === 0 || first === 'help' || first === 'completion';
  if (isOurs && line.unknown !== undefined) throw line.unknown;
  if (line.version) environment.print(version);
  else if (first === 'help') await help(second, line);
  else if (line.help) await help(first, line);
  else if (first === 'completion') await completion(second, line);
  else {
    const found = findCommand(builtInCommands, line);
    if (found !== undefined) return found.command.run(found.call, environment);
    await (await import('./plugin-command.js')).runPluginCommand(line, environment);
  }
  return 0;
}

/** About one command, or about all. */
async function help(word: string, line: CommandLine): Promise<void> {
  const { builtIns } = await import('../main.js');
  const about = helpOf(word, builtInCommands, builtIns) ?? helpOf(word, builtInCommands, await plugins(line, builtIns));
  environment.print(about ?? usage(builtInCommands, builtIns));
}

async function completion(shell: string, line: CommandLine): Promise<void> {
  const { builtIns } = await import('../main.js');
  const { completionScript } = await import('./completion.js');
  environment.print(completionScript(shell, completedCommands(builtInCommands, await plugins(line, builtIns))));
}

/** Those of the configuration, with the site's; the built-in ones where it cannot be read. */
async function plugins({ options }: CommandLine, builtIns: readonly Plugin[]): Promise<readonly Plugin[]> {
  const { configure } = await import('../main.js');
  return configure(options, environment).then(
    (configuration) => configuration.plugins,
    () => builtIns,
  );
}
