import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, test } from 'node:test';
import JSON5 from 'json5';
import { fileLinks } from './support/file-links.js';
import { projectRoot } from './support/project.js';

const read = (path: string) => readFileSync(join(projectRoot, path), 'utf8');
const below = (folder: string) =>
  readdirSync(join(projectRoot, folder), { recursive: true, encoding: 'utf8' }).map((name) => join(folder, name));

const documents = [...readdirSync(projectRoot), ...below('docs'), ...below('plugins')].filter((name) =>
  name.endsWith('.md'),
);

describe('the documents', () => {
  test('those that a newcomer looks for are there', () => {
    const wanted = ['README.md', 'ARCHITECTURE.md', 'CONTRIBUTING.md', 'CHANGELOG.md', 'SECURITY.md', 'LICENSE'];
    assert.deepEqual(
      wanted.filter((name) => !existsSync(join(projectRoot, name))),
      [],
    );
  });

  test('every link to a file leads somewhere', () => {
    const broken = documents.flatMap((document) =>
      fileLinks(read(document))
        .filter((link) => !existsSync(join(projectRoot, dirname(document), link)))
        .map((link) => `${document}: ${link}`),
    );
    assert.deepEqual(broken, []);
    assert.deepEqual(fileLinks('[a](b.md#c) [d](https://example.org/)'), ['b.md']);
  });

  test('the index names every page of docs', () => {
    const index = fileLinks(read('docs/README.md'));
    const pages = below('docs').filter((path) => path.endsWith('.md') && path !== join('docs', 'README.md'));
    assert.deepEqual(
      pages.filter((path) => !index.includes(path.replace(/^docs./, ''))),
      [],
    );
  });

  test('the table of hostile input has every attack that a test names, and names tests that exist', () => {
    const rows = [...read('docs/hostile-input.md').matchAll(/^\| ([^|]+?) +\|.*\| ([^|]*?) *\|$/gm)];
    const listed = new Set(rows.flatMap(([, ids = '']) => ids.split(', ')));
    const sources = below('test').filter((path) => path.endsWith('.ts') && !path.endsWith('rows.test.ts'));
    const named = sources.flatMap((path) =>
      [...read(path).matchAll(/\b(?:test|it|describe)\(\s*['"`](?:[SH]\d\d|F-[A-Z]\d+)\b[^\n]*/g)].flatMap(
        ([title]) => title.match(/\b(?:[SH]\d\d|F-[A-Z]\d+)\b/g) ?? [],
      ),
    );
    assert.ok(named.length > 80);
    assert.deepEqual(
      [...new Set(named)].filter((id) => !listed.has(id)),
      [],
    );
    const missing = rows.flatMap(([, , files = '']) => files.split(', ').filter((path) => path.startsWith('test/')));
    assert.deepEqual(
      missing.filter((path) => !existsSync(join(projectRoot, path))),
      [],
    );
  });

  test('every script that they name exists', () => {
    const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> };
    const unknown = documents.flatMap((document) =>
      [...read(document).matchAll(/\bnpm run ([\w:-]+)/g)]
        .filter(([, script = '']) => scripts[script] === undefined)
        .map(([command]) => `${document}: ${command}`),
    );
    assert.deepEqual(unknown, []);
  });

  test('what they name below deploy/ is there', () => {
    const named = documents.flatMap((document) =>
      [...read(document).matchAll(/(?<!test\/)\bdeploy\/[\w.][\w./@-]*\w/g)].map(([path]) => ({ document, path })),
    );
    assert.ok(named.length > 10);
    assert.deepEqual(
      named.filter(({ path }) => !existsSync(join(projectRoot, path))),
      [],
    );
  });

  test('a shell can read every command that they show', () => {
    const blocks = documents.flatMap((document) =>
      [...read(document).matchAll(/```sh\n(.*?)```/gs)].map(([, text = '']) => ({ document, text })),
    );
    assert.ok(blocks.length > 30);
    const wrong = blocks.filter(({ text }) => spawnSync('sh', ['-n'], { input: text }).status !== 0);
    assert.deepEqual(wrong, []);
    assert.notEqual(spawnSync('sh', ['-n'], { input: 'if true; postern start' }).status, 0);
  });

  test('a configuration that they show can be read', () => {
    const blocks = documents.flatMap((document) =>
      [...read(document).matchAll(/```json5?\n(.*?)```/gs)].map(([, text = '']) => ({ document, text })),
    );
    assert.ok(blocks.length > 15);
    const wrong = blocks.filter(({ text }) => {
      try {
        return JSON5.parse(text) === undefined;
      } catch {
        return true;
      }
    });
    assert.deepEqual(wrong, []);
  });

  test('no command installs Postern from a registry, where its names are free for others', () => {
    const named = documents.flatMap((document) =>
      [...read(document).matchAll(/\bnpm (?:install|i|add)\b[^\n]* (postern(?:-plugin-kit)?)(?=[@\s]|$)/gm)].map(
        ([command]) => `${document}: ${command}`,
      ),
    );
    assert.deepEqual(named, []);
  });

  test('the README fits on three screens', () => {
    assert.ok(read('README.md').split('\n').length <= 150);
  });

  test('decisions are short and say context, choice and consequence', () => {
    for (const name of readdirSync(join(projectRoot, 'docs', 'decisions'))) {
      const text = read(join('docs', 'decisions', name));
      assert.ok(text.split('\n').length <= 41, `${name} is longer than 40 lines`);
      assert.match(text, /^# \d+[.:]? [\s\S]*^## Context$[\s\S]*^## Choice$[\s\S]*^## Consequences?$/m, name);
    }
  });
});
