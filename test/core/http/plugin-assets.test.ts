import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, describe, test, type TestContext } from 'node:test';
import { isStartError } from '../../../core/problem.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { openShell, type OpenedShell } from './opened-shell.js';

async function folderWith(t: TestContext, files: Readonly<Record<string, string>>): Promise<string> {
  const folder = await temporaryFolder(t);
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), text);
  }
  return folder;
}

describe('assets of a plugin', () => {
  let opened: OpenedShell;
  before(async () => {
    opened = await openShell();
  });
  after(() => opened.close());

  const refusal = (folder: string, plugin = 'greylist'): string => {
    try {
      opened.shell.assets(plugin, folder);
    } catch (error) {
      assert.ok(isStartError(error), String(error));
      return error.message;
    }
    return assert.fail('the folder was taken');
  };

  test('are served below its name, immutable, with our types and policy, and are gone with it', async (t) => {
    const css = `.a { color: red }${' '.repeat(2000)}`;
    const folder = await folderWith(t, { 'style.css': css, 'icons/sun rise.svg': '<svg/>', 'data.bin': 'x' });
    const undo = opened.shell.assets('greylist', folder)();
    const url = opened.shell.asset('greylist/style.css');
    assert.match(url, /^\/assets\/greylist\/style\.[0-9a-f]{12}\.css$/);

    const answer = await opened.get(url);
    assert.equal(answer.status, 200);
    assert.equal(await answer.text(), css);
    assert.equal(answer.headers.get('content-type'), 'text/css; charset=utf-8');
    assert.equal(answer.headers.get('cache-control'), 'public, max-age=31536000, immutable');
    assert.match(answer.headers.get('content-security-policy') ?? '', /^default-src 'none'; script-src 'self'/);
    const icon = await opened.get(opened.shell.asset('greylist/icons/sun rise.svg'));
    assert.deepEqual([icon.status, icon.headers.get('content-type')], [200, 'image/svg+xml']);
    const bytes = await opened.get(opened.shell.asset('greylist/data.bin'));
    assert.equal(bytes.headers.get('content-type'), 'application/octet-stream');
    assert.equal((await opened.get('/assets/greylist/style.css')).status, 404, 'without the hash');

    undo();
    assert.equal((await opened.get(url)).status, 404);
    assert.throws(() => opened.shell.asset('greylist/style.css'), /no asset greylist/);
    assert.equal((await opened.get(opened.shell.asset('app.css'))).status, 200, 'ours stay');
  });

  test('the URL changes with the content, so a successor is never confused with its forerunner', async (t) => {
    const folder = await folderWith(t, { 'style.css': 'a{}' });
    const undo = opened.shell.assets('greylist', folder)();
    const first = opened.shell.asset('greylist/style.css');
    writeFileSync(join(folder, 'style.css'), 'b{}');
    assert.equal(await (await opened.get(first)).text(), 'a{}', 'read when the plugin was set up');
    const register = opened.shell.assets('greylist', folder);
    undo();
    const undoSuccessor = register();
    assert.notEqual(opened.shell.asset('greylist/style.css'), first);
    assert.equal(await (await opened.get(opened.shell.asset('greylist/style.css'))).text(), 'b{}');
    undoSuccessor();
  });

  test('nothing outside of the folder and nothing hidden in it can be reached', async (t) => {
    const secrets = await folderWith(t, { 'key.pem': 'secret', 'inner/key.pem': 'secret' });
    const folder = await folderWith(t, { 'style.css': 'a{}', '.env': 'secret', '.git/config': 'secret' });
    symlinkSync(join(secrets, 'key.pem'), join(folder, 'link.css'));
    symlinkSync(join(secrets, 'inner'), join(folder, 'inner'));
    spawnSync('mkfifo', [join(folder, 'pipe.css')]);
    const undo = opened.shell.assets('greylist', folder)();
    for (const name of ['link.css', 'inner/key.pem', '.env', '.git/config', 'pipe.css', '../key.pem']) {
      assert.throws(() => opened.shell.asset(`greylist/${name}`), /there is no asset/, name);
    }
    const { port } = opened;
    for (const path of ['..%2fkey.pem', '%2e%2e/key.pem', 'inner/key.pem', '.env', 'style.css/../.env']) {
      const { status } = await fetch(`http://127.0.0.1:${port}/assets/greylist/${path}`);
      assert.ok(status === 404 || status === 400, `${path}: ${status}`);
    }
    undo();
  });

  test('a folder that is a link itself is the wish of who named it', async (t) => {
    const folder = await folderWith(t, { 'style.css': 'a{}' });
    const link = join(await temporaryFolder(t), 'assets');
    symlinkSync(folder, link);
    const undo = opened.shell.assets('greylist', link)();
    assert.equal((await opened.get(opened.shell.asset('greylist/style.css'))).status, 200);
    undo();
  });

  test('a folder that cannot be served is refused with a sentence', async (t) => {
    const folder = await folderWith(t, { 'big.bin': '', 'style.css': 'a{}' });
    truncateSync(join(folder, 'big.bin'), 4 * 1024 ** 2 + 1);
    assert.match(refusal('assets'), /^Plugin greylist, assets: assets is not an absolute path/);
    assert.match(refusal('/nowhere/at/all'), /\/nowhere\/at\/all is not a folder that can be read/);
    assert.match(refusal(join(folder, 'style.css')), /style\.css is not a folder that can be read/);
    assert.match(refusal(folder), /big\.bin is larger than 4 MiB/);
    assert.match(refusal('/usr'), /holds more than (1000 files|32 MiB)|is larger than 4 MiB/);
    assert.match(refusal(folder, 'vendor'), /Plugin vendor cannot have assets: \/assets\/vendor\/ is the server's own/);
  });
});
