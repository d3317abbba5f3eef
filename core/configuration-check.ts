import { startError } from './start-error.js';
import { configure, type StartOptions, type Surroundings } from './main.js';

/** `postern config check`: says that there is no mistake, or throws the start error that names them all. */
export async function checkConfiguration(options: StartOptions, surroundings: Surroundings): Promise<number> {
  const { file, plugins, unloaded } = await configure(options, surroundings);
  if (unloaded.length > 0) throw startError(unloaded.map(({ why }) => why).join('\n'));
  const names = plugins.map(({ name }) => name).join(', ');
  surroundings.print(`${file ?? 'No configuration file here: the defaults'} — no mistakes found. Plugins: ${names}.`);
  return 0;
}
