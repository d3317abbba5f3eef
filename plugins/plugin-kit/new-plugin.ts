import { lstat, mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { startError } from '../../core/problem.js';
import { parsePluginName } from './plugin-name.js';
import { skeletonOf, type PluginLanguage } from './plugin-skeleton.js';

export interface NewPluginInput {
  readonly name: string;
  readonly language: PluginLanguage;
  /** The folder in which the plugin's own is made. */
  readonly cwd: string;
  /** Whether this Node.js runs TypeScript as it is. */
  readonly stripsTypes: boolean;
  /** How the command is called here: `npx postern`. */
  readonly program: string;
}

/** Whether this Node.js runs TypeScript as it is, its types left out. */
const { typescript } = process.features as { readonly typescript?: unknown };
export const stripsTypes = typescript === 'strip' || typescript === 'transform';

/**
 * `postern plugin new NAME`: writes the skeleton to `./NAME`, whole or not at all.
 *
 * @returns what to do next
 * @throws start error for a name that cannot be, or when something of that name is there
 */
export async function newPlugin(input: NewPluginInput): Promise<string> {
  const { language, cwd, stripsTypes, program } = input;
  const name = parsePluginName(input.name);
  if (language === 'typescript' && !stripsTypes) throw startError(noTypeScript);
  const folder = join(cwd, name.name);
  const files = skeletonOf({ name, language, folder });
  await refusePresent(folder, name.name);
  await writeWhole(folder, files).catch((cause: unknown) => {
    const { code = String(cause) } = cause as NodeJS.ErrnoException;
    throw startError(`./${name.name} cannot be written in ${cwd} (${code}).`, cause);
  });
  return nextSteps(program, name.name, [...files.keys()]);
}

const noTypeScript = `This Node.js (${process.version}) does not run TypeScript; from version 22.18 on it does. Without --typescript the plugin is JavaScript whose types an editor knows all the same.`;

async function refusePresent(folder: string, name: string): Promise<void> {
  const present = await lstat(folder).catch(() => undefined);
  if (present !== undefined) {
    throw startError(`./${name} is there already and stays as it is: choose another name, or move it away.`);
  }
}

/** In a folder beside it, which then gets the name: nobody loads a half. */
async function writeWhole(folder: string, files: ReadonlyMap<string, string>): Promise<void> {
  const beside = `${folder}.new-${process.pid}`;
  await mkdir(beside);
  try {
    for (const [path, text] of files) {
      await mkdir(dirname(join(beside, path)), { recursive: true });
      await writeFile(join(beside, path), text);
    }
    await rename(beside, folder);
  } catch (error) {
    await rm(beside, { recursive: true, force: true });
    throw error;
  }
}

const nextSteps = (
  program: string,
  name: string,
  files: readonly string[],
  main = files.includes('index.ts') ? 'index.ts' : 'index.js',
) =>
  [
    `./${name} is a plugin that works: ${files.toSorted().join(', ')}.`,
    '',
    'Next',
    ...[
      [`${program} plugin test ./${name}`, 'its own tests'],
      [`${program} plugin check ./${name}`, 'what a start would say, without one'],
      [`sitePlugins: ['./${name}'],`, 'in postern.json5, to have it run'],
      [`${program} start`, 'or, while the server runs: POST /config/reload, or kill -HUP'],
    ].map(([step = '', does = '']) => `  ${step.padEnd(19 + program.length + name.length)} ${does}`),
    '',
    `Its page is /${name}, its code ${name}/${main}; docs/plugins.md says what else a plugin can do.`,
  ].join('\n');
