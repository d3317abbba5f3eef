import type { Log } from '../log/log.js';
import type { Program } from './plugin-program.js';
import { refusedOptions } from './plugin-refusal.js';
import type { RunningPlugin } from './running-plugin.js';
import { within } from './time-limit.js';

/**
 * Gives a running plugin other options, and returns the way back. One of the site may not take longer than its entry says; when
 * it takes them all the same, it gets the old ones behind them.
 *
 * @throws Problem `invalid` that names the plugin
 */
export async function giveOptions(
  running: RunningPlugin,
  { options, site }: Pick<Program, 'options' | 'site'>,
  log: Log,
): Promise<() => Promise<void>> {
  const { options: old, reconfigure } = running;
  const { name } = running.plugin;
  const seconds = site.get(name)?.entry.startSeconds;
  let underWay = false;
  const give = async (given: unknown): Promise<void> => {
    if (reconfigure === undefined) return;
    underWay = true;
    const taken = reconfigure(given).finally(() => (underWay = false));
    if (seconds === undefined) await taken;
    else await within(seconds * 1000, taken, `it has not taken them after ${seconds} s`);
  };
  try {
    await give(options.get(name));
  } catch (error) {
    if (underWay)
      give(old).catch((err: unknown) =>
        log.error({ plugin: name, err }, 'a plugin keeps options that were taken back'),
      );
    throw refusedOptions(name, error);
  }
  return () => give(old);
}
