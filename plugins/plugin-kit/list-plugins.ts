import { z } from 'zod';
import type { OwnerCall } from '../../core/cli/command.js';
import { dataFolderAt } from '../../core/config/load.js';
import type { StartOptions } from '../../core/main.js';
import type { CommandEnvironment } from '../../core/cli/command.js';
import { ownerOf } from '../../core/cli/owner-call.js';
import { startError } from '../../core/problem.js';
import { listText, type PluginList } from './plugin-list.js';
import { runTrial } from './trial.js';

export interface ListInput {
  readonly options: StartOptions;
  readonly json: boolean;
}

/** What `GET /pipeline` answers, as far as the list shows it. */
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
 * `postern plugin list`: asks the server that runs; without one, what the configuration names is started in a process of its
 * own and stopped again. Resolves with the exit status.
 */
export async function listPlugins({ options, json }: ListInput, place: CommandEnvironment): Promise<number> {
  const owner = await ownerOf(dataFolderAt({ overrides: options, cwd: place.cwd, env: place.env }));
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
