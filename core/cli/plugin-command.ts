import { existsSync } from 'node:fs';
import { type CommandLine, type PluginCall, pluginCall } from './command-line.js';
import { systemClock } from '../clock.js';
import type { LoadedConfiguration } from '../config/load.js';
import { shareDataFolder } from '../host/data-folder.js';
import { configure } from '../main.js';
import type { CommandEnvironment } from './command.js';
import type { Plugin, PluginCommand } from '../plugin.js';
import { usageError } from '../problem.js';
import { ProcessTerminal, withProgress } from './terminal.js';

/**
 * Runs the command of a plugin that the first word names.
 *
 * @throws usage error when no plugin has it
 */
export async function runPluginCommand(line: CommandLine, place: CommandEnvironment): Promise<void> {
  const [name = ''] = line.words;
  const configuration = await configure(line.options, place);
  for (const plugin of configuration.plugins) {
    const command = plugin.commands.find((candidate) => candidate.name === name);
    if (command === undefined) continue;
    return runAsOwner(plugin, command, pluginCall(command, line.argv), configuration);
  }
  throw line.unknown ?? usageError(`There is no command ${name}. See postern --help.`);
}

/** Calls a running server; without one this process holds the lock of the data folder while the command runs. */
async function runAsOwner(
  plugin: Plugin,
  command: PluginCommand,
  call: PluginCall,
  configuration: LoadedConfiguration,
): Promise<void> {
  const terminal = new ProcessTerminal();
  const { data, domains, hostname } = configuration;
  const isNew = command.needsNoData === true && !existsSync(data);
  const { owner, lock } = isNew ? { owner: undefined, lock: undefined } : await shareDataFolder(data);
  try {
    await command.run({
      ...call,
      options: configuration.options.get(plugin.name),
      configuration: { data, domains, hostname },
      terminal,
      clock: systemClock,
      owner: owner && ((...request) => withProgress('Waiting for the server', () => owner(...request))),
    });
  } finally {
    terminal.close();
    await lock?.release();
  }
}
