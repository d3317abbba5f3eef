/**
 * Writes npm-shrinkwrap.json, the lock file without what only development needs: whoever installs the package gets the
 * versions that were tested.
 *   node shrinkwrap.mjs            before the package is made
 *   node shrinkwrap.mjs --remove   after it: in a checkout the lock file rules
 */
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(fileURLToPath(import.meta.url));
const file = join(root, 'npm-shrinkwrap.json');
const read = (name) => JSON.parse(readFileSync(join(root, name), 'utf8'));

/**
 * npm heeds `overrides` of the outermost package only, and would put other versions beside ours where a dependency asks for
 * them. So what it asks for is written as what it gets.
 */
function withOverrides(entry, versions) {
  const { dependencies } = entry;
  if (dependencies === undefined) return entry;
  const asked = Object.entries(dependencies).map(([name, range]) => [name, versions[name] ?? range]);
  return { ...entry, dependencies: Object.fromEntries(asked) };
}

function shrinkwrap() {
  const { packages, ...lock } = read('package-lock.json');
  const overridden = Object.keys(read('package.json').overrides);
  const versions = Object.fromEntries(overridden.map((name) => [name, packages[`node_modules/${name}`].version]));
  const { devDependencies: _, ...own } = packages[''];
  const kept = Object.entries(packages)
    .filter(([path, { dev }]) => path !== '' && dev !== true)
    .map(([path, entry]) => [path, withOverrides(entry, versions)]);
  return { ...lock, packages: { '': own, ...Object.fromEntries(kept) } };
}

if (process.argv[2] === '--remove') rmSync(file, { force: true });
else writeFileSync(file, `${JSON.stringify(shrinkwrap(), null, 2)}\n`);
