import { type BuiltInCommand, coreCommands } from '../core/cli/command-line.js';
import { doctorCommands } from './doctor/index.js';
import { pluginKitCommands } from './plugin-kit/index.js';
import { setupCommands } from './setup/index.js';

/** Commands that work without a valid configuration, in the order of `postern --help`. */
export const builtInCommands: readonly BuiltInCommand[] = [
  ...setupCommands,
  ...coreCommands,
  ...doctorCommands,
  ...pluginKitCommands,
];
