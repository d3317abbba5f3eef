import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { projectRoot } from './support/project.js';

/** Paths in the package as `npm pack` would make it. */
function packed(): readonly string[] {
  const { stdout } = spawnSync('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], {
    cwd: projectRoot,
    encoding: 'utf8',
  });
  const [{ files }] = JSON.parse(stdout) as [{ files: { path: string }[] }];
  return files.map(({ path }) => path);
}

test('the package holds the built server, its views, its assets and its documents, and nothing else', () => {
  const paths = packed();
  for (const wanted of [
    'package.json',
    'README.md',
    'LICENSE',
    'docs/plugins.md',
    'dist/core/postern.cjs',
    'dist/core/plugin.js',
    'dist/core/plugin.d.ts',
    'dist/core/testing/index.js',
    'dist/core/testing/index.d.ts',
    'dist/plugins/index.js',
    'views/layout.njk',
    'public/app.css',
    'public/vendor/htmx.min.js',
    'skeleton/index.js',
  ]) {
    assert.ok(paths.includes(wanted), `${wanted} is missing`);
  }
  const strange = paths.filter(
    (path) => !/^(dist\/(core|plugins)|views|public|skeleton|docs|deploy)\/|^[\w-]+(\.md|\.json)?$/.test(path),
  );
  assert.deepEqual(strange, []);
});

test('the lock file names every optional package, for each platform, as npm ci wants it', () => {
  const { packages } = JSON.parse(readFileSync(join(projectRoot, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, { optionalDependencies?: Record<string, string> }>;
  };
  const missing = Object.entries(packages).flatMap(([path, { optionalDependencies = {} }]) =>
    Object.keys(optionalDependencies).filter(
      (name) =>
        packages[`node_modules/${name}`] === undefined && packages[`${path}/node_modules/${name}`] === undefined,
    ),
  );
  assert.deepEqual(missing, []);
});
