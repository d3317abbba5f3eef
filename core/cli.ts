import { version } from './app.js';
import { readCommandLine, type CommandLine } from './cli-arguments.js';
import { systemClock } from './clock.js';
import type { LoadedConfiguration } from './config/load.js';
import { shareDataFolder } from './data-folder.js';
import { builtIns, configure, start, type RunningServer, type Surroundings } from './main.js';
import type { Plugin, PluginCommand } from './plugin.js';
import { isProblem } from './problem.js';
import { redactText } from './redact.js';
import { isStartError, startError } from './start-error.js';
import { ProcessTerminal } from './terminal.js';
import { usage } from './usage.js';

const surroundings: Surroundings = {
  cwd: process.cwd(),
  env: process.env,
  print: (text) => void process.stdout.write(`${text}\n`),
};

try {
  await run(readCommandLine(process.argv.slice(2)));
} catch (error) {
  process.stderr.write(`${sentenceOf(error)}\n`);
  process.exitCode = 1;
}

async function run(line: CommandLine): Promise<void> {
  const [command, ...rest] = line.words;
  if (line.version) surroundings.print(version);
  else if (line.help || command === undefined || command === 'help') surroundings.print(usage(builtIns));
  else if (command === 'start' && rest.length === 0) await serve(line);
  else if (command === 'config' && rest.join(' ') === 'check') await checkConfiguration(line);
  else await runPluginCommand(command, rest, line);
}

async function checkConfiguration({ options }: CommandLine): Promise<void> {
  const { file, plugins } = await configure(options, surroundings);
  const names = plugins.map(({ name }) => name).join(', ');
  surroundings.print(`${file ?? 'No configuration file here: the defaults'} — no mistakes found. Plugins: ${names}.`);
}

/**
 * Runs until SIGTERM or SIGINT, heard from the first moment on; a second signal does not wait for sessions. SIGHUP, which
 * would end a process that does not listen to it, brings a changed configuration into force.
 */
async function serve({ options }: CommandLine): Promise<void> {
  const signalled = nextSignal();
  let reload = (): Promise<void> => Promise.resolve();
  process.on('SIGHUP', () => void reload());
  const server = await start(options, surroundings);
  reload = () => reloadBySignal(server);
  const signal = await signalled;
  const { shutdownSeconds } = server.app.configuration.current.settings;
  surroundings.print(`${signal}: finishing what runs, at most ${shutdownSeconds} s.`);
  void nextSignal().then(() => process.exit(1));
  await finish(server);
}

async function reloadBySignal({ app }: RunningServer): Promise<void> {
  try {
    const { changed, restartRequired } = await app.reloading.reload({ by: 'SIGHUP', unasked: true });
    surroundings.print(`SIGHUP: changed: ${listOf(changed)}; waiting for a restart: ${listOf(restartRequired)}.`);
  } catch (error) {
    const why = isProblem(error) ? redactText(sentenceOf(error)) : 'it failed; the log says why';
    surroundings.print(`SIGHUP: nothing changed: ${why}`);
  }
}

function listOf(keys: readonly string[]): string {
  return keys.join(', ') || 'nothing';
}

async function finish(server: RunningServer): Promise<void> {
  await server.stop();
  process.exit(0);
}

function nextSignal(): Promise<string> {
  return new Promise((resolve) => {
    for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, () => resolve(signal));
  });
}

async function runPluginCommand(name: string, args: readonly string[], { options }: CommandLine): Promise<void> {
  const configuration = await configure(options, surroundings);
  for (const plugin of configuration.plugins) {
    const command = plugin.commands.find((candidate) => candidate.name === name);
    if (command !== undefined) return runAsOwner(plugin, command, args, configuration);
  }
  throw startError(`There is no command ${name}. See postern --help.`);
}

/** A running server is asked over HTTP; without one this process owns the folder while the command runs. */
async function runAsOwner(
  plugin: Plugin,
  command: PluginCommand,
  args: readonly string[],
  configuration: LoadedConfiguration,
): Promise<void> {
  const terminal = new ProcessTerminal();
  const { data, domains } = configuration;
  const { owner, lock } = await shareDataFolder(data);
  try {
    await command.run({
      args,
      options: configuration.options.get(plugin.name),
      configuration: { data, domains },
      terminal,
      clock: systemClock,
      owner,
    });
  } finally {
    terminal.close();
    await lock?.release();
  }
}

/** What an operator can act on is a sentence; only a fault of the program itself shows its stack. */
function sentenceOf(error: unknown): string {
  if (isProblem(error))
    return [...new Set([error.message, ...(error.details.errors ?? []).map(({ message }) => message)])].join('\n');
  if (isStartError(error)) return error.message;
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
