/**
 * Writes the package `postern-plugin-kit`: the types of what plugins and their tests import, as the package of the server has
 * them. Run it after a build:
 *   node plugin-kit.mjs           to dist/plugin-kit/
 *   node plugin-kit.mjs FOLDER    elsewhere
 */
import { copyFileSync, cpSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(fileURLToPath(import.meta.url));
const out = resolve(process.argv[2] ?? join(root, 'dist', 'plugin-kit'));
const write = (name, text) => writeFileSync(join(out, name), text);

const { version, license, engines, exports } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
cpSync(join(root, 'dist', 'types'), join(out, 'types'), { recursive: true });
const names = ['plugin', 'testing'];
const parts = names.map((name) => {
  write(`${name}.js`, `export * from 'postern/${name}';\n`);
  return [`./${name}`, { types: exports[`./${name}`].types.replace('/dist/', '/'), default: `./${name}.js` }];
});
const manifest = {
  name: 'postern-plugin-kit',
  version,
  description: 'Types for plugins of the mail server Postern, and for their tests.',
  license,
  type: 'module',
  engines,
  types: './index.d.ts',
  exports: { '.': { types: './index.d.ts' }, ...Object.fromEntries(parts), './package.json': './package.json' },
  peerDependencies: { postern: `^${version}` },
  peerDependenciesMeta: { postern: { optional: true } },
};
write('package.json', `${JSON.stringify(manifest, null, 2)}\n`);
const modules = names.map(
  (name) => `declare module 'postern/${name}' {\n  export * from 'postern-plugin-kit/${name}';\n}\n`,
);
write('index.d.ts', modules.join(''));
copyFileSync(join(root, 'docs', 'plugin-kit.md'), join(out, 'README.md'));
copyFileSync(join(root, 'LICENSE'), join(out, 'LICENSE'));
const files = readdirSync(join(out, 'types'), { recursive: true }).filter((name) => /\.d\.[cm]?ts$/.test(name));
const bytes = files.reduce((sum, name) => sum + statSync(join(out, 'types', name)).size, 0);
console.error(`postern-plugin-kit ${version}: ${files.length} files of types, ${(bytes / 1e6).toFixed(2)} MB`);
