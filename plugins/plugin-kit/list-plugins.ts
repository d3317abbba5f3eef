import { z } from 'zod';
import type { CommandEnvironment } from '../../core/cli/command.js';
import type { OwnerCall } from '../../core/contracts/server.js';
import { lockOwner } from '../../core/host/owner-call.js';
import { dataFolderAt } from '../../core/config/load.js';
import type { StartOptions } from '../../core/main.js';
import { startError } from '../../core/problem.js';
import { runTrial } from './trial.js';

/** The part of `GET /pipeline` that the list shows. */
const Pipeline = z.object({
  plugins: z.array(
    z.object({
      name: z.string(),
      from: z.string().nullable(),
      state: z.string(),
      needs: z.array(z.string()),
      uses: z.array(z.string()),
      provides: z.array(z.string()),
      targets: z.array(z.string()),
      endpoints: z.int(),
      waiting: z.string().nullable(),
      lastFault: z.object({ at: z.string(), where: z.string(), message: z.string() }).nullable(),
    }),
  ),
  hooks: z.array(
    z.object({ stage: z.string(), phase: z.string(), plugin: z.string(), mode: z.enum(['enforce', 'shadow']) }),
  ),
});

/**
 * `postern plugin list`: asks the running server; without one, starts the configured plugins in a process of its own
 * and stops them again. Resolves with the exit status.
 */
export async function listPlugins(
  {
    options,
    json,
  }: {
    readonly options: StartOptions;
    readonly json: boolean;
  },
  place: CommandEnvironment,
): Promise<number> {
  const owner = await lockOwner(dataFolderAt({ overrides: options, cwd: place.cwd, env: place.env }));
  const list = owner === undefined ? await fromConfiguration(options, place) : await fromServer(owner);
  place.print(json ? JSON.stringify(list, null, 2) : listText(list));
  return 0;
}

async function fromServer(ask: OwnerCall): Promise<PluginList> {
  const { status, body } = await ask('GET', '/pipeline');
  if (status === 404) throw startError('The running server does not say: switch its plugin pipeline on.');
  return listOf('server', body);
}

async function fromConfiguration(options: StartOptions, { cwd, env }: CommandEnvironment): Promise<PluginList> {
  const { pipeline, findings } = await runTrial({ path: null, options, cwd, env });
  if (pipeline === undefined) throw startError(findings.map(({ message }) => message).join('\n'));
  return listOf('configuration', pipeline);
}

function listOf(source: PluginList['source'], answer: unknown): PluginList {
  const read = Pipeline.safeParse(answer);
  if (read.success) return { source, ...read.data };
  throw startError('The server that runs is of another version than this command: restart it.', read.error);
}

/** One plugin as `postern plugin list` shows it. */
export interface ListedPlugin {
  readonly name: string;
  /** The element of `sitePlugins` that it comes from; null for a built-in one. */
  readonly from: string | null;
  readonly state: string;
  /** Ids of services. */
  readonly needs: readonly string[];
  readonly uses: readonly string[];
  readonly provides: readonly string[];
  /** Names of its delivery targets. */
  readonly targets: readonly string[];
  /** Number of them. */
  readonly endpoints: number;
  /** Why its newest code or options need a restart. */
  readonly waiting: string | null;
  /** The most recent fault; null for none. */
  readonly lastFault: { readonly at: string; readonly where: string; readonly message: string } | null;
}

export interface ListedHook {
  readonly stage: string;
  readonly phase: string;
  readonly plugin: string;
  readonly mode: 'enforce' | 'shadow';
}

export interface PluginList {
  /** Whether a running server was asked, or the configured plugins were started for this. */
  readonly source: 'server' | 'configuration';
  /** In start order. */
  readonly plugins: readonly ListedPlugin[];
  /** In call order. */
  readonly hooks: readonly ListedHook[];
}

/** The list as text: plugins, their dependencies, and hooks in call order. */
export function listText({ source, plugins, hooks }: PluginList): string {
  const providers = new Map(plugins.flatMap(({ name, provides }) => provides.map((id) => [id, name] as const)));
  const where = source === 'server' ? 'The server runs' : 'No server runs; the configuration names';
  return [
    `${where} these plugins, in the order of their start:`,
    ...plugins.flatMap((plugin) => ['', ...pluginLines(plugin, providers)]),
    '',
    'Hooks, in the order they are asked:',
    '',
    ...(hooks.length === 0 ? ['  none'] : hookLines(hooks)),
  ].join('\n');
}

function pluginLines(plugin: ListedPlugin, providers: ReadonlyMap<string, string>): readonly string[] {
  const { name, from, state, needs, uses, provides, targets, endpoints, waiting, lastFault } = plugin;
  const lent = (id: string) => `${providers.get(id) ?? 'nobody'} (${wordOf(id)})`;
  const rows: readonly (readonly [string, readonly string[]])[] = [
    ['needs', needs.filter((id) => providers.has(id) || !isOurs(id)).map(lent)],
    ['uses', uses.filter((id) => providers.has(id)).map(lent)],
    ['provides', provides.map(wordOf)],
    ['targets', targets],
    ['endpoints', endpoints === 0 ? [] : [String(endpoints)]],
    ['waiting', waiting === null ? [] : [waiting]],
    ['fault', lastFault === null ? [] : [`${lastFault.where}, ${lastFault.at}: ${lastFault.message}`]],
  ];
  const heading = [name, ...(from === null ? [] : [from]), ...(state === 'running' ? [] : [state])].join('  ');
  return [heading, ...rows.filter(([, list]) => list.length > 0).map(([key, list]) => row(key, list))];
}

/** Services that no plugin provides come from the server itself and are left out. */
const isOurs = (id: string): boolean => id.startsWith('postern.');

const wordOf = (id: string): string => id.replace(/^postern\./, '');

const row = (key: string, list: readonly string[]): string => `  ${key.padEnd(10)} ${list.join(', ')}`;

/** One line per stage and phase. */
function hookLines(hooks: readonly ListedHook[]): readonly string[] {
  const places = new Map<string, string[]>();
  for (const { stage, phase, plugin, mode } of hooks) {
    const place = `  ${stage.padEnd(9)} ${phase.padEnd(8)}`;
    const name = mode === 'shadow' ? `${plugin} (shadow)` : plugin;
    places.set(place, [...(places.get(place) ?? []), name]);
  }
  return [...places].map(([place, names]) => `${place} ${names.join(', ')}`);
}
