import { type BuiltInCommand, coreCommands } from '../core/cli/command-line.js';
import { doctorCommands } from './doctor/index.js';
import { pluginKitCommands } from './plugin-kit/index.js';

/** Commands that work without a valid configuration, in the order of `postern --help`. */
export const builtInCommands: readonly BuiltInCommand[] = [...coreCommands, ...doctorCommands, ...pluginKitCommands];
