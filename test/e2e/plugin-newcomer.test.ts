import assert from 'node:assert/strict';
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { stripsTypes, takenNames } from '../../plugins/plugin-kit/new-plugin.js';
import { suiteEnding } from '../support/ending.js';
import { HttpClient } from '../support/http-client.js';
import { compilerComplaints } from '../support/type-check.js';
import { ShippedPackage, type ShippedServer } from '../support/shipped-package.js';
import { SmtpClient } from '../support/smtp-client.js';
import { temporaryFolder } from '../support/temporary-folder.js';

const suite = suiteEnding();

interface Senders {
  readonly senders: readonly { readonly sender: string; readonly verdict: string }[];
}

describe('a newcomer with the package and an empty folder', () => {
  let postern: ShippedPackage;
  let folder = '';
  let server: ShippedServer;
  let admin: HttpClient;

  const sh = async (script: string, expected = 0): Promise<string> => {
    const { code, output } = await postern.sh(script, folder);
    assert.equal(code, expected, output);
    return output;
  };
  const edit = async (file: string, from: string, to: string): Promise<void> => {
    const text = await readFile(join(folder, file), 'utf8');
    assert.ok(text.includes(from), `${from} is not in ${file}`);
    await writeFile(join(folder, file), text.replace(from, to));
  };
  const answerTo = async (sender: string): Promise<string> => {
    const client = await SmtpClient.greeted({ port: server.smtpPort });
    const { raw } = await client.command(`MAIL FROM:<${sender}>`);
    client.close();
    return raw.trim();
  };
  const reload = async (expected: number): Promise<string> => {
    const { status, text } = await admin.request('/config/reload', { method: 'POST', accept: 'application/json' });
    assert.equal(status, expected, text);
    return text;
  };

  before(async () => {
    postern = await ShippedPackage.unpack(suite);
    folder = await temporaryFolder(suite);
  });

  test('writes a plugin, edits it, and has it tested and checked', async () => {
    await sh('postern plugin new doorman');
    await edit('doorman/index.js', "'This sender is not welcome here'", "'The doorman does not know you'");
    assert.match(await sh('postern plugin test ./doorman'), /^ℹ pass 4$/m);
    assert.match(await sh('cd doorman && npm test --silent'), /^ℹ pass 4$/m);
    await mkdir(join(folder, 'tmp'));
    assert.match(await sh('TMPDIR=$PWD/tmp postern plugin check ./doorman'), /\.\/doorman: no mistakes found\./);
    // Newer releases of Node keep there what they have compiled.
    const left = (await readdir(join(folder, 'tmp'))).filter((name) => name !== 'node-compile-cache');
    assert.deepEqual(left, [], 'a check leaves nothing behind');
    assert.deepEqual((await readdir(folder)).toSorted(), ['doorman', 'tmp']);
  });

  test('starts the server: mail goes through the hook, and the page shows it', async () => {
    const config = "{ sitePlugins: ['./doorman'], plugins: { doorman: { refuse: ['spam@example.com'] } } }";
    await writeFile(join(folder, 'postern.json5'), config);
    server = await postern.start(suite, folder);
    admin = HttpClient.admin(server.http, server.password);
    assert.equal(await answerTo('spam@example.com'), '550 5.7.1 The doorman does not know you');
    assert.match(await answerTo('anna@example.com'), /^250 /);
    const { senders } = (await admin.json('/doorman')) as Senders;
    assert.deepEqual(
      senders.map(({ sender, verdict }) => `${sender} ${verdict}`),
      ['anna@example.com passed', 'spam@example.com refused'],
    );
    const page = await admin.page('/doorman');
    assert.match(page, /spam@example\.com/);
    const [, style = ''] = /href="(\/assets\/doorman\/style\.[0-9a-f]{12}\.css)"/.exec(page) ?? [];
    assert.match((await admin.request(style)).text, /\.doorman-sender/);
  });

  test('finds the plugin everywhere that plugins are shown', async () => {
    assert.match(await admin.page('/'), /\/doorman/);
    assert.match(await admin.page('/config'), /doorman/);
    assert.match((await admin.request('/openapi.json')).text, /"\/doorman"/);
    assert.match(
      (await admin.request('/metrics/prometheus')).text,
      /^postern_doorman_senders_total\{verdict="refused"\} 1$/m,
    );
    assert.match(JSON.stringify(await admin.json('/health')), /"doorman":\{"status":"up"/);
    assert.match(JSON.stringify(await admin.json('/pipeline')), /"plugin":"doorman"/);
  });

  test('edits it while the server runs: a reload brings the new code, its view and its options into force', async () => {
    await edit('doorman/index.js', "'The doorman does not know you'", "'The doorman has looked twice'");
    await edit('doorman/views/page.njk', 'No mail has been received yet', 'The doorman is bored');
    await edit('postern.json5', "['spam@example.com']", "['spam@example.com', 'more@example.com']");
    assert.equal(
      await answerTo('spam@example.com'),
      '550 5.7.1 The doorman does not know you',
      'not before the reload',
    );
    assert.match(await reload(200), /doorman/);
    assert.match(await admin.page('/doorman'), /The doorman is bored/);
    assert.equal(await answerTo('more@example.com'), '550 5.7.1 The doorman has looked twice');
  });

  test('breaks it: the reload is refused with the reason, and the old one continues', async () => {
    const breaks: readonly (readonly [file: string, from: string, to: string])[] = [
      ['doorman/index.js', 'health.check(', 'health.chek('],
      ['doorman/index.js', 'export const doorman', 'export const = doorman'],
      ['doorman/views/page.njk', '{% endblock %}', '{% endblok %}'],
      ['doorman/index.js', "access: 'read'", "access: 'reed'"],
    ];
    for (const [file, from, to] of breaks) {
      await edit(file, from, to);
      assert.match(await reload(422), /doorman/, to);
      assert.equal(await answerTo('spam@example.com'), '550 5.7.1 The doorman has looked twice', to);
      assert.match(await admin.page('/doorman'), /spam@example\.com/, to);
      assert.match(await sh('postern plugin check ./doorman', 1), /\.\/doorman: a mistake\.\n {2}error/);
      await edit(file, to, from);
    }
    await reload(200);
    assert.equal(await answerTo('spam@example.com'), '550 5.7.1 The doorman has looked twice');
  });

  test('plugin list shows what runs, with and without a running server', async (t) => {
    const list = await sh('postern plugin list');
    assert.match(list, /^The server runs these plugins/);
    assert.match(list, /^doorman {2}\.\/doorman\n {2}endpoints {2}1$/m);
    assert.match(list, /^ {2}mailFrom {2}policy {3}users, doorman$/m);
    const elsewhere = await temporaryFolder(t);
    const alone = JSON.parse(await sh(`postern plugin list --json --data '${elsewhere}' 2>/dev/null`)) as Readonly<
      Record<'source' | 'plugins' | 'hooks', unknown>
    >;
    const asked = JSON.parse(await sh('postern plugin list --json')) as typeof alone;
    assert.deepEqual([alone.source, asked.source], ['configuration', 'server']);
    assert.deepEqual(alone.hooks, asked.hooks);
    assert.deepEqual(alone.plugins, asked.plugins);
  });

  test('writes another in TypeScript, compiled where Node.js does not run it', async () => {
    await sh('postern plugin new doorbell --typescript');
    if (!stripsTypes) assert.equal(compilerComplaints(join(folder, 'doorbell'), 'tsconfig.json'), '');
    assert.match(await sh('postern plugin test ./doorbell'), /^ℹ pass 4$/m);
    assert.match(await sh('postern plugin check ./doorbell'), /\.\/doorbell: no mistakes found\./);
  });

  test('could not have taken a name that is a path of the server', async () => {
    const { paths } = JSON.parse((await admin.request('/openapi.json')).text) as { paths: Record<string, unknown> };
    const firsts = new Set(Object.keys(paths).map((path) => path.split(/[/.]/)[1] ?? ''));
    const free = [...firsts].filter((step) => /^[a-z][a-z-]*$/.test(step) && !takenNames.includes(step));
    assert.deepEqual(free, ['doorman']);
  });
});
