import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { pagePaths } from '../browser/site-map.js';
import { suiteEnding } from '../support/ending.js';
import { HttpClient } from '../support/http-client.js';
import { adminPassword, ServerProcess } from '../support/server-process.js';
import { SmtpClient } from '../support/smtp-client.js';
import { temporaryFolder } from '../support/temporary-folder.js';

const suite = suiteEnding();

/** By where it was planted; nothing by which a filter could know it. */
const planted = new Map<string, string>();
function secret(where: string): string {
  const text = `Zq${randomBytes(9).toString('hex')}`;
  planted.set(where, text);
  return text;
}

interface Endpoint {
  readonly method: string;
  readonly path: string;
  readonly formats: readonly string[];
}

const accepted: Readonly<Record<string, string>> = {
  html: 'text/html',
  json: 'application/json',
  text: 'text/plain',
  ndjson: 'application/x-ndjson',
  openmetrics: 'application/openmetrics-text',
  rfc822: 'message/rfc822',
  events: 'text/event-stream',
  bytes: '*/*',
};

describe('secrets that are planted everywhere', () => {
  let server: ServerProcess;
  let admin: HttpClient;
  let folder: string;

  before(async () => {
    folder = await temporaryFolder(suite);
    await writeFile(join(folder, 'secret.txt'), `${secret('a file that the configuration names')}\n`);
    const config = {
      smtp: { listeners: [{ mode: 'mx' }, { mode: 'submission', port: 0, allowPlaintextAuth: true }] },
      http: {
        accounts: [
          { username: 'clear', password: secret('a password in the configuration'), role: 'read' },
          { username: 'env', password: { env: 'POSTERN_TEST_PASSWORD' }, role: 'read' },
          { username: 'file', password: { file: 'secret.txt' }, role: 'operate' },
        ],
        access: [{ match: 'DELETE /store/*', username: 'scraper', password: secret('an access rule') }],
      },
    };
    const route = { mx: ['127.0.0.1'], port: 9, auth: { user: 'relay', pass: secret('the credentials of a route') } };
    const plugins = { 'client-queue': { routes: { relay: route } } };
    const text = `// password: ${secret('a comment of the configuration')}\n${JSON.stringify({ ...config, plugins }, null, 2)}`;
    server = await ServerProcess.start(suite, {
      folder,
      config: text,
      env: {
        POSTERN_ADMIN_PASSWORD: adminPassword,
        POSTERN_TEST_PASSWORD: secret('the environment, named by the configuration'),
        SOME_TOKEN: secret('the environment, by its name'),
        DATABASE_URL: `postgres://mail:${secret('the environment, in a URL')}@db.example/mail`,
        NOTHING_SPECIAL: secret('the environment, with a harmless name'),
        HOME: folder,
      },
    });
    admin = HttpClient.admin(server.http);
    planted.set('the password of admin', adminPassword);
    await plantInRequests();
    await plantInSessions();
    await plantInCases();
  });

  async function plantInRequests(): Promise<void> {
    const headers = {
      cookie: `session=${secret('a cookie')}`,
      'x-api-key': secret('a header'),
      referer: `https://u:${secret('a referrer')}@elsewhere.example/`,
    };
    const wrong = new HttpClient(server.http, { username: 'admin', password: secret('a wrong password') });
    assert.equal((await wrong.request('/users', { headers })).status, 401);
    const bearer = { authorization: `Bearer ${secret('a bearer token')}` };
    await new HttpClient(server.http).request('/users', { headers: bearer });
    await admin.request(`/none?token=${secret('a query')}`, { headers });
    await admin.request(`/users?password=${secret('an unknown parameter')}`);
    const own = secret('the password of a mail user');
    await admin.json('/users', { json: { username: 'anna@localhost', password: own } }, 201);
    await admin.json('/users/authenticate', { json: { username: 'anna@localhost', password: own } });
    const tried = secret('a wrong password of a mail user');
    await admin.json('/users/authenticate', { json: { username: 'anna@localhost', password: tried } });
    await admin.request('/users', { json: { username: 'x', password: [secret('a body that is refused')] } });
    await admin.request('/users', { body: `{"password": "${secret('a body that is broken')}"`, headers: json });
  }

  /** One session with a server that is not there, and one that may not be called. */
  async function plantInCases(): Promise<void> {
    const envelopes = [{ mail: 'a@localhost', rcpt: ['b@elsewhere.example'], subject: 'x', text: 'y' }];
    await admin.request('/client/send', { json: { route: 'relay', envelopes } });
    const auth = { user: 'relay', pass: secret('the credentials of a case') };
    await admin.request('/client/send', { json: { mx: ['127.0.0.1'], port: 9, auth, envelopes } });
    await admin.request('/client/queue', { json: { mx: ['127.0.0.1'], auth, envelopes } });
  }

  const json = { 'content-type': 'application/json' };

  async function plantInSessions(): Promise<void> {
    const port = await server.portOf('submission');
    for (const password of [planted.get('the password of a mail user') ?? '', secret('a wrong password over SMTP')]) {
      const client = await SmtpClient.greeted({ port });
      await client.command(`AUTH PLAIN ${Buffer.from(`\0anna@localhost\0${password}`).toString('base64')}`);
      client.close();
    }
    const client = await SmtpClient.greeted({ port });
    await client.command(`AUTH ${secret('a malformed AUTH')}`);
    await client.command(`PASSWORD ${secret('an unknown command')}`);
    client.close();
  }

  /** Where a text gives one of them away: plain, in base64, or encoded for a URL. */
  function leaks(text: string): readonly string[] {
    const spellings = (plain: string): readonly string[] => [
      plain,
      encodeURIComponent(plain),
      Buffer.from(plain).toString('base64').replace(/=+$/, '').slice(0, -1),
    ];
    return [...planted]
      .filter(([, plain]) => spellings(plain).some((one) => text.includes(one)))
      .map(([where]) => where);
  }

  const textOf = (text: string, headers: Headers): string => `${text}\n${JSON.stringify([...headers])}`;

  test('are in no answer of any endpoint, in any format', { timeout: 120_000 }, async () => {
    const { groups } = (await admin.json('/')) as { groups: readonly { endpoints: readonly Endpoint[] }[] };
    const endpoints = groups.flatMap((group) => group.endpoints).filter(({ method }) => method === 'GET');
    assert.ok(endpoints.length > 30, `${endpoints.length} endpoints`);
    let answers = 0;
    for (const { path, formats } of endpoints) {
      const filled = path
        .replace('{domain}', 'localhost')
        .replace('{user}', 'anna')
        .replace('{username}', 'anna@localhost')
        .replace('{folder}', 'INBOX')
        .replace(/\{[^}]+\}/g, 'x');
      for (const accept of [...formats.map((format) => accepted[format] ?? '*/*'), '*/*']) {
        const { text, headers } = await admin.request(filled, { accept });
        assert.deepEqual(leaks(textOf(text, headers)), [], `${filled} as ${accept}`);
        answers += 1;
      }
    }
    assert.ok(answers > 80, `${answers} answers`);
  });

  test('are on no page that a link leads to, and in no line of the log that is searched for', async () => {
    for (const path of await pagePaths(admin)) {
      const { text, headers } = await admin.request(path, { accept: 'text/html' });
      assert.deepEqual(leaks(textOf(text, headers)), [], path);
    }
    const { text } = await admin.request('/logs?limit=1000&format=ndjson');
    assert.ok(text.split('\n').length > 100, 'the log was written');
    assert.deepEqual(leaks(text), []);
  });

  test('are in no file of the data folder and in nothing that the server says, and would be seen there', async () => {
    const data = join(folder, 'data');
    const files = (await readdir(data, { recursive: true, withFileTypes: true })).filter((entry) => entry.isFile());
    assert.ok(files.some(({ name }) => name.startsWith('postern-')));
    for (const { parentPath, name } of files) {
      assert.deepEqual(leaks(await readFile(join(parentPath, name), 'latin1')), [], name);
    }
    assert.deepEqual(leaks(server.output), []);
    for (const [where, plain] of planted) assert.deepEqual(leaks(`x${plain}y`), [where]);
  });
});
