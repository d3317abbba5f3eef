import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { Ajv2020 } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import JSON5 from 'json5';
import { z } from 'zod';
import { version } from '../../../core/host/installation.js';
import { builtIns } from '../../../core/main.js';
import { definePlugin } from '../../../core/plugin.js';
import {
  editorSchema,
  firstVersion,
  referenceEntries,
  referenceText,
} from '../../../plugins/setup/configuration-schema.js';
import { startInProcess } from '../../support/in-process-server.js';
import { projectRoot } from '../../support/project.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { setup } from './setup-run.js';

const document = (name: string) => readFileSync(join(projectRoot, 'docs', name), 'utf8');
const refresh = 'npm run reference';

function validator() {
  const ajv = new Ajv2020({ strict: true, strictTypes: false, strictRequired: false });
  addFormats.default(ajv);
  return ajv.compile(JSON.parse(editorSchema(builtIns)) as object);
}

describe('the reference of the configuration', () => {
  test('says of every key what it is, with its type and an example', () => {
    const entries = referenceEntries(builtIns);
    assert.ok(entries.length > 200, String(entries.length));
    assert.deepEqual(
      entries
        .filter(({ description, example, type }) => description === '' || example === '' || type === '')
        .map(({ key }) => key),
      [],
    );
  });

  test('has units, defaults of each machine as words, and each key once', () => {
    const entries = new Map(referenceEntries(builtIns).map((entry) => [entry.key, entry]));
    assert.equal(entries.get('shutdownSeconds')?.unit, 'seconds');
    assert.equal(entries.get('smtp.limits.messageBytes')?.unit, 'bytes');
    assert.equal(entries.get('smtp.listeners[].greetDelayMs')?.unit, 'milliseconds');
    assert.equal(entries.get('plugins.client-queue.expireAfter')?.unit, 'seconds');
    assert.equal(entries.get('hostname')?.defaultText, 'the name of the machine');
    assert.equal(entries.get('smtp.listeners[].mode')?.type, "'mx', 'submission', 'lmtp'");
    assert.equal(entries.get('plugins.client-queue.dkim.NAME.selector')?.example, "'rsa1'");
  });

  test(`docs/configuration.md and docs/postern.schema.json are as they are printed (${refresh})`, () => {
    assert.equal(document('configuration.md'), referenceText(builtIns));
    assert.equal(document('postern.schema.json'), editorSchema(builtIns));
    assert.ok(!document('postern.schema.json').includes(JSON.stringify(hostname())));
  });
});

describe('the version that brought a key', () => {
  const file = join(projectRoot, 'test', 'plugins', 'setup', `keys-of-${firstVersion}.txt`);
  const entries = referenceEntries(builtIns);
  const isFirst = version.startsWith(`${firstVersion}.`);

  test(`is said of each key that is not in the list of the first, which is frozen after ${firstVersion}`, async () => {
    const lines = `${entries.map(({ key }) => key).join('\n')}\n`;
    if (isFirst && process.env['POSTERN_WRITE_REFERENCE'] === '1') await writeFile(file, lines);
    const first = readFileSync(file, 'utf8');
    if (isFirst) assert.equal(first, lines, refresh);
    const known = new Set(first.split('\n'));
    const wrong = entries.filter(({ key, since }) => known.has(key) !== (since === '')).map(({ key }) => key);
    assert.deepEqual(wrong, [], "mark new keys: .meta({ since: '0.2' })");
  });

  test('is printed with its description, of a group with all its keys, and is not in the schema for editors', () => {
    const options = z.strictObject({
      old: z.int().default(1).describe('Old.'),
      group: z.strictObject({ key: z.int().default(1).describe('New.') }).meta({ since: '0.2' }),
    });
    const plugin = definePlugin({ name: 'x', options, setup: () => undefined });
    const text = referenceText([plugin]);
    assert.match(text, /^\| `plugins\.x\.old` .*\| Old\. \|$/m);
    assert.match(text, /^\| `plugins\.x\.group\.key` .*\| New\. Since 0\.2\. \|$/m);
    assert.ok(!editorSchema([plugin]).includes('since'));
  });
});

describe('the JSON Schema of the configuration', () => {
  test('takes the examples that come with the server, and what init writes', async (t) => {
    const valid = validator();
    const folder = join(projectRoot, 'deploy', 'examples');
    const examples = readdirSync(folder).filter((name) => name.endsWith('.json5'));
    assert.ok(examples.length > 3);
    const cwd = await temporaryFolder(t);
    await setup(cwd, 'init', 'example.org');
    for (const file of [...examples.map((name) => join(folder, name)), join(cwd, 'postern.json5')]) {
      assert.ok(valid(JSON5.parse(readFileSync(file, 'utf8'))), `${file}: ${JSON.stringify(valid.errors)}`);
    }
  });

  test('takes a secret from elsewhere and a plugin that is off, and no key that there is not', () => {
    const valid = validator();
    const account = { username: 'anna', role: 'read', password: { env: 'ANNA' } };
    assert.ok(valid({ http: { accounts: [account] }, plugins: { lmtp: false, greylist: { minutes: 5 } } }));
    assert.ok(!valid({ http: { prot: 8080 } }));
    assert.ok(!valid({ plugins: { 'client-queue': { route: {} } } }));
  });
});

describe('postern config', () => {
  test('show prints values with their origin, filtered by words, without secrets', async (t) => {
    const cwd = await temporaryFolder(t);
    const account = `{ username: 'anna', role: 'read', password: 'a long secret text' }`;
    await writeFile(join(cwd, 'postern.json5'), `{\n  domains: ['acme.org'],\n  http: { accounts: [${account}] },\n}`);
    const all = await setup(cwd, 'config', 'show');
    assert.match(all, /^domains = \["acme\.org"\] {2}\(file: .*postern\.json5:2\)$/m);
    assert.match(all, /^http\.port = 8080 {2}\(default\)$/m);
    assert.match(all, /^http\.accounts\.0\.password = "••••"/m);
    assert.match(all, /^http\.https is not set$/m);
    assert.ok(!all.includes('a long secret'));
    assert.equal((await setup(cwd, 'config', 'show', 'http.port')).split('\n').length, 1);
    const [port] = JSON.parse(await setup(cwd, 'config', 'show', 'http.port', '--json')) as [{ value: unknown }];
    assert.equal(port.value, 8080);
  });

  test('show asks the running server of the data folder', async (t) => {
    const { server } = await startInProcess(t);
    const cwd = await temporaryFolder(t);
    const shown = await setup(cwd, 'config', 'show', 'http.port', '--data', server.configuration.data);
    assert.match(shown, /^http\.port = 0 {2}\(/);
  });

  test('reference and schema have the options of site plugins, also beside ones that are off', async (t) => {
    const cwd = await temporaryFolder(t);
    await writeFile(
      join(cwd, 'site.mjs'),
      `import { definePlugin, z } from 'postern/plugin';
       const options = z.strictObject({ minutes: z.int().min(1).default(5).describe('How long, in minutes.') });
       export default definePlugin({ name: 'greylist', options, setup() {} });`,
    );
    await writeFile(join(cwd, 'postern.json5'), `{ sitePlugins: ['./site.mjs'], plugins: { lmtp: false } }`);
    const reference = await setup(cwd, 'config', 'reference');
    assert.match(reference, /^\| `plugins\.greylist\.minutes` \| whole number, 1 or more \| minutes \| `5` \| `5` \|/m);
    assert.match(reference, /^\| `plugins\.lmtp\.routes\[\]\.port` /m);
    const { properties } = JSON.parse(await setup(cwd, 'config', 'schema')) as {
      properties: { plugins: { properties: object } };
    };
    assert.ok('greylist' in properties.plugins.properties);
  });
});
