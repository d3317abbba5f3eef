import { inspect } from 'node:util';
import { UncaughtErrors } from '../host/uncaught.js';
import { start, type RunningServer, type StartOptions } from '../main.js';
import type { CommandEnvironment } from './command.js';
import { isProblem, sentenceOf } from '../problem.js';
import { withProgress } from './terminal.js';
import { redactText } from '../log/redact.js';

/**
 * `postern start`: runs until SIGTERM or SIGINT, handled from the beginning; a second signal does not wait for
 * sessions. SIGHUP reloads the configuration.
 */
export async function serve(options: StartOptions, environment: CommandEnvironment): Promise<never> {
  const signalled = nextSignal();
  let reload = (): Promise<void> => Promise.resolve();
  process.on('SIGHUP', () => void reload());
  const uncaught = handleUncaught();
  const server = await startWithProgress(options, environment);
  uncaught.reportTo((error) => server.app.plugins.reportUncaught(error));
  reload = () => reloadBySignal(server, environment);
  const signal = await signalled;
  const { shutdownSeconds } = server.app.configuration.current.settings;
  environment.print(`${signal}: finishing what runs, at most ${shutdownSeconds} s.`);
  void nextSignal().then(() => process.exit(1));
  await server.stop();
  process.exit(0);
}

/** A large queue takes seconds. The log of `--verbose` says enough. */
function startWithProgress(options: StartOptions, environment: CommandEnvironment): Promise<RunningServer> {
  if (options.verbose === true) return start(options, environment);
  return withProgress('Starting', (show) => {
    const print = (text: string): void => {
      show('');
      environment.print(text);
    };
    return start(options, { ...environment, print });
  });
}

/** Exits on errors that are not a plugin's. */
function handleUncaught(): UncaughtErrors {
  const uncaught = new UncaughtErrors();
  process.on('uncaughtException', (error: unknown, origin) => {
    if (uncaught.handle(error, origin)) return;
    process.stderr.write(`${inspect(error)}\n`);
    process.exit(1);
  });
  return uncaught;
}

async function reloadBySignal({ app }: RunningServer, { print }: CommandEnvironment): Promise<void> {
  try {
    const { changed, restartRequired, failed } = await app.reloading.reload({ by: 'SIGHUP', unasked: true });
    const broken = failed.length === 0 ? '' : `; failed again: ${listOf(failed.map(({ plugin }) => plugin))}`;
    print(`SIGHUP: changed: ${listOf(changed)}; waiting for a restart: ${listOf(restartRequired)}${broken}.`);
  } catch (error) {
    const why = isProblem(error) ? redactText(sentenceOf(error)) : 'it failed; the log says why';
    print(`SIGHUP: nothing changed: ${why}`);
  }
}

function listOf(keys: readonly string[]): string {
  return keys.join(', ') || 'nothing';
}

function nextSignal(): Promise<string> {
  return new Promise((resolve) => {
    for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, () => resolve(signal));
  });
}
