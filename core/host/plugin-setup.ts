import type { Log } from '../log/log.js';
import type { Plugin } from '../plugin.js';
import { tokensOf, type Program } from './plugin-program.js';
import { RunningPlugin, type ContextFactory, type FaultSink } from './running-plugin.js';
import type { Services } from './service.js';
import { within } from './time-limit.js';

export interface SetupInput {
  readonly contextOf: ContextFactory;
  readonly log: Log;
  readonly failed?: FaultSink;
}

/**
 * Runs the `setup` of a plugin with its options and the services that it is lent. One of the site may not take longer than its
 * entry says. When it fails, everything it had opened is released.
 */
export async function setUpPlugin(
  plugin: Plugin,
  { options, site }: Pick<Program, 'options' | 'site'>,
  services: ReadonlyMap<string, unknown>,
  { contextOf, log, failed }: SetupInput,
): Promise<RunningPlugin> {
  const { name, needs, uses } = plugin;
  const lacking = tokensOf(needs).find((id) => !services.has(id));
  if (lacking !== undefined) throw new Error(`it needs ${lacking}, whose plugin has failed`);
  const running = new RunningPlugin(plugin, log, failed);
  const ready = running.setup(contextOf, { ...lentTo(uses, services), ...lentTo(needs, services) }, options.get(name));
  const seconds = site.get(name)?.entry.startSeconds;
  if (seconds === undefined) await ready;
  else {
    await within(seconds * 1000, ready, `it has not started after ${seconds} s`).catch((error: unknown) => {
      void running.stop();
      throw error;
    });
  }
  return running;
}

function lentTo(services: Services, all: ReadonlyMap<string, unknown>): Readonly<Record<string, unknown>> {
  return Object.fromEntries(Object.entries(services).map(([key, { id }]) => [key, all.get(id)]));
}
