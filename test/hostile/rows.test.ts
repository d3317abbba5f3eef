import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { builtIns } from '../../plugins/index.js';
import { projectRoot } from '../support/project.js';

/** Rows whose subject another plugin brings: their tests are due when it is there. */
const due: Readonly<Record<string, readonly string[]>> = {
  'client-queue': ['H09', 'H10', 'H11'],
  proxy: ['H29', 'S35'],
};

const numbered = (letter: string, count: number): readonly string[] =>
  Array.from({ length: count }, (_, n) => `${letter}${String(n + 1).padStart(2, '0')}`);

/** The rows of attacks over SMTP (S) and over HTTP (H). */
const rows = [...numbered('S', 36), ...numbered('H', 39)];

/** Ids in the titles of tests, or in tables from which titles are made. */
function namedIn(source: string): readonly string[] {
  const titles = source.matchAll(/\b(?:test|it)\(\s*(?:'([^'\n]*)|"([^"\n]*)|`([^`]*))|\bid: '([SH]\d\d)'/g);
  return [...titles].flatMap(
    (match) =>
      match
        .slice(1)
        .join(' ')
        .match(/\b[SH]\d\d\b/g) ?? [],
  );
}

test('what is looked for would be found', () => {
  assert.deepEqual(namedIn("test('S01 S02 x', () => 0); it(`H03 ${name}`); // S04\n const a = { id: 'S05' };"), [
    'S01',
    'S02',
    'H03',
    'S05',
  ]);
});

test('every attack that we know of is a test against the whole server', async () => {
  const folder = join(projectRoot, 'test', 'hostile');
  const files = (await readdir(folder)).filter((name) => name.endsWith('.ts') && name !== 'rows.test.ts');
  const sources = await Promise.all(files.map((name) => readFile(join(folder, name), 'utf8')));
  const named = new Set(sources.flatMap(namedIn));
  const running = new Set(builtIns.map(({ name }) => name));
  const later = new Set(Object.entries(due).flatMap(([plugin, ids]) => (running.has(plugin) ? [] : ids)));
  assert.deepEqual(
    rows.filter((id) => !named.has(id) && !later.has(id)),
    [],
  );
});
