import { z } from 'zod';
import { answered, type CommandEnvironment } from '../../core/cli/command.js';
import { maskedValue } from '../../core/config/masking.js';
import type { EffectiveValue } from '../../core/contracts/server.js';
import { lockOwner } from '../../core/host/owner-call.js';
import { builtIns, configure, type StartOptions } from '../../core/main.js';
import type { Plugin } from '../../core/plugin.js';
import { editorSchema, referenceText } from './configuration-schema.js';

const Shown = z.object({
  key: z.string(),
  value: z.unknown(),
  origin: z.string(),
  where: z.string().nullable(),
  pending: z.unknown().optional(),
});
type Shown = z.output<typeof Shown>;
const Answer = z.object({ sections: z.array(z.object({ items: z.array(Shown) })) });

interface ShowCall {
  readonly text: string | undefined;
  readonly options: StartOptions;
  readonly json: boolean;
}

/**
 * `postern config show`: the settings of the running server, else those that a start would have. Secrets are masked.
 */
export async function showSettings(
  { text = '', options, json }: ShowCall,
  environment: CommandEnvironment,
): Promise<number> {
  const configuration = await configure(options, environment);
  const owner = await lockOwner(configuration.data);
  const query = new URLSearchParams({ q: text });
  const settings: readonly (Shown | EffectiveValue)[] =
    owner === undefined
      ? configuration
          .effective()
          .map(maskedValue)
          .filter((entry) => holds(entry, text))
      : answered(await owner('GET', `/config?${query.toString()}`), Answer).sections.flatMap(({ items }) => items);
  if (json) environment.print(JSON.stringify(settings, null, 2));
  else for (const setting of settings) environment.print(lineOf(setting));
  return 0;
}

/** The words of the text, as the page finds them. */
function holds({ key, value, description, where }: EffectiveValue, text: string): boolean {
  const all = `${key} ${JSON.stringify(value)} ${description ?? ''} ${where ?? ''}`.toLowerCase();
  return text
    .toLowerCase()
    .split(/\s+/)
    .every((word) => all.includes(word));
}

function lineOf({ key, value, origin, where, pending }: Shown): string {
  const waiting = pending === undefined ? '' : `; ${JSON.stringify(pending)} after a restart`;
  if (value === null && origin === 'default' && waiting === '') return `${key} is not set`;
  return `${key} = ${JSON.stringify(value)}  (${origin}${where === null ? '' : `: ${where}`}${waiting})`;
}

/** `postern config schema`: also of the options of site plugins. */
export async function printSchema(options: StartOptions, environment: CommandEnvironment): Promise<number> {
  environment.print(editorSchema(await pluginsOf(options, environment)).trimEnd());
  return 0;
}

/** `postern config reference`: docs/configuration.md, with the options of site plugins. */
export async function printReference(options: StartOptions, environment: CommandEnvironment): Promise<number> {
  environment.print(referenceText(await pluginsOf(options, environment)).trimEnd());
  return 0;
}

/** Those that are built in, also when they are switched off, and those of the site. */
async function pluginsOf(options: StartOptions, environment: CommandEnvironment): Promise<readonly Plugin[]> {
  const { plugins } = await configure(options, environment);
  return [...builtIns, ...plugins.filter(({ name }) => !builtIns.some((plugin) => plugin.name === name))];
}
