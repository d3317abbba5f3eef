import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdir, rename, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { statusOf } from '../core/http/raw-exchange.js';
import { suiteEnding } from '../support/ending.js';
import { bodyOf, examplePath, HttpFixture, json, parameters } from './http-fixture.js';

const suite = suiteEnding();

/** Names that can be read in two ways, or hold what no name holds. */
const unreadable: Readonly<Record<string, string>> = {
  dots: '..',
  dot: '.',
  'encoded dots': '%2e%2e',
  'dots and a slash': '..%2f..%2fetc%2fpasswd',
  'an absolute path': '%2fetc%2fpasswd',
  'a backslash': '..%5c..%5cetc',
  'a raw backslash': 'a\\b',
  'overlong UTF-8': '%c0%ae%c0%ae',
  'a lone surrogate': '%ed%a0%80',
  'no UTF-8': '%ff',
  'malformed percent': '%zz',
  'cut percent': 'a%2',
  NUL: 'a%00b',
  CRLF: 'a%0d%0aX:%20y',
  LF: '%0a',
  DEL: '%7f',
  'a C1 control': '%c2%85',
  'U+202E': 'a%e2%80%aeb',
  'U+200B': 'a%e2%80%8bb',
};

/** Names that can be read and that nothing here has. */
const foreign: Readonly<Record<string, string>> = {
  'dots encoded twice': '%252e%252e',
  'a drive': 'C:',
  'a home': '~root',
  'a space': '%20',
  'a trailing dot': 'x.',
  'three dots': '...',
  NFD: 'cafe%cc%81',
  '256 bytes': 'a'.repeat(256),
  '4 KB': 'a'.repeat(4096),
  'a working folder': 'tmp',
  'a control file': 'dovecot-uidlist',
  'a name of an object member': '__proto__',
  markup: '%3Cscript%3E',
  template: '%7B%7B7*7%7D%7D',
};

describe('names in paths of the whole server', () => {
  let fixture: HttpFixture;
  let tree: string;
  before(async () => {
    fixture = await HttpFixture.start(suite);
    tree = await fixture.tree();
  });

  /** Asks every endpoint with this name in place of each of its parameters in turn. */
  async function askAll(name: string, expected: (status: number, path: string) => boolean): Promise<void> {
    let asked = 0;
    for (const { method, path } of fixture.endpoints) {
      for (const parameter of parameters(path)) {
        const target = examplePath(path, { [parameter]: name });
        const answer = await fixture.ask(method, target, { headers: json, body: method === 'GET' ? '' : '{}' });
        assert.ok(expected(statusOf(answer), path), `${method} ${target.slice(0, 200)}: ${answer.slice(0, 300)}`);
        assert.doesNotMatch(answer, /ENOENT|EINVAL|ERR_INVALID|\/tmp\/|root:x:/);
        asked += 1;
      }
    }
    assert.ok(asked > 10);
    assert.equal(await fixture.tree(), tree);
  }

  for (const [title, name] of Object.entries(unreadable)) {
    test(`H01 H02 ${title} is 400 wherever a name can stand, and nothing on disk has changed`, () =>
      askAll(name, (status) => status === 400));
  }

  for (const [title, name] of Object.entries(foreign)) {
    test(`H01 H03 H06 ${title} is nothing that is there, and nothing on disk has changed`, () =>
      askAll(
        name,
        (status, path) =>
          [400, 403, 404, 409, 415, 422].includes(status) || (status === 200 && path.endsWith('/exists')),
      ));
  }

  test('H03 a path over 8 KB is 414, one over 16 KB 431', async () => {
    assert.equal(statusOf(await fixture.ask('GET', `/store/${'a'.repeat(9000)}`)), 414);
    assert.equal(statusOf(await fixture.ask('GET', `/store/${'a'.repeat(17_000)}`)), 431);
  });

  test('H01 an empty name is another address', async () => {
    for (const target of ['/store//postmaster', '/store/localhost//folders', '/users//exists']) {
      assert.ok([400, 404].includes(statusOf(await fixture.ask('GET', target))), target);
    }
  });

  test('H05 other mailboxes are 404, and a domain is the same in any case', async () => {
    for (const target of ['/store/elsewhere.example/postmaster', '/store/localhost/nobody']) {
      assert.equal(statusOf(await fixture.ask('GET', target)), 404, target);
    }
    const [lower, upper] = [
      await fixture.ask('GET', '/store/localhost/postmaster'),
      await fixture.ask('GET', '/store/LocalHost/postmaster'),
    ];
    assert.deepEqual([statusOf(lower), statusOf(upper)], [200, 200]);
    assert.equal(bodyOf(lower), bodyOf(upper));
  });

  test('H04 links, folders and FIFOs in a mailbox are passed over', async () => {
    const mailbox = join(fixture.server.folder, 'data', 'mail', 'localhost', 'postmaster');
    const secret = join(fixture.server.folder, 'secret');
    await writeFile(secret, 'Subject: planted-secret\r\n\r\nplanted-secret\r\n');
    await symlink(secret, join(mailbox, 'cur', '1.link.host:2,S'));
    await symlink('/nowhere', join(mailbox, 'new', '2.dangling.host'));
    await mkdir(join(mailbox, 'cur', '3.folder.host'));
    await symlink('/etc', join(mailbox, '.Linked'));
    execFileSync('mkfifo', [join(mailbox, 'cur', '4.fifo.host:2,S')]);
    await symlink('/dev/zero', join(mailbox, 'cur', '5.device.host:2,S'));
    const folders = '/store/localhost/postmaster/folders';
    for (const target of [folders, `${folders}/INBOX`, `${folders}/INBOX/properties`]) {
      const answer = await fixture.ask('GET', target);
      assert.equal(statusOf(answer), 200, target);
      assert.doesNotMatch(answer, /planted-secret|1\.link|2\.dangling|3\.folder|4\.fifo|5\.device|passwd/);
    }
    const names = ['1.link.host', '2.dangling.host', '3.folder.host', '4.fifo.host', '5.device.host'];
    const messages = names.flatMap((name) => [name, `${name}/raw`].map((path) => `${folders}/INBOX/messages/${path}`));
    for (const target of [`${folders}/Linked`, ...messages]) {
      const answer = await fixture.ask('GET', target);
      assert.equal(statusOf(answer), 404, target);
      assert.doesNotMatch(answer, /planted-secret/);
    }
  });

  test('H04 a folder that is swapped for a link ten thousand times is never read through', async () => {
    const mailbox = join(fixture.server.folder, 'data', 'mail', 'localhost', 'postmaster');
    const [own, elsewhere, link, aside] = ['.Swap', 'elsewhere', 'link', 'aside'].map((name) =>
      join(name.startsWith('.') ? mailbox : fixture.server.folder, name),
    ) as [string, string, string, string];
    const name = '1700000000.M1P1.host';
    for (const [folder, subject] of [
      [own, 'own'],
      [elsewhere, 'planted-secret'],
    ] as const) {
      for (const part of ['cur', 'new', 'tmp']) await mkdir(join(folder, part), { recursive: true });
      await writeFile(join(folder, 'new', name), `Subject: ${subject}\r\n\r\n${subject}\r\n`);
    }
    await symlink(elsewhere, link);
    const work = { swaps: 0, answered: () => {} };
    const answer = () => new Promise<void>((resolve) => (work.answered = resolve));
    const swapping = (async () => {
      for (; work.swaps < 10_000; work.swaps += 1) {
        // The second of these was asked for while the folder was in its place.
        if (work.swaps % 100 === 0) for (const _ of [1, 2]) await answer();
        await rename(own, aside);
        await rename(link, own);
        await rename(own, link);
        await rename(aside, own);
      }
    })();
    const folder = '/store/localhost/postmaster/folders/Swap';
    const seen = new Set<number>();
    while (work.swaps < 10_000) {
      for (const target of [folder, `${folder}/messages/${name}`, `${folder}/messages/${name}/raw`]) {
        const text = await fixture.ask('GET', target);
        seen.add(statusOf(text));
        assert.doesNotMatch(text, /planted-secret/, target);
        work.answered();
      }
    }
    await swapping;
    assert.ok(
      [...seen].every((status) => [200, 404].includes(status)),
      [...seen].join(),
    );
    assert.ok(seen.has(200));
  });
});
