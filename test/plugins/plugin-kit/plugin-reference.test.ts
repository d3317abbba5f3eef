import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { describe, test } from 'node:test';
import { targets } from '../../../core/contracts/targets.js';
import { checkVerdict, stages } from '../../../core/pipeline/verdict.js';
import * as kit from '../../../core/plugin.js';
import { problems } from '../../../core/problem.js';
import { examplesOf } from '../../support/document-examples.js';
import { startInProcess } from '../../support/in-process-server.js';
import { projectRoot } from '../../support/project.js';
import { freeListeners } from '../../support/server-process.js';
import { SmtpClient } from '../../support/smtp-client.js';

const file = 'docs/plugin-reference.md';
const command = 'npm run reference';
const read = (path: string): string => readFileSync(join(projectRoot, path), 'utf8');

/** An exported interface or type with its comment, as the source has it. */
function declarationOf(path: string, name: string): string {
  const lines = read(path).split('\n');
  const start = lines.findIndex((line) => new RegExp(`^export (?:interface|type) ${name}\\b`).test(line));
  assert.notEqual(start, -1, `${path} exports no type ${name}`);
  let first = start;
  if (lines[start - 1]?.endsWith('*/') === true) {
    first -= 1;
    while (lines[first]?.startsWith('/**') !== true) first -= 1;
  }
  const end = lines.findIndex(
    (line, index) =>
      index >= start &&
      (line === '}' || /^(?:\S| {2}\S| {2}\)).*;$/.test(line)) &&
      isWhole(lines.slice(start, index + 1)),
  );
  return lines
    .slice(first, end + 1)
    .join('\n')
    .replace(/^export /m, '');
}

const isWhole = (lines: readonly string[]): boolean => {
  const text = lines.join('\n').replaceAll(/\/\*[\s\S]*?\*\//g, '');
  return (text.match(/[{(]/g) ?? []).length === (text.match(/[})]/g) ?? []).length;
};

/** The document with the types below its marks printed anew. */
const withTypes = (text: string): string =>
  text.replaceAll(/<!-- type: (\S+) ([\w ]+) -->\n(?:\n```ts\n[\s\S]*?```\n)?/g, (_, path: string, names: string) => {
    const declarations = names.split(' ').map((name) => declarationOf(path, name));
    return `<!-- type: ${path} ${names} -->\n\n\`\`\`ts\n${declarations.join('\n\n')}\n\`\`\`\n`;
  });

/** The part below a heading. */
function sectionOf(text: string, heading: string): string {
  const [, section] = text.split(`\n${heading}\n`);
  assert.ok(section !== undefined, `${file} has no heading ${heading}`);
  return section.split(/\n##+ /)[0] ?? '';
}

describe(file, () => {
  test(`has the types as ${command} writes them`, () => {
    const text = read(file);
    if (process.env['POSTERN_WRITE_REFERENCE'] === '1') writeFileSync(join(projectRoot, file), withTypes(text));
    assert.equal(read(file), withTypes(text));
  });

  test('has each type that a plugin may import', () => {
    const exported = [...read('core/plugin.ts').matchAll(/^export (type )?\{([^}]*)\} from/gm)].flatMap(
      ([, isType, names = '']) =>
        names
          .split(',')
          .map((name) => name.trim())
          .filter((name) => isType !== undefined || name.startsWith('type '))
          .map((name) => name.replace('type ', '')),
    );
    assert.ok(exported.length > 40);
    const text = read(file);
    assert.deepEqual(
      exported.filter((name) => !new RegExp(`^(?:interface|type) ${name}\\b`, 'm').test(text)),
      [],
    );
  });

  test('or Plugins names each function that a plugin may import', () => {
    const text = `${read(file)}${read('docs/plugins.md')}`;
    assert.deepEqual(
      Object.keys(kit).filter((name) => !new RegExp(`\\b${name}\\b`).test(text)),
      [],
    );
  });

  test('has an example of the hook of each stage, with the arguments and verdicts of it', () => {
    const text = read(file);
    for (const stage of stages) {
      const section = sectionOf(text, `### \`${stage}\``);
      assert.match(section, new RegExp(`smtp\\.on\\('${stage}'`), stage);
      for (const verdict of [
        kit.discard('x'),
        kit.hold('x'),
        kit.route({ target: 'x', destination: '' }),
        kit.change(),
      ]) {
        const isTaken = typeof checkVerdict(verdict, stage) !== 'string';
        assert.equal(
          section.includes(`takes`) && section.includes(`\`${verdict.kind}(`),
          isTaken,
          `${stage} ${verdict.kind}`,
        );
      }
    }
  });

  test('has an example of each event', () => {
    const events = [...declarationOf('core/pipeline/events.ts', 'WatchedEvents').matchAll(/^ {2}readonly (\w+):/gm)];
    assert.ok(events.length > 8);
    const section = sectionOf(read(file), '## Events');
    assert.deepEqual(
      events.filter(([, event]) => !section.includes(`smtp.watch('${event}'`)).map(([, event]) => event),
      [],
    );
  });

  test('has each target of the server, and each service with an example', () => {
    const text = read(file);
    const section = sectionOf(text, '## Delivery targets');
    for (const name of [...Object.values(targets), 'proxy', 'lmtp']) assert.ok(section.includes(`| \`${name}\``), name);
    const tokens = Object.entries(kit).filter(([, value]) => typeof value === 'object' && 'id' in value);
    assert.ok(tokens.length > 8);
    for (const [name] of tokens) {
      assert.match(sectionOf(text, `### \`${name}\``), new RegExp(`(?:needs|provides): \\{ ${name} \\}`), name);
    }
  });

  test('and Plugins has each problem', () => {
    const text = read('docs/plugins.md');
    assert.deepEqual(
      Object.keys(problems).filter((name) => !text.includes(`\`${name}\``)),
      [],
    );
  });

  test('has examples that run beside each other, and whose hooks let mail pass', async (t) => {
    const examples = [...(await examplesOf(file))];
    const names = examples.map(([path]) => dirname(path));
    assert.ok(names.length > 20);
    const config = `{ sitePlugins: ${JSON.stringify(names.map((name) => `./${name}`))}, smtp: { listeners: ${freeListeners} } }`;
    const site = await startInProcess(t, config, {}, async (folder) => {
      for (const [path, code] of examples) {
        await mkdir(join(folder, dirname(path)));
        await writeFile(join(folder, path), code);
      }
    });
    const { admin, server } = site;
    const running = server.app.plugins.current.running.map(({ plugin }) => plugin.name);
    assert.deepEqual(
      names.filter((name) => !running.includes(name)),
      [],
    );
    const client = await SmtpClient.greeted({ port: site.portOf('mx') });
    assert.equal((await client.command('MAIL FROM:<>')).code, 250);
    for (const to of ['postmaster@localhost', 'abuse@localhost', 'archive@localhost'])
      assert.equal((await client.command(`RCPT TO:<${to}>`)).code, 250, to);
    assert.equal((await client.data('List-Id: <a.example>\r\nSubject: x\r\n\r\nHello\r\n')).code, 250);
    client.close();
    assert.equal((await readdir(join(site.folder, 'data', 'archive'))).length, 1);
    const { replies } = (await admin.json('/reply-sum')) as { readonly replies: number };
    assert.ok(replies >= 6, String(replies));
    assert.match(JSON.stringify(await admin.json('/site-map')), /\/client\/queue\/list/);
    assert.equal((await admin.request('/traffic-light')).text, 'green');
    const greeted = (await admin.json('/greeting', { json: { to: 'postmaster@localhost' } })) as {
      readonly id: string;
    };
    assert.match(greeted.id, /^\w+$/);
    assert.match((await admin.request('/metrics/prometheus')).text, /^postern_local_domains 1$/m);
    const failed = server.app.pipeline.describe().filter(({ failures }) => failures > 0);
    assert.deepEqual(failed, []);
  });
});
