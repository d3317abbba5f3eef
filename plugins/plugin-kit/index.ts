import { programName } from '../../core/cli/command.js';
import type { BuiltInCommand } from '../../core/cli/command-line.js';

/** Commands for plugin authors. */
export const pluginKitCommands: readonly BuiltInCommand[] = [
  {
    words: 'plugin new',
    takes: ['NAME'],
    ownFlags: { typescript: { summary: 'in TypeScript' } },
    flags: ['json'],
    summary: 'create a working plugin in ./NAME',
    run: async ({ args: [name = ''], flags, values }, { cwd, env, print }) => {
      const { newPlugin, nextSteps, stripsTypes } = await import('./new-plugin.js');
      const language = values['typescript'] === true ? 'typescript' : 'javascript';
      const plugin = await newPlugin({ name, language, cwd, stripsTypes });
      print(flags.has('json') ? JSON.stringify(plugin, null, 2) : nextSteps(plugin, programName({ env })));
      return 0;
    },
  },
  {
    words: 'plugin check',
    takes: ['PATH'],
    flags: ['json'],
    summary: 'test that a plugin loads, without starting the server',
    run: async ({ args: [path = ''], flags, options }, environment) => {
      const { checkPlugin } = await import('./trial.js');
      return checkPlugin({ path, options, json: flags.has('json') }, environment);
    },
  },
  {
    words: 'plugin list',
    flags: ['json'],
    summary: 'list plugins, their dependencies, and the order of their hooks',
    run: async ({ flags, options }, environment) => {
      const { listPlugins } = await import('./list-plugins.js');
      return listPlugins({ options, json: flags.has('json') }, environment);
    },
  },
  {
    words: 'plugin test',
    takes: ['PATH'],
    summary: 'run the tests in the folder of a plugin',
    run: async ({ args: [path = ''] }, { cwd }) => (await import('./test-plugin.js')).testPlugin(path, cwd),
  },
];
