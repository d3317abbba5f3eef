import { join } from 'node:path';
import { coreServices } from '../../core/app.js';
import { systemClock } from '../../core/clock.js';
import type { LoadedConfiguration } from '../../core/config/load.js';
import { adminPasswordComplaint } from '../../core/http/accounts.js';
import { exposureFindings } from './access-checks.js';
import { Views } from '../../core/http/views.js';
import { packageRoot } from '../../core/host/installation.js';
import { configure, type StartOptions } from '../../core/main.js';
import type { CommandEnvironment } from '../../core/cli/command.js';
import { readPair, readTlsMaterial } from '../../core/net/tls-material.js';
import { startOrderOf } from '../../core/host/plugin-set.js';
import { isProblem, isStartError, startError } from '../../core/problem.js';

/**
 * `postern config check`: prints that the configuration is valid, with exposure warnings, which may be intended; or
 * throws the start error with all mistakes. As JSON it prints `{ file, mistakes, warnings: [{ is, todo }] }`.
 *
 * @returns the exit status
 */
export async function checkConfiguration(
  options: StartOptions,
  environment: CommandEnvironment,
  json = false,
): Promise<number> {
  if (json) return printJson(options, environment);
  const configuration = await faultless(options, environment);
  const { file, plugins } = configuration;
  const names = plugins.map(({ name }) => name).join(', ');
  environment.print(`${file ?? 'No configuration file here: the defaults'} — no mistakes found. Plugins: ${names}.`);
  for (const { is, todo } of exposureFindings({ configuration, env: environment.env })) {
    environment.print(`Warning: ${is} ${todo ?? ''}`.trimEnd());
  }
  environment.print(
    'Not looked at: ports, the data folder, and what plugins of the site do when they start. See postern doctor.',
  );
  return 0;
}

async function printJson(options: StartOptions, environment: CommandEnvironment): Promise<number> {
  const print = (answer: object): void => environment.print(JSON.stringify(answer, null, 2));
  try {
    const configuration = await faultless(options, environment);
    const warnings = exposureFindings({ configuration, env: environment.env }).map(({ is, todo }) => ({ is, todo }));
    print({ file: configuration.file, mistakes: [], warnings });
    return 0;
  } catch (error) {
    if (!isStartError(error)) throw error;
    print({ file: options.config, mistakes: error.message.split('\n'), warnings: [] });
    return 1;
  }
}

/** @throws start error with all mistakes, a line each */
async function faultless(options: StartOptions, environment: CommandEnvironment): Promise<LoadedConfiguration> {
  const configuration = await configure(options, environment);
  const { https } = configuration.settings.http;
  const adminPassword = adminPasswordComplaint(environment.env['POSTERN_ADMIN_PASSWORD']);
  const views = new Views({ root: join(packageRoot, 'views'), asset: String, clock: systemClock });
  const complaints = [
    ...(adminPassword === undefined ? [] : [adminPassword]),
    ...configuration.unloaded.map(({ why }) => why),
    ...complaintsOf(() => startOrderOf(configuration, coreServices)),
    ...configuration.plugins.flatMap(({ name, verify }) =>
      complaintsOf(() => verify?.(configuration.options.get(name), configuration)),
    ),
    ...complaintsOf(() => views.prepareOverrides(configuration.settings.http.viewOverrides)),
    ...configuration.settings.smtp.listeners.flatMap((listener) =>
      // A listener without its certificate stops the start.
      complaintsOf(() => readTlsMaterial(listener, configuration.folder)),
    ),
    ...complaintsOf(() => (https?.key === undefined ? undefined : readPair(https, 'HTTPS', configuration.folder))),
  ];
  if (complaints.length > 0) throw startError(complaints.join('\n'));
  return configuration;
}

/** A start error as a sentence. */
function complaintsOf(read: () => unknown): readonly string[] {
  try {
    read();
    return [];
  } catch (error) {
    if (isProblem(error)) return [error.details.detail ?? error.message];
    if (!isStartError(error)) throw error;
    return [error.message];
  }
}
