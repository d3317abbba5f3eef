import assert from 'node:assert/strict';
import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import { nodeVersion } from '../../../plugins/doctor/system-checks.js';
import { type ReportedFinding, textReport } from '../../../plugins/doctor/doctor.js';
import { selfSigned } from '../../support/certificate.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { Examined } from './examined.js';

const free = `http: { port: 0 }, smtp: { listeners: [{ port: 0 }] }`;

async function withPlugin(t: TestContext, checks: string, options: { readonly limitMs?: number } = {}) {
  const folder = await temporaryFolder(t);
  await chmod(folder, 0o700);
  await mkdir(join(folder, 'site'), { mode: 0o700 });
  const code = `
    import { advice, definePlugin, fine, z } from 'postern/plugin';
    export const site = definePlugin({
      name: 'site', options: z.strictObject({ word: z.string().default('yes') }), setup() {}, checks: [${checks}],
    });`;
  await writeFile(join(folder, 'site', 'index.js'), code, { mode: 0o600 });
  return Examined.of(t, `{ ${free}, sitePlugins: ['./site'], plugins: { site: { word: 'no' } } }`, {
    folder,
    ...options,
  });
}

describe('an examination', { concurrency: 4 }, () => {
  test('tells every mistake of the configuration, and leaves out what needs one', async (t) => {
    const { findings } = await Examined.of(t, `{ domains: [], http: { port: 'many' }, smpt: {} }`);
    const told = findings.filter(({ check }) => check === 'configuration').map(({ state, is }) => `${state} ${is}`);
    assert.equal(told.length, 3);
    for (const key of ['domains', 'http.port', 'smpt']) {
      assert.ok(
        told.some(
          (sentence) =>
            sentence.startsWith('problem ') && sentence.includes(`postern.json5:1:`) && sentence.includes(key),
        ),
        told.join('\n'),
      );
    }
    assert.deepEqual([...new Set(findings.map(({ check }) => check))], ['configuration', 'node-version']);
  });

  test('asks the checks of plugins, with their options, in their group', async (t) => {
    const examined = await withPlugin(
      t,
      `{ group: 'Mail', name: 'words', run: ({ options, configuration, owner }) => [fine(options.word + (owner === undefined)), advice('Two.', configuration.domains[0])] }`,
    );
    assert.deepEqual(examined.of('words'), ['ok: notrue', 'advice: Two. → localhost']);
    assert.ok(
      examined.findings.findIndex(({ check }) => check === 'words') >
        examined.findings.findIndex(({ check }) => check === 'ports'),
    );
  });

  test('a check that throws, or never ends, is reported as a problem beside the others', async (t) => {
    const examined = await withPlugin(
      t,
      `{ group: 'Mail', name: 'thrower', run() { throw new TypeError('password: geheim') } },
       { group: 'Mail', name: 'sleeper', run: () => new Promise(() => {}) }`,
      { limitMs: 700 },
    );
    assert.match(examined.of('thrower').join(), /^problem: The check thrower failed \(TypeError\)/);
    assert.match(examined.of('sleeper').join(), /^problem: The check sleeper did not come to an end within 0\.7 s/);
    assert.deepEqual(examined.states('listeners'), ['ok']);
    assert.ok(!JSON.stringify(examined.findings).includes('geheim'));
  });

  test('code of plugins that others may change is a problem', async (t) => {
    const folder = await temporaryFolder(t);
    await chmod(folder, 0o700);
    await mkdir(join(folder, 'site', 'lib'), { recursive: true });
    await writeFile(
      join(folder, 'site', 'index.js'),
      `import { definePlugin } from 'postern/plugin'; export const site = definePlugin({ name: 'site', setup() {} });`,
    );
    await writeFile(join(folder, 'site', 'lib', 'part.js'), '');
    const look = async () =>
      (await Examined.of(t, `{ ${free}, sitePlugins: ['./site'] }`, { folder })).of('site-plugins').join();
    assert.match(await look(), /^ok: The code of the plugin site/);
    await chmod(join(folder, 'site', 'lib', 'part.js'), 0o666);
    assert.match(await look(), /^problem: Everybody on this machine may change .*part\.js.* → chmod -R go-w/);
    await chmod(join(folder, 'site', 'lib', 'part.js'), 0o660);
    assert.match(await look(), /^advice: The group/);
  });

  test('secrets in a world-readable file, weak passwords, and open access', async (t) => {
    const config = `{
      ${free.replace('port: 0 }', "port: 0, host: '0.0.0.0', accounts: [{ username: 'ops', password: 'changeme', role: 'admin' }, { username: 'anna', password: 'x7!fq9', role: 'read' }], access: [{ match: '/users/*', public: true }] }")},
    }`
      .replace(
        '[{ port: 0 }]',
        `[{ port: 0, host: '::' }, { mode: 'submission', port: 0, host: '0.0.0.0', allowPlaintextAuth: true }, { mode: 'lmtp', port: 0, host: '0.0.0.0' }]`,
      )
      .replace('smtp: {', `smtp: { relayNetworks: ['10.0.0.0/8', '128.0.0.0/1', 'fc00::/7'],`);
    const folder = await temporaryFolder(t);
    const examined = await Examined.of(t, config, { folder });
    await chmod(join(folder, 'postern.json5'), 0o644);
    const again = await Examined.of(t, config, { folder });
    assert.match(
      again.of('secrets').join(),
      /^advice: Everybody .* may read the secrets .*http\.accounts\.0\.password, http\.accounts\.1\.password/,
    );
    assert.deepEqual(examined.states('accounts'), ['problem', 'advice']);
    assert.ok(!JSON.stringify(examined.findings).includes('x7!fq9'));
    assert.match(examined.of('pages').join(), /^advice: Other machines may reach the pages/);
    assert.match(examined.of('public-pages').join(), /^problem: Nobody has to sign in for "\/users\/\*"/);
    assert.deepEqual(examined.states('listeners'), ['advice', 'problem', 'advice']);
    assert.match(examined.of('relay-networks').join(), /^problem: 128\.0\.0\.0\/1 may send/);
    const unchosen = await Examined.of(t, `{ http: { host: '0.0.0.0', port: 0 }, smtp: { listeners: [{ port: 0 }] } }`);
    assert.match(unchosen.of('pages')[0] ?? '', /^problem: .*nobody chose who may sign in/);
    const handed = await Examined.of(t, `{ http: { socket: 'http' }, smtp: { listeners: [{ port: 0 }] } }`);
    assert.match(handed.of('pages')[0] ?? '', /^problem: .*\(http\.socket http\), and nobody chose who may sign in/);
    const rule = `{ match: '/metrics/*', username: 'scraper', password: 'metrics' }`;
    const scraped = await Examined.of(
      t,
      `{ http: { port: 0, access: [${rule}] }, smtp: { listeners: [{ port: 0 }] } }`,
    );
    assert.match(scraped.of('accounts').join(), /^advice: The password of the account scraper has less than 12/);
  });

  test('the password of admin may be given where the server starts', async (t) => {
    const folder = await temporaryFolder(t);
    const look = async (env = {}) => (await Examined.of(t, `{ ${free} }`, { folder, env })).of('accounts').join();
    assert.match(await look(), /^ok: The first start makes .*, unless POSTERN_ADMIN_PASSWORD is set where/);
    await mkdir(join(folder, 'data'), { mode: 0o700 });
    await writeFile(join(folder, 'data', 'accounts.json'), '{}', { mode: 0o600 });
    assert.match(
      await look(),
      /^advice: The account admin has the password .*, unless POSTERN_ADMIN_PASSWORD is set where the server starts\./,
    );
    assert.match(await look({ POSTERN_ADMIN_PASSWORD: 'x7!fq9-oRm2-Lk81' }), /^ok: 1 account/);
  });

  test('a secret file that everybody may read is refused', async (t) => {
    const folder = await temporaryFolder(t);
    const place = join(folder, 'password');
    await writeFile(place, 'x7!fq9-oRm2-Lk81', { mode: 0o640 });
    const account = `{ username: 'ops', role: 'admin', password: { file: 'password' } }`;
    const config = `{ http: { port: 0, accounts: [${account}] }, smtp: { listeners: [{ port: 0 }] } }`;
    const look = async () => (await Examined.of(t, config, { folder })).of('secrets').join();
    assert.equal(await look(), 'ok: There is no secret in the configuration file.');
    await chmod(place, 0o644);
    assert.match(
      await look(),
      /advice: Everybody on this machine may read \S+\/password, which holds a secret\. → chmod o-r/,
    );
  });

  test('the path of a key file is no secret, the key itself is one', async (t) => {
    const folder = await temporaryFolder(t);
    const { cert, key } = selfSigned('localhost');
    await writeFile(join(folder, 'cert.pem'), cert);
    await writeFile(join(folder, 'key.pem'), key, { mode: 0o600 });
    const look = async (given: string) => {
      const listener = `{ port: 0, tls: 'starttls', cert: 'cert.pem', key: ${JSON.stringify(given)} }`;
      const config = `{ http: { port: 0 }, smtp: { listeners: [${listener}] } }`;
      await Examined.of(t, config, { folder });
      await chmod(join(folder, 'postern.json5'), 0o644);
      return (await Examined.of(t, config, { folder })).of('secrets').join();
    };
    assert.equal(await look('key.pem'), 'ok: There is no secret in the configuration file.');
    assert.match(await look(key), /^advice: Everybody .* may read the secrets in .*: smtp\.listeners\.0\.key\. /);
  });

  test('a Node.js that is too old', () => {
    assert.equal(nodeVersion('20.18.3').state, 'problem');
    assert.equal(nodeVersion('18.99.99').state, 'problem');
    assert.equal(nodeVersion('20.19.0').state, 'ok');
    assert.equal(nodeVersion('24.0.0').state, 'ok');
    assert.equal(nodeVersion('20.19.0-rc.1').state, 'ok');
  });
});

describe('the report', () => {
  const word = 'word '.repeat(40).trim();
  const findings: readonly ReportedFinding[] = [
    { group: 'Ports', check: 'ports', state: 'ok', is: 'Fine.' },
    { group: 'Ports', check: 'ports', state: 'problem', is: word, todo: word },
    { group: 'Mail', check: 'queue', state: 'advice', is: `/a/${'long/'.repeat(40)}path is long.`, todo: 'Do.' },
    { group: 'Mail', check: 'queue', state: 'skipped', is: 'Not looked at.' },
  ];

  test('fits into 80 columns, but for words that do not', () => {
    const text = textReport(findings, 'Postern', false);
    assert.ok(text.split('\n').every((line) => line.length <= 80 || line.includes('/a/long/')));
    assert.ok(!text.includes('\u001B'));
    assert.match(text, /^Postern\n\nPorts\n {2}ok {7}Fine\.\n {2}PROBLEM {2}word word/);
    assert.match(text, /\n1 problem, 1 piece of advice; 1 ok, 1 skipped\.$/);
  });

  test('colours change nothing but colours', () => {
    const coloured = textReport(findings, 'Postern', true);
    assert.ok(coloured.includes('\u001B[1;31mPROBLEM'));
    // oxlint-disable-next-line no-control-regex
    assert.equal(coloured.replace(/\u001B\[[\d;]*m/g, ''), textReport(findings, 'Postern', false));
  });
});
