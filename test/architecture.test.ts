import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { importRules } from './architecture/import-rules.js';
import { cycles } from './architecture/module-graph.js';
import type { Rule } from './architecture/rule.js';
import { readSources, sourceFile } from './architecture/source-file.js';
import { allowances, textRules } from './architecture/text-rules.js';
import { viewRules } from './architecture/view-rules.js';
import { projectRoot } from './support/project.js';

const folders = (...names: readonly string[]) => names.filter((name) => existsSync(join(projectRoot, name)));
const sources = readSources(projectRoot, folders('core', 'plugins', 'test', 'bench'), /\.[cm]?ts$/);
const views = readSources(projectRoot, folders('views'), /\.njk$/);

function check(rules: readonly Rule[], files: typeof sources): void {
  for (const rule of rules) {
    test(rule.title, () => {
      const faults = files.flatMap((file) => rule.faults(file).map((fault) => `${file.path}: ${fault}`));
      assert.deepEqual(faults, []);
    });
    test(`a breach is noticed: ${rule.title}`, () => {
      const { breach, allowed } = rule;
      assert.notDeepEqual(rule.faults(sourceFile(breach.path, breach.text)), []);
      if (allowed !== undefined) assert.deepEqual(rule.faults(sourceFile(allowed.path, allowed.text)), []);
    });
  }
}

test('there are sources and views to look at', () => {
  for (const path of ['core/app.ts', 'core/http/endpoint.ts', 'plugins/store/index.ts', 'test/architecture.test.ts']) {
    assert.ok(
      sources.some((file) => file.path === path && file.code !== ''),
      path,
    );
  }
  assert.ok(views.some(({ path }) => path === 'views/layout.njk'));
});

describe('who may import whom', () => {
  check(importRules, sources);

  test('no files import each other in a circle', () => {
    assert.deepEqual(cycles(sources), []);
  });

  test('a breach is noticed: no files import each other in a circle', () => {
    const a = sourceFile('core/a.ts', "import { b } from './b.js';");
    const b = sourceFile('core/b.ts', "import { type A } from './a.js';");
    assert.deepEqual(cycles([a, b]), ['core/a.ts → core/b.ts → core/a.ts']);
    assert.deepEqual(cycles([a]), []);
  });
});

describe('how the code is written', () => {
  check(textRules, sources);

  test('every allowance is still needed', () => {
    const idle = allowances.filter(
      ({ path, word }) => !sources.some((file) => file.path === path && file.code.includes(word)),
    );
    assert.deepEqual(idle, []);
  });

  test('comments, strings and regular expressions are not taken for code', () => {
    const text = "const a = 'x!'; // y!\nconst b = /z!/.test(`p${c['q!']}r!`); const d = e! / f;";
    assert.deepEqual(sourceFile('core/a.ts', text).code.match(/\w!/g), ['e!']);
  });
});

describe('how the views are written', () => {
  check(viewRules, views);
});

describe('what the package depends on', () => {
  const manifest = JSON.parse(readFileSync(join(projectRoot, 'package.json'), 'utf8')) as Record<
    'dependencies' | 'devDependencies',
    Record<string, string>
  >;
  const exact = /^\d+\.\d+\.\d+(-[\w.]+)?$/;

  test('every version is exact', () => {
    const loose = Object.entries({ ...manifest.dependencies, ...manifest.devDependencies }).filter(
      ([, version]) => !exact.test(version),
    );
    assert.deepEqual(loose, []);
    assert.doesNotMatch('^1.2.3', exact);
  });

  test('the server imports only packages that package.json names, which are bundled', () => {
    const packages = sources
      .filter(({ path }) => /^(core|plugins)\//.test(path))
      .flatMap((file) => file.imports.filter(({ typeOnly }) => !typeOnly))
      .map(({ specifier }) => specifier)
      .filter((specifier) => !/^(\.|node:)/.test(specifier))
      .map((specifier) =>
        specifier
          .split('/')
          .slice(0, specifier.startsWith('@') ? 2 : 1)
          .join('/'),
      );
    const missing = [...new Set(packages)].filter((name) => manifest.devDependencies[name] === undefined);
    assert.deepEqual(missing, []);
  });
});
