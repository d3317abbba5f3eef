import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { configure, start } from '../../core/main.js';
import { isStartError } from '../../core/problem.js';
import { selfSigned } from '../support/certificate.js';
import { atEnd, type Ending } from '../support/ending.js';
import { freeListeners, runPostern, ServerProcess, type CommandResult } from '../support/server-process.js';
import { temporaryFolder } from '../support/temporary-folder.js';

const free = `smtp: { listeners: ${freeListeners} }`;

/** Starts where `postern.json5` has that text. */
async function startWith(folder: string, config: string, ...args: readonly string[]): Promise<CommandResult> {
  await writeFile(join(folder, 'postern.json5'), config);
  return runPostern(['start', '--http-port', '0', ...args], { cwd: folder });
}

/** Exit 1 with a sentence that holds the given words, and nothing of our own inner parts. */
function assertRefusal(result: CommandResult, ...words: readonly (string | RegExp)[]): void {
  assertExit(1, result, ...words);
}

function assertExit(
  status: number,
  { code, stdout, stderr }: CommandResult,
  ...words: readonly (string | RegExp)[]
): void {
  assert.equal(code, status, `${stdout}${stderr}`);
  for (const word of words) {
    assert.ok(typeof word === 'string' ? stderr.includes(word) : word.test(stderr), `${word} is not in: ${stderr}`);
  }
  assert.doesNotMatch(stderr, /^\s+at |node:internal|\.[jt]s:\d+|\[object|undefined/m);
  assert.doesNotMatch(stdout, /postern ready/);
}

/** The same in this process, where a start costs little: a start error, whose sentence the command would print. */
async function assertRefused(folder: string, config: string, ...words: readonly (string | RegExp)[]): Promise<void> {
  await writeFile(join(folder, 'postern.json5'), config);
  await assert.rejects(start({ httpPort: 0 }, { cwd: folder, env: {}, print: () => undefined }), (error) => {
    assert.ok(isStartError(error), String(error));
    for (const word of words) {
      assert.ok(typeof word === 'string' ? error.message.includes(word) : word.test(error.message), error.message);
    }
    return true;
  });
}

async function takenPort(test: Ending): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  atEnd(test, () => {
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

describe('a start that cannot be ends with a sentence and an exit status', { concurrency: 2 }, () => {
  test('a second process on the same data folder', async (t) => {
    const folder = await temporaryFolder(t);
    const first = await ServerProcess.start(t, { folder });
    assertRefusal(await startWith(folder, `{ ${free} }`), join(folder, 'data'), `${first.pid}`);
  });

  test('a folder whose owner was killed is taken over', async (t) => {
    const folder = await temporaryFolder(t);
    const first = await ServerProcess.start(t, { folder });
    await first.kill('SIGKILL');
    await ServerProcess.start(t, { folder });
  });

  test('an HTTP port that is taken', async (t) => {
    const folder = await temporaryFolder(t);
    const port = await takenPort(t);
    const result = await runPostern(['start', '--http-port', `${port}`, '--smtp-port', '0'], { cwd: folder });
    assertRefusal(result, `${port}`);
    const server = await ServerProcess.start(t, { folder, env: {} });
    await server.find(/Password {4}[a-z0-9]{5}(?:-[a-z0-9]{5}){3}/);
  });

  test('a data folder that is a file', async (t) => {
    const folder = await temporaryFolder(t);
    await writeFile(join(folder, 'data'), 'not a folder');
    assertRefusal(await startWith(folder, `{ ${free} }`), join(folder, 'data'), '--data');
  });

  test('an unknown key, with file, line and what may have been meant', async (t) => {
    const folder = await temporaryFolder(t);
    assertRefusal(await startWith(folder, '{\n  smpt: {},\n}'), /postern\.json5:2/, 'smpt', 'smtp');
  });

  test('an option that is unknown or lacks its value, with status 2', async (t) => {
    const folder = await temporaryFolder(t);
    assertExit(2, await runPostern(['start', '--prot', '1'], { cwd: folder }), '--prot');
    assertExit(2, await runPostern(['start', '--http-port', 'many'], { cwd: folder }), '--http-port');
  });
});

describe('a start that cannot be is refused', () => {
  test('an SMTP port that is taken', async (t) => {
    const folder = await temporaryFolder(t);
    const port = await takenPort(t);
    await assertRefused(folder, `{ smtp: { listeners: [{ port: ${port} }] } }`, `${port}`);
  });

  test('a data folder below a file', async (t) => {
    const folder = await temporaryFolder(t);
    await writeFile(join(folder, 'file'), '');
    const data = join(folder, 'file', 'data');
    await assertRefused(folder, `{ data: 'file/data', ${free} }`, data);
  });

  test('a certificate that is none', async (t) => {
    const folder = await temporaryFolder(t);
    await writeFile(join(folder, 'key.pem'), selfSigned().key);
    await writeFile(join(folder, 'cert.pem'), 'this is no certificate');
    const listener = `{ port: 0, tls: 'starttls', key: 'key.pem', cert: 'cert.pem' }`;
    await assertRefused(folder, `{ smtp: { listeners: [${listener}] } }`, /cert/i);
  });

  test('a key that belongs to another certificate', async (t) => {
    const folder = await temporaryFolder(t);
    await writeFile(join(folder, 'key.pem'), selfSigned().key);
    await writeFile(join(folder, 'cert.pem'), selfSigned().cert);
    const listener = `{ port: 0, tls: 'starttls', key: 'key.pem', cert: 'cert.pem' }`;
    await assertRefused(folder, `{ smtp: { listeners: [${listener}] } }`, /key/i, /cert/i);
  });

  test('a certificate file that is not there', async (t) => {
    const folder = await temporaryFolder(t);
    await writeFile(join(folder, 'key.pem'), selfSigned().key);
    const listener = `{ port: 0, tls: 'starttls', key: 'key.pem', cert: 'missing.pem' }`;
    await assertRefused(folder, `{ smtp: { listeners: [${listener}] } }`, 'missing.pem');
  });

  test('a configuration file that is not there', async (t) => {
    const folder = await temporaryFolder(t);
    await assert.rejects(
      configure({ config: 'nowhere.json5' }, { cwd: folder, env: {}, print: () => undefined }),
      /nowhere\.json5/,
    );
  });

  test('HTTP beyond loopback without an account', async (t) => {
    const folder = await temporaryFolder(t);
    await assertRefused(folder, `{ http: { host: '0.0.0.0' }, ${free} }`, /account/);
  });

  test('a required plugin of the site that throws, by its name', async (t) => {
    const folder = await temporaryFolder(t);
    await mkdir(join(folder, 'broken'));
    await writeFile(join(folder, 'broken', 'package.json'), '{ "type": "module" }');
    await writeFile(
      join(folder, 'broken', 'index.js'),
      `import { definePlugin, z } from 'postern/plugin';
       export const broken = definePlugin({ name: 'broken', options: z.strictObject({}), setup() { throw new Error('no luck'); } });`,
    );
    await assertRefused(
      folder,
      `{ sitePlugins: [{ from: './broken', required: true }], ${free} }`,
      'broken',
      'no luck',
      'required',
    );
  });

  for (const name of ['spool', 'uploads', 'mail', 'queue', 'drafts', 'cache']) {
    test(`a file where the folder ${name} belongs, which is left as it is`, async (t) => {
      const folder = await temporaryFolder(t);
      await mkdir(join(folder, 'data'));
      await writeFile(join(folder, 'data', name), 'not a folder');
      await assertRefused(folder, `{ ${free} }`, join(folder, 'data', name), 'is not a folder');
      assert.equal(await readFile(join(folder, 'data', name), 'utf8'), 'not a folder');
    });
  }

  test('a broken users.json, which is left as it is', async (t) => {
    const folder = await temporaryFolder(t);
    await mkdir(join(folder, 'data'));
    await writeFile(join(folder, 'data', 'users.json'), '{ "users": [');
    await assertRefused(folder, `{ ${free} }`, 'users.json');
  });
});
