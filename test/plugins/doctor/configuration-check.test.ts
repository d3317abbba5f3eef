import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { coreServices } from '../../../core/app.js';
import { checkConfiguration } from '../../../plugins/doctor/configuration-check.js';
import { selfSigned } from '../../support/certificate.js';
import { startInProcess } from '../../support/in-process-server.js';
import { temporaryFolder } from '../../support/temporary-folder.js';

const listener = (name: string, port: number): string =>
  `{ name: '${name}', port: ${port}, tls: 'starttls', cert: '${name}-cert.pem', key: '${name}-key.pem' }`;

describe('config check', () => {
  test('reads the certificates and keys of the listeners, and names each that would stop the start', async (t) => {
    const cwd = await temporaryFolder(t);
    const said: string[] = [];
    const check = () => checkConfiguration({}, { cwd, env: {}, print: (text) => void said.push(text) });
    const write = (name: string, text: string) => writeFile(join(cwd, name), text);
    const { cert, key } = selfSigned('mail.acme.org');
    const listeners = [listener('one', 2501), listener('two', 2502), listener('three', 2503)];
    await write('postern.json5', `{ smtp: { listeners: [${listeners.join(', ')}] } }`);
    await write('two-cert.pem', 'nothing');
    await write('two-key.pem', key);
    await write('three-cert.pem', cert);
    await write('three-key.pem', selfSigned('mail.acme.org').key);
    const complaints = [
      `SMTP listener one: the key file ${join(cwd, 'one-key.pem')} cannot be read.`,
      `SMTP listener two: the cert file ${join(cwd, 'two-cert.pem')} is not a PEM file.`,
      'SMTP listener three: key and cert do not belong together.',
    ];
    await assert.rejects(check(), { name: 'StartError', message: complaints.join('\n') });
    assert.deepEqual(said, []);

    for (const name of ['one', 'two', 'three']) {
      await write(`${name}-cert.pem`, cert);
      await write(`${name}-key.pem`, key);
    }
    assert.equal(await check(), 0);
    assert.match(said.join('\n'), /postern\.json5 — no mistakes found\. .*\nNot looked at: ports, [^\n]*$/);
  });

  test('reports open access and how to close it', async (t) => {
    const cwd = await temporaryFolder(t);
    const check = async (text: string, env = {}): Promise<string> => {
      const said: string[] = [];
      await writeFile(join(cwd, 'postern.json5'), text);
      assert.equal(await checkConfiguration({}, { cwd, env, print: (line) => void said.push(line) }), 0);
      return said.join('\n');
    };
    assert.doesNotMatch(await check('{}'), /Warning/);
    const open = `{
      http: { host: '0.0.0.0', access: [{ match: '/store/*', public: true }] },
      smtp: {
        listeners: [{ mode: 'submission', host: '::', allowPlaintextAuth: true }, { mode: 'submission', port: 587 }],
        relayNetworks: ['0.0.0.0/1', '128.0.0.0/1', 'fc00::/7', '2a00::/12'],
      },
    }`;
    const told = await check(open);
    for (const sentence of [
      /Warning: .*http\.host 0\.0\.0\.0\), and nobody chose who may sign in: .* Add an account to http\.accounts/,
      /Warning: .*where passwords go in clear\. Listen on 127\.0\.0\.1/,
      /Warning: Nobody has to sign in for "\/store\/\*"/,
      /Warning: Passwords of users go in clear to the listener submission \(::\)\. Give it tls/,
      /Warning: Nobody can sign in on the listener submission-2: it has no TLS/,
      /Warning: 0\.0\.0\.0\/1, 128\.0\.0\.0\/1, 2a00::\/12 may send to other servers without signing in/,
    ]) {
      assert.match(told, sentence);
    }
    assert.doesNotMatch(await check(open, { POSTERN_ADMIN_PASSWORD: 'x7!fq9-oRm2' }), /nobody chose|x7!fq9/);
    await assert.rejects(
      check(open, { POSTERN_ADMIN_PASSWORD: 'short' }),
      /POSTERN_ADMIN_PASSWORD cannot be used\. The password must have at least 10 characters\./,
    );
  });

  test('names a DKIM key that is not there, and a service that two plugins provide', async (t) => {
    const cwd = await temporaryFolder(t);
    const twice = (name: string) =>
      `import { definePlugin, service } from 'postern/plugin';
       export default definePlugin({ name: '${name}', provides: { x: service('site.x') }, setup: () => ({ x: 1 }) });`;
    for (const name of ['one', 'two']) await writeFile(join(cwd, `${name}.mjs`), twice(name));
    const dkim = `{ 'example.org': { selector: 's1', key: 'missing.pem' } }`;
    const sites = `sitePlugins: ['./one.mjs', './two.mjs']`;
    await writeFile(join(cwd, 'postern.json5'), `{ ${sites}, plugins: { 'client-queue': { dkim: ${dkim} } } }`);
    const check = checkConfiguration({}, { cwd, env: {}, print: () => undefined });
    await assert.rejects(check, (error: Error) => {
      assert.match(error.message, /Plugin two provides site\.x, which plugin one provides already/);
      assert.match(error.message, /the key of example\.org, .*missing\.pem/);
      return true;
    });
  });

  test('prints mistakes and warnings as JSON', async (t) => {
    const cwd = await temporaryFolder(t);
    const check = async (text: string) => {
      const said: string[] = [];
      await writeFile(join(cwd, 'postern.json5'), text);
      const status = await checkConfiguration({}, { cwd, env: {}, print: (line) => void said.push(line) }, true);
      return { status, ...(JSON.parse(said.join('')) as { mistakes: string[]; warnings: { is: string }[] }) };
    };
    const open = await check(`{ http: { access: [{ match: '/store/*', public: true }] } }`);
    assert.deepEqual([open.status, open.mistakes.length], [0, 0]);
    assert.match(open.warnings.map(({ is }) => is).join(), /Nobody has to sign in for "\/store\/\*"/);
    const wrong = await check('{ hostnme: 1, domains: 2 }');
    assert.equal(wrong.status, 1);
    assert.match(wrong.mistakes.join('\n'), /domains: invalid.*\n.*hostnme: unknown key/);
  });

  test('names a core service that is provided again, an unmet need, and a circle of needs', async (t) => {
    const plugin = (name: string, rest: string): string =>
      `import { definePlugin, dns, service } from 'postern/plugin';
       export default definePlugin({ name: '${name}', ${rest}, setup: () => ({ x: 1 }) });`;
    const x = (name: string): string => `{ x: service('site.${name}') }`;
    const cases = {
      again: [
        [plugin('again', 'provides: { x: dns }')],
        /provides postern\.dns, which the server itself provides already/,
      ],
      lonely: [[plugin('lonely', `needs: ${x('nowhere')}`)], /lonely needs site\.nowhere, and no plugin/],
      circle: [
        [
          plugin('one', `needs: ${x('two')}, provides: ${x('one')}`),
          plugin('two', `needs: ${x('one')}, provides: ${x('two')}`),
        ],
        /one.*two|two.*one/,
      ],
    } as const;
    for (const [name, [codes, sentence]] of Object.entries(cases)) {
      const cwd = await temporaryFolder(t);
      const files = codes.map((code, at) => [`${name}${at}.mjs`, code] as const);
      for (const [file, code] of files) await writeFile(join(cwd, file), code);
      const sites = files.map(([file]) => `{ from: './${file}', required: true }`).join(', ');
      await writeFile(join(cwd, 'postern.json5'), `{ sitePlugins: [${sites}] }`);
      const check = checkConfiguration({}, { cwd, env: {}, print: () => undefined });
      await assert.rejects(check, { name: 'StartError', message: sentence }, name);
    }
  });

  test('knows all services that the server itself provides', async (t) => {
    const { server } = await startInProcess(t);
    // What a plugin only uses may be there by a plugin of the site alone.
    const needed = server.configuration.plugins.flatMap(({ needs }) => Object.values(needs));
    const provided = server.configuration.plugins.flatMap(({ provides }) => Object.values(provides));
    const known = [...provided, ...coreServices].map(({ id }) => id);
    assert.deepEqual(
      needed.map(({ id }) => id).filter((id) => !known.includes(id)),
      [],
    );
  });
});
