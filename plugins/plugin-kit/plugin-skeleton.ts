import { existsSync, readdirSync, readFileSync, realpathSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, relative, sep } from 'node:path';
import { packageRoot } from '../../core/host/installation.js';
import type { PluginName } from './plugin-name.js';

export type PluginLanguage = 'javascript' | 'typescript';

export interface SkeletonInput {
  readonly name: PluginName;
  readonly language: PluginLanguage;
  /** The absolute folder that it is for; need not exist. */
  readonly folder: string;
}

/** The files of a new plugin, by their path in its folder. */
export function skeletonOf({ name, language, folder }: SkeletonInput): ReadonlyMap<string, string> {
  const root = join(packageRoot, 'docs', 'skeleton');
  const written = readdirSync(root, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .map((path) => [path.slice(root.length + 1).replaceAll(sep, '/'), named(readFileSync(path, 'utf8'), name)] as const)
    .map(([path, text]) => (language === 'typescript' ? inTypeScript(path, text) : ([path, text] as const)));
  const extension = language === 'typescript' ? 'ts' : 'js';
  return new Map([
    ...written,
    ['package.json', json(manifest(name, extension))],
    [language === 'typescript' ? 'tsconfig.json' : 'jsconfig.json', json(compilerConfiguration(extension, folder))],
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

/** The same code, its types no longer in comments: a type above a `const` goes behind its name. */
function inTypeScript(path: string, text: string): readonly [string, string] {
  if (!path.endsWith('.js') || path.startsWith('assets/')) return [path, text];
  const typed = text.replaceAll(/^( *)\/\*\* @type \{(.+)\} \*\/\n( *const \w+) =/gm, '$3: $2 =');
  return [path.replace(/\.js$/, '.ts'), typed.replaceAll(/from '(\.\/[\w-]+)\.js'/g, "from '$1.ts'")];
}

function manifest({ name }: PluginName, extension: string) {
  return {
    name,
    version: '0.1.0',
    private: true,
    type: 'module',
    main: `index.${extension}`,
    scripts: { test: 'postern plugin test .' },
  };
}

/** For the editor: completion, and mistakes underlined, in plain JavaScript too. */
function compilerConfiguration(extension: string, folder: string) {
  const options = {
    strict: true,
    target: 'es2023',
    lib: ['es2023'],
    module: 'nodenext',
    types: ['node'],
    noEmit: true,
    skipLibCheck: true,
    ...(extension === 'js' ? { checkJs: true } : { allowImportingTsExtensions: true, erasableSyntaxOnly: true }),
    ...(isInstalledAbove(folder) ? {} : placesOfTypes(folder)),
  };
  return { compilerOptions: options, include: [`*.${extension}`] };
}

/** Whether Node and the editor find this very package from that folder: in a checkout they do not. */
function isInstalledAbove(folder: string): boolean {
  const parent = dirname(folder);
  const place = join(parent, 'node_modules', 'postern');
  if (existsSync(place)) return realpathSync(place) === realpathSync(packageRoot);
  return parent !== folder && isInstalledAbove(parent);
}

/** Where this installation has the types of what it exports, and of Node.js; relative, so that both can be moved together. */
function placesOfTypes(folder: string) {
  const fromFolder = (path: string): string => {
    const way = relative(folder, path).replaceAll(sep, '/');
    return way.startsWith('../') ? way : `./${way}`;
  };
  const require = createRequire(join(packageRoot, 'package.json'));
  const { name, exports } = require('./package.json') as Manifest;
  const paths = Object.entries(exports).flatMap(([key, target]) =>
    typeof target === 'string' ? [] : [[name + key.slice(1), [fromFolder(join(packageRoot, target.types))]]],
  );
  return {
    paths: Object.fromEntries(paths) as Record<string, readonly string[]>,
    ...placeOfNodeTypes(require, fromFolder),
  };
}

/** They come with packages that we depend on; without them an editor knows everything but Node.js. */
function placeOfNodeTypes(require: NodeJS.Require, fromFolder: (path: string) => string) {
  try {
    return { typeRoots: [fromFolder(dirname(dirname(require.resolve('@types/node/package.json'))))] };
  } catch {
    return {};
  }
}

interface Manifest {
  readonly name: string;
  readonly exports: Readonly<Record<string, string | { readonly types: string }>>;
}

const json = (value: object): string => `${JSON.stringify(value, null, 2)}\n`;
