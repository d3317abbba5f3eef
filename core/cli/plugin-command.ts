import type { CommandInput } from './command.js';
import type { CommandLine } from './command-line.js';
import { systemClock } from '../clock.js';
import type { LoadedConfiguration } from '../config/load.js';
import { shareDataFolder } from '../host/data-folder.js';
import { configure } from '../main.js';
import type { CommandEnvironment } from './command.js';
import type { Plugin, PluginCommand } from '../plugin.js';
import { usageError } from '../problem.js';
import { ProcessTerminal } from './terminal.js';

/**
 * Runs the command of a plugin that the first word names.
 *
 * @throws usage error when no plugin has it
 */
export async function runPluginCommand(
  { words, options, flags, settings }: CommandLine,
  place: CommandEnvironment,
): Promise<void> {
  const [name = '', ...args] = words;
  const configuration = await configure(options, place);
  for (const plugin of configuration.plugins) {
    const command = plugin.commands.find((candidate) => candidate.name === name);
    if (command === undefined) continue;
    const accepted: readonly string[] = command.flags ?? [];
    for (const flag of [...flags, ...settings.keys()]) {
      if (!accepted.includes(flag)) throw usageError(`postern ${name} takes no --${flag}.`);
    }
    return runAsOwner(plugin, command, { args, flags }, configuration);
  }
  throw usageError(`There is no command ${name}. See postern --help.`);
}

/** Calls a running server; without one this process holds the lock of the data folder while the command runs. */
async function runAsOwner(
  plugin: Plugin,
  command: PluginCommand,
  { args, flags }: Pick<CommandInput<unknown>, 'args' | 'flags'>,
  configuration: LoadedConfiguration,
): Promise<void> {
  const terminal = new ProcessTerminal();
  const { data, domains } = configuration;
  const { owner, lock } = await shareDataFolder(data);
  try {
    await command.run({
      args,
      flags,
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
