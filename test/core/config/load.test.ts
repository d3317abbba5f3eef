import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { z } from 'zod';
import { effectiveValues } from '../../../core/config/effective.js';
import { loadConfiguration, type Overrides } from '../../../core/config/load.js';
import { availablePlugins } from '../../../core/host/plugin-set.js';
import { schemaOutline, secret } from '../../../core/contracts/outline.js';
import type { LayerFile } from '../../../core/contracts/server.js';
import { definePlugin } from '../../../core/plugin.js';
import { MASK } from '../../../core/log/redact.js';
import { isStartError } from '../../../core/problem.js';

const clockwork = definePlugin({
  name: 'clockwork',
  options: z.strictObject({
    size: z.int().min(1).max(9).default(3).describe('How big it is.'),
    key: secret().optional().describe('Winds it up.'),
    file: z.string().default('clock.json'),
  }),
  setup: () => {},
});

let folder: string;
before(() => {
  folder = mkdtempSync(join(tmpdir(), 'postern-config-'));
});
after(() => rmSync(folder, { recursive: true }));

function load(
  text: string | undefined,
  overrides: Overrides = {},
  env: Record<string, string> = {},
  layers: readonly LayerFile[] = [],
) {
  const config = join(folder, 'postern.json5');
  if (text === undefined) rmSync(config, { force: true });
  else writeFileSync(config, text);
  return loadConfiguration({
    overrides,
    cwd: folder,
    env,
    layers,
    plugins: () => Promise.resolve(availablePlugins([clockwork], { modules: [], unloaded: [] })),
  });
}

async function refusal(text: string, env: Record<string, string> = {}): Promise<string> {
  try {
    await load(text, {}, env);
  } catch (error) {
    assert.ok(isStartError(error), String(error));
    return error.message.replaceAll(folder, '…');
  }
  return assert.fail('it was taken');
}

suite('loading the configuration', () => {
  test('without a file everything has its default', async () => {
    const { file, domains, data, settings, options } = await load(undefined);
    assert.equal(file, null);
    assert.deepEqual(domains, ['localhost']);
    assert.equal(data, join(folder, 'data'));
    assert.equal(settings.http.host, '127.0.0.1');
    assert.equal(settings.smtp.listeners[0]?.mode, 'mx');
    assert.deepEqual(options.get('clockwork'), { size: 3, file: 'clock.json' });
  });

  test('a file beside the caller is found, and the command line wins over it', async () => {
    const text = `{ data: 'mail', http: { port: 9000 }, smtp: { listeners: [{ port: 25 }, { port: 26, name: 'b' }] } }`;
    const { data, settings } = await load(text, { httpPort: 9001, smtpPort: 2626 });
    assert.equal(data, join(folder, 'mail'));
    assert.equal(settings.http.port, 9001);
    assert.deepEqual(
      settings.smtp.listeners.map(({ port }) => port),
      [2626, 26],
    );
  });

  test('the result is frozen to its leaves', async () => {
    const { settings, options } = await load('{}');
    assert.throws(() => Object.assign(settings.http, { port: 1 }), TypeError);
    assert.throws(() => Object.assign(options.get('clockwork') as object, { size: 1 }), TypeError);
  });

  test('domains are canonical', async () => {
    const { domains } = await load(`{ domains: ['Example.ORG', 'bücher.example'] }`);
    assert.deepEqual(domains, ['example.org', 'xn--bcher-kva.example']);
  });

  test('a secret may come from the environment or from a file', async () => {
    const fromEnv = await load(
      `{ plugins: { clockwork: { key: { env: 'CLOCK_KEY' } } } }`,
      {},
      { CLOCK_KEY: 'winder' },
    );
    assert.deepEqual(fromEnv.options.get('clockwork'), { size: 3, key: 'winder', file: 'clock.json' });
    writeFileSync(join(folder, 'key.txt'), 'from a file\n');
    const fromFile = await load(`{ plugins: { clockwork: { key: { file: 'key.txt' } } } }`);
    assert.deepEqual(fromFile.options.get('clockwork'), { size: 3, key: 'from a file', file: 'clock.json' });
  });
});

suite('a configuration that is refused says where and what', () => {
  const cases: readonly [title: string, text: string, expected: RegExp][] = [
    ['broken JSON5', '{\n  data: ,\n}', /…\/postern\.json5:2:9: not valid JSON5: invalid character ','/],
    ['a list', '[]', /must be an object/],
    [
      'a key that stands there twice',
      '{\n  hostname: "a.example",\n  http: { port: 1, "port": 2 },\n  hostname: "b.example", data: 1 }',
      /^…\/postern\.json5:3:20: http\.port: [^\n]*line 3[^\n]*\n…\/postern\.json5:4:3: hostname: [^\n]*line 2[^\n]*\n.*:4:26: data: /,
    ],
    ['an unknown key', '{\n  hostnane: "x"\n}', /postern\.json5:2:3: hostnane: unknown key; did you mean hostname\?/],
    [
      'an unknown nested key',
      '{ smtp: {\n listeners: [{ prot: 25 }] } }',
      /:2:\d+: smtp\.listeners\.0\.prot: unknown key; did you mean port/,
    ],
    ['a wrong type', '{ http: {\n port: "many" } }', /postern\.json5:2:2: http\.port: .*expected (number|int)/],
    ['a value out of bounds', '{ plugins: { clockwork: {\n size: 12 } } }', /:2:2: plugins\.clockwork\.size: .*<=9/],
    [
      'an unknown key of a plugin',
      '{ plugins: { clockwork: { sise: 2 } } }',
      /plugins\.clockwork\.sise: unknown key; did you mean size/,
    ],
    [
      'an unknown plugin',
      '{ plugins: { clokwork: {} } }',
      /plugins\.clokwork: there is no such plugin; known plugins: clockwork/,
    ],
    [
      'a key that is missing, and one that is unknown, where a text would do as well',
      '{ sitePlugins: [\n{ path: "./doorman" }] }',
      /sitePlugins\.0\.from: .*expected string[^]*:2:3: sitePlugins\.0\.path: unknown key; known keys here: from, mode/,
    ],
    ['a bad domain', '{ domains: ["ok.example", "not a domain"] }', /domains\.1: /],
    ['a bad network', '{ smtp: { relayNetworks: ["10.0.0.0/99"] } }', /smtp\.relayNetworks: /],
    [
      'a missing variable',
      '{ plugins: { clockwork: { key: { env: "NOPE" } } } }',
      /key: the environment variable NOPE is not set/,
    ],
    [
      'a missing secret file',
      '{ plugins: { clockwork: { key: { file: "nope" } } } }',
      /key: the file …\/nope cannot be read/,
    ],
  ];
  for (const [title, text, expected] of cases) {
    test(title, async () => assert.match(await refusal(text), expected));
  }

  test('all mistakes are reported at once', async () => {
    const told = await refusal('{ hostnane: "x", domains: [], plugins: { clockwork: { size: "big" } } }');
    assert.match(told, /hostnane/);
    assert.match(told, /domains/);
  });

  test('a missing secret is one mistake', async () => {
    writeFileSync(join(folder, 'empty.txt'), '\n');
    const accounts = (given: string) => `{ http: { accounts: [{ username: 'ops', role: 'admin', ${given} }] } }`;
    const single: readonly (readonly [text: string, told: string])[] = [
      [accounts(`password: { env: 'NOPE' }`), 'http.accounts.0.password: the environment variable NOPE is not set'],
      [accounts(`passwordHash: { file: 'empty.txt' }`), 'http.accounts.0.passwordHash: the file …/empty.txt is empty'],
      [
        `{ plugins: { clockwork: { key: { env: 'EMPTY' } } } }`,
        'plugins.clockwork.key: the environment variable EMPTY is empty',
      ],
    ];
    for (const [text, told] of single) {
      assert.equal((await refusal(text, { EMPTY: '' })).replace(/^….postern\.json5:\d+:\d+: /, ''), told);
    }
  });

  test('two listeners on one address are refused, however it is written', async () => {
    const shared: readonly (readonly [listeners: string, told: string])[] = [
      [
        `{ port: 25 }, { port: 25 }`,
        '1: cannot listen on 127.0.0.1 port 25: the listener mx does; name another place.',
      ],
      [`{ port: 25 }, { host: '0.0.0.0', port: 25 }`, '1: cannot listen on 0.0.0.0 port 25: the listener mx does, on'],
      [`{ host: '::', port: 25 }, { port: 25 }`, '1: cannot listen on 127.0.0.1 port 25: the listener mx does, on ::;'],
      [`{ host: '::1', port: 25 }, { host: '0:0::1', port: 25 }`, '1: cannot listen on 0:0::1 port 25: '],
      [`{ socket: 'a' }, { socket: 'a' }`, '1: cannot listen on the socket a: the listener mx does; '],
      [`{ port: 8080 }`, '0: cannot listen on 127.0.0.1 port 8080: http does; '],
    ];
    for (const [listeners, told] of shared) {
      const found = await refusal(`{ smtp: { listeners: [${listeners}] } }`);
      assert.ok(found.includes(`smtp.listeners.${told}`), found);
    }
    const apart = [
      `{ port: 0 }, { port: 0 }`,
      `{ host: '0.0.0.0', port: 25 }, { host: '::1', port: 25 }`,
      `{ host: '127.0.0.2', port: 25 }, { port: 25 }`,
      `{ socket: 'a' }, { socket: 'b' }, { fd: 3 }, { port: 2525 }`,
    ];
    for (const listeners of apart) await load(`{ smtp: { listeners: [${listeners}] } }`);
  });

  test('ports of the command line apply', async () => {
    const text = `{ smtp: { listeners: [{ port: 25 }, { port: 26 }] } }`;
    await assert.rejects(load(text, { smtpPort: 26 }), /smtp\.listeners\.1: cannot listen on 127\.0\.0\.1 port 26/);
    await assert.rejects(load(text, { httpPort: 26 }), /smtp\.listeners\.1: .*: http does/);
    await load(`{ smtp: { listeners: [{ port: 26 }, { port: 26 }] } }`, { smtpPort: 25 });
  });

  test('a repeated key in a layer is refused, even when the own file overrides it', async () => {
    const own = `{ hostname: 'own.example', plugins: { config: { sync: {} } } }`;
    const layer = { name: 'base.json5', text: `{ hostname: 'a.example',\n "hostname": 'b.example' }` };
    await assert.rejects(load(own, {}, {}, [layer]), /sync:base\.json5:2:2: hostname: .* line 1;/);
  });

  test('a named file that is missing is refused with a sentence', async () => {
    await assert.rejects(
      load(undefined, { config: 'other.json5' }),
      /other\.json5: there is no such configuration file/,
    );
  });
});

suite('the effective configuration', () => {
  test('every key has value, origin, place, default and description', async () => {
    const text = '{\n  plugins: {\n    clockwork: { size: 7, key: { env: "CLOCK_KEY" } },\n  },\n}';
    const values = (await load(text, { httpPort: 0 }, { CLOCK_KEY: 'winder' })).effective();
    const of = (key: string) => values.find((value) => value.key === key);
    assert.deepEqual(of('plugins.clockwork.size'), {
      key: 'plugins.clockwork.size',
      value: 7,
      origin: 'file',
      where: `${join(folder, 'postern.json5')}:3`,
      default: 3,
      description: 'How big it is.',
      secret: false,
    });
    assert.equal(of('plugins.clockwork.file')?.origin, 'default');
    assert.equal(of('http.port')?.origin, 'command line');
    assert.equal(of('smtp.listeners.0.port')?.value, 2525);
  });

  test('a key that is not set is there too, but not one of another kind of object', async () => {
    const values = (await load('{}')).effective();
    const keys = new Map(values.map((value) => [value.key, value]));
    const https = keys.get('http.https');
    assert.deepEqual([https?.value, https?.default, https?.origin, https?.where], [null, null, 'default', null]);
    assert.match(https?.description ?? '', /\S/);
    assert.ok(keys.has('smtp.listeners.0.cert'));
    assert.ok(!keys.has('$schema') && !keys.has('plugins'));
    const kinds = z.strictObject({
      place: z.union([z.strictObject({ file: z.string() }), z.strictObject({ host: z.string() })]),
      other: z.string().optional(),
    });
    const nowhere = { places: new Map(), overrides: new Map() };
    const found = effectiveValues({ place: { file: 'x' } }, {}, schemaOutline(kinds), '', nowhere);
    assert.deepEqual(
      found.map(({ key, value }) => [key, value]),
      [
        ['place.file', 'x'],
        ['other', null],
      ],
    );
  });

  test('secrets never show, wherever they came from', async () => {
    const text = `{ plugins: { clockwork: { key: 'planted-secret' } } }`;
    const values = (await load(text)).effective();
    const key = values.find((value) => value.key === 'plugins.clockwork.key');
    assert.deepEqual([key?.value, key?.secret, key?.origin], [MASK, true, 'file']);
    assert.ok(!JSON.stringify(values).includes('planted-secret'));
  });
});
