import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { builtInCommands } from '../../plugins/commands.js';
import { helpOf, usage } from '../../core/cli/command-line.js';
import { builtIns } from '../../core/main.js';
import { readSources } from '../architecture/source-file.js';
import { startInProcess } from '../support/in-process-server.js';
import { projectRoot } from '../support/project.js';
import { referenceOf } from './reference.js';

const file = join(projectRoot, 'docs', 'reference.md');
const command = 'npm run reference';

const names = [
  ...new Set([
    ...builtInCommands.map(({ words }) => words.replace(/ .*/, '')),
    ...builtIns.flatMap(({ commands }) => commands.map(({ name }) => name)),
  ]),
];

test(`docs/reference.md is what ${command} writes`, async (t) => {
  const { admin, server } = await startInProcess(t);
  const text = referenceOf({
    help: [usage(builtInCommands, builtIns), ...names.map((name) => helpOf(name, builtInCommands, builtIns))].join(
      '\n\n',
    ),
    endpoints: server.app.http.describe(),
    metrics: (await admin.request('/metrics/prometheus')).text,
    sources: readSources(projectRoot, ['core', 'plugins'], /\.ts$/),
  });
  if (process.env['POSTERN_WRITE_REFERENCE'] === '1') await writeFile(file, text);
  for (const row of [
    '| `postern_smtp_replies_total` | counter | `listener`, `class` | SMTP replies by class. |',
    '| `mailbox-full` | 507 | 452 4.2.2 | The mailbox is full |',
    '| GET | `/health` | public |',
    '| signed in | info | `session`, `remote`, `user` | core/smtp |',
    'postern queue show ID',
  ]) {
    assert.ok(text.includes(row), row);
  }
  assert.equal(await readFile(file, 'utf8'), text);
});
