import { isStartError, startError } from './start-error.js';
import type { LoadedConfiguration } from './config/load.js';
import { adminPasswordComplaint } from './http/accounts.js';
import { openDoors } from './doctor/access-checks.js';
import { configure, type StartOptions, type Surroundings } from './main.js';
import { readTlsMaterial } from './smtp/tls-material.js';

/**
 * `postern config check`: says that there is no mistake, and which doors stand open, which may be meant so; or throws the start error
 * that names all mistakes.
 */
export async function checkConfiguration(options: StartOptions, surroundings: Surroundings): Promise<number> {
  const configuration = await configure(options, surroundings);
  const { file, plugins, unloaded } = configuration;
  const adminPassword = adminPasswordComplaint(surroundings.env['POSTERN_ADMIN_PASSWORD']);
  const complaints = [
    ...(adminPassword === undefined ? [] : [adminPassword]),
    ...unloaded.map(({ why }) => why),
    ...certificateComplaints(configuration),
  ];
  if (complaints.length > 0) throw startError(complaints.join('\n'));
  const names = plugins.map(({ name }) => name).join(', ');
  surroundings.print(`${file ?? 'No configuration file here: the defaults'} — no mistakes found. Plugins: ${names}.`);
  for (const { is, todo } of openDoors({ configuration, env: surroundings.env })) {
    surroundings.print(`Is that meant so? ${is} ${todo ?? ''}`.trimEnd());
  }
  surroundings.print('Not looked at: ports, the data folder, and files that plugins read. See postern doctor.');
  return 0;
}

/** Without its certificate a listener stops the start. */
function certificateComplaints({ settings, folder }: LoadedConfiguration): readonly string[] {
  return settings.smtp.listeners.flatMap((listener) => {
    try {
      readTlsMaterial(listener, folder);
      return [];
    } catch (error) {
      if (!isStartError(error)) throw error;
      return [error.message];
    }
  });
}
