import { existsSync, readdirSync, readFileSync, realpathSync } from 'node:fs';
import { lstat, mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { basename, dirname, join, relative, sep } from 'node:path';
import { kitVersion } from '../../core/host/declaration.js';
import { packageRoot } from '../../core/host/installation.js';
import { startError } from '../../core/problem.js';
import { columns, wrapped } from '../../core/text/columns.js';

export interface NewPluginInput {
  readonly name: string;
  readonly language: PluginLanguage;
  /** The folder in which the plugin's folder is created. */
  readonly cwd: string;
  /** True when this Node.js runs TypeScript files directly; otherwise the plugin is compiled by its own script. */
  readonly stripsTypes: boolean;
}

export interface WrittenPlugin {
  readonly name: string;
  /** Absolute. */
  readonly folder: string;
  /** In that folder, sorted. */
  readonly files: readonly string[];
  /** It has to be compiled before it runs. */
  readonly isCompiled: boolean;
}

/** True when this Node.js runs TypeScript files directly. */
const { typescript } = process.features as { readonly typescript?: unknown };
export const stripsTypes = typescript === 'strip' || typescript === 'transform';

/**
 * `postern plugin new NAME`: writes the skeleton to `./NAME`, all or nothing.
 *
 * @throws start error for an invalid name, or when the folder exists
 */
export async function newPlugin(input: NewPluginInput): Promise<WrittenPlugin> {
  const { language, cwd, stripsTypes } = input;
  const name = parsePluginName(input.name);
  const folder = join(cwd, name.name);
  const isCompiled = language === 'typescript' && !stripsTypes;
  const files = skeletonOf({ name, language, folder, isCompiled });
  await refusePresent(folder, name.name);
  await writeWhole(folder, files).catch((cause: unknown) => {
    const { code = String(cause) } = cause as NodeJS.ErrnoException;
    throw startError(`./${name.name} cannot be written in ${cwd} (${code}).`, cause);
  });
  return { name: name.name, folder, files: [...files.keys()].toSorted(), isCompiled };
}

async function refusePresent(folder: string, name: string): Promise<void> {
  const present = await lstat(folder).catch(() => undefined);
  if (present !== undefined) {
    throw startError(`./${name} is there already and stays as it is: choose another name, or move it away.`);
  }
}

/** Written to a temporary folder and renamed, so that no incomplete plugin can be loaded. */
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

/** What to do with a new plugin, as text; `program` is the command here: `npx postern`. */
export function nextSteps({ name, files, isCompiled }: WrittenPlugin, program: string): string {
  const steps = [
    ...(isCompiled
      ? [[`(cd ${name} && npm install && npm run build)`, 'compile it, as this Node.js runs no TypeScript']]
      : []),
    [`${program} plugin test ./${name}`, 'its own tests'],
    [`${program} plugin check ./${name}`, 'what a start would say, without one'],
    [`sitePlugins: ['./${name}'],`, 'in postern.json5, to have it run'],
    [`${program} start`, `or ${program} reload, while the server runs`],
  ];
  return [
    ...wrapped(`./${name} is a plugin that works: ${files.join(', ')}.`, columns),
    '',
    'Next',
    ...steps.map(([step = '', does = '']) => `  ${step.padEnd(19 + program.length + name.length)} ${does}`),
    '',
    `Its page is /${name}, its code ${name}/${files.includes('index.ts') ? 'index.ts' : 'index.js'}. What else a plugin can do:`,
    join(packageRoot, 'docs', 'plugins.md'),
  ].join('\n');
}

export type PluginLanguage = 'javascript' | 'typescript';

/** The files of a new plugin, by their path in its folder. */
export function skeletonOf({
  name,
  language,
  folder,
  isCompiled,
}: {
  readonly name: PluginName;
  readonly language: PluginLanguage;
  /** Absolute target folder; need not exist. */
  readonly folder: string;
  /** Its TypeScript is compiled before it runs, not run as it is. */
  readonly isCompiled: boolean;
}): ReadonlyMap<string, string> {
  const root = join(packageRoot, 'docs', 'skeleton');
  const written = readdirSync(root, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .map((path) => [path.slice(root.length + 1).replaceAll(sep, '/'), named(readFileSync(path, 'utf8'), name)] as const)
    .map(([path, text]) => (language === 'typescript' ? inTypeScript(path, text) : ([path, text] as const)));
  const extension = language === 'typescript' ? 'ts' : 'js';
  return new Map([
    ...written,
    ['package.json', json(manifest(name, { extension, isCompiled }, folder))],
    [
      language === 'typescript' ? 'tsconfig.json' : 'jsconfig.json',
      json(compilerConfiguration({ extension, isCompiled }, folder)),
    ],
  ]);
}

/** The skeletons are plugins themselves, called example-plugin. */
function named(text: string, { name, identifier, metric, title }: PluginName): string {
  return text
    .replaceAll('example-plugin', name)
    .replaceAll('example_plugin', metric)
    .replaceAll('examplePlugin', identifier)
    .replaceAll('Example plugin', title);
}

/** Converts types in comments to TypeScript: a type above a `const` moves after its name. */
function inTypeScript(path: string, text: string): readonly [string, string] {
  if (!path.endsWith('.js') || path.startsWith('assets/')) return [path, text];
  const typed = text.replaceAll(/^( *)\/\*\* @type \{(.+)\} \*\/\n( *const \w+) =/gm, '$3: $2 =');
  return [path.replace(/\.js$/, '.ts'), typed.replaceAll(/from '(\.\/[\w-]+)\.js'/g, "from '$1.ts'")];
}

interface Code {
  readonly extension: 'js' | 'ts';
  readonly isCompiled: boolean;
}

function manifest({ name }: PluginName, { extension, isCompiled }: Code, folder: string) {
  const test = `${commandIn(folder)} plugin test .`;
  return {
    name,
    version: '0.1.0',
    private: true,
    keywords: ['postern-plugin'],
    postern: { kit: kitVersion },
    type: 'module',
    main: isCompiled ? 'index.js' : `index.${extension}`,
    scripts: isCompiled ? { build: 'tsc', test: `tsc && ${test}` } : { test },
    ...(isCompiled && { devDependencies: { '@types/node': '>=20', typescript: '>=5.8' } }),
  };
}

/** A checkout, unlike an installed package, puts no command on the PATH. */
const commandIn = (folder: string): string =>
  basename(dirname(packageRoot)) === 'node_modules'
    ? 'postern'
    : `node "${pathFrom(folder, join(packageRoot, 'dist', 'core', 'postern.cjs'))}"`;

function pathFrom(folder: string, path: string): string {
  const way = relative(folder, path).replaceAll(sep, '/');
  return way.startsWith('../') ? way : `./${way}`;
}

/** For editors: completion and errors, also in plain JavaScript. */
function compilerConfiguration({ extension, isCompiled }: Code, folder: string) {
  const options = {
    strict: true,
    target: 'es2023',
    lib: ['es2023'],
    module: 'nodenext',
    types: ['node'],
    ...(isCompiled ? { rewriteRelativeImportExtensions: true } : { noEmit: true }),
    skipLibCheck: true,
    ...(extension === 'js'
      ? { checkJs: true }
      : { ...(!isCompiled && { allowImportingTsExtensions: true }), erasableSyntaxOnly: true }),
    ...(isInstalledAbove(folder) ? {} : placesOfTypes(folder)),
  };
  return { compilerOptions: options, include: [`*.${extension}`] };
}

/** True when Node and the editor resolve this package from that folder, which they do not in a checkout. */
function isInstalledAbove(folder: string): boolean {
  const parent = dirname(folder);
  const place = join(parent, 'node_modules', 'postern');
  if (existsSync(place)) return realpathSync(place) === realpathSync(packageRoot);
  return parent !== folder && isInstalledAbove(parent);
}

/** Paths of the types of this package and of Node.js; relative, so that both can be moved together. */
function placesOfTypes(folder: string) {
  const require = createRequire(join(packageRoot, 'package.json'));
  const { name, exports } = require('./package.json') as Manifest;
  const paths = Object.entries(exports).flatMap(([key, target]) =>
    typeof target === 'string' ? [] : [[name + key.slice(1), [pathFrom(folder, join(packageRoot, target.types))]]],
  );
  return {
    paths: Object.fromEntries(paths) as Record<string, readonly string[]>,
    ...placeOfNodeTypes(require, folder),
  };
}

/** Types of Node.js come with dependencies; without them only those are missing in the editor. */
function placeOfNodeTypes(require: NodeJS.Require, folder: string) {
  try {
    return { typeRoots: [pathFrom(folder, dirname(dirname(require.resolve('@types/node/package.json'))))] };
  } catch {
    return {};
  }
}

interface Manifest {
  readonly name: string;
  readonly exports: Readonly<Record<string, string | { readonly types: string }>>;
}

const json = (value: object): string => `${JSON.stringify(value, null, 2)}\n`;

/** Name of a plugin in its folder, in the configuration, in paths and in code. */
export interface PluginName {
  /** `rate-limit` */
  readonly name: string;
  /** `rateLimit` */
  readonly identifier: string;
  /** `rate_limit` */
  readonly metric: string;
  /** `Rate limit` */
  readonly title: string;
}

const longest = 40;

/** Reserved: first path segments and plugin names of the server. */
export const takenNames: readonly string[] = [
  'accounts',
  'acme',
  'assets',
  'audit',
  'cache',
  'client',
  'client-queue',
  'cluster',
  'config',
  'docs',
  'drafts',
  'env',
  'favicon',
  'health',
  'heapdump',
  'http',
  'icons',
  'lmtp',
  'logs',
  'macros',
  'metrics',
  'monitoring',
  'mta-sts',
  'openapi',
  'pipeline',
  'properties',
  'proxy',
  'search',
  'server',
  'sessions',
  'sign-in',
  'sign-ins',
  'sign-out',
  'smtp',
  'store',
  'system',
  'trace',
  'tls-reports',
  'traffic',
  'threads',
  'users',
  'vendor',
];

/** Words that code would have to quote. */
const keywords = new Set(
  'await break case catch class const continue debugger default delete do else enum export extends false finally for function if import in instanceof interface let new null package private protected public return static super switch this throw true try typeof var void while with yield'.split(
    ' ',
  ),
);

/** @throws start error with a sentence for an invalid name */
export function parsePluginName(text: string): PluginName {
  const refuse = (sentence: string) => startError(`${JSON.stringify(text)}: ${sentence}`);
  if (text.length > longest || !/^[a-z][a-z0-9]*(-[a-z0-9]+)*$/.test(text)) {
    throw refuse(
      `a plugin's name is lower-case words and digits with "-" between them, at most ${longest} characters, such as rate-limit.`,
    );
  }
  if (takenNames.includes(text)) throw refuse('Postern itself uses this name: choose another.');
  const words = text.split('-');
  const identifier = words.map((word, index) => (index === 0 ? word : capital(word))).join('');
  if (keywords.has(identifier) || identifier === 'arguments' || identifier === 'eval') {
    throw refuse('this word has a meaning in JavaScript: choose another.');
  }
  return { name: text, identifier, metric: words.join('_'), title: capital(words.join(' ')) };
}

const capital = (word: string): string => word.slice(0, 1).toUpperCase() + word.slice(1);
