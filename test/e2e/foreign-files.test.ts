import assert from 'node:assert/strict';
import { mkdir, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { deliver, lines } from '../support/delivery.js';
import { suiteEnding } from '../support/ending.js';
import { pictureOf } from '../support/folder-picture.js';
import { startInProcess, type InProcessServer } from '../support/in-process-server.js';
import { listMessages, rawMessage } from '../support/mailbox-reader.js';
import { freeListeners } from '../support/server-process.js';

const suite = suiteEnding();
const inbox = 'mail/localhost/postmaster';
const now = Math.floor(Date.now() / 1000);

const folders: readonly string[] = [
  'spool/folder',
  'spool/0123456789abcdefghjk',
  'spool-log/folder',
  'uploads/folder/inner',
  'logs/postern-2026-01-02.log',
  'logs/folder',
  'mail/No Domain',
  'mail/.hidden',
  'mail/.intents',
  'mail/localhost/a b',
  'mail/localhost/.hidden',
  'mail/localhost/half',
  'mail/example.org/nobody/new',
  `${inbox}/new/${now}.folder`,
  `${inbox}/cur/${now}.folder:2,S`,
  `${inbox}/tmp/folder`,
  `${inbox}/.Odd/cur`,
  `${inbox}/.Odd/new`,
  `${inbox}/.Bare`,
  `${inbox}/.Ent&APw-rfe&/cur`,
  `${inbox}/..trash`,
];

/** 255 bytes, as many as a file system takes. */
const longest = `${now}.${'n'.repeat(255 - `${now}.`.length - 4)}:2,S`;
const text = lines('Subject: found', '', 'text');

const files: readonly (readonly [path: string, content: string])[] = [
  ['notes.txt', 'remember'],
  ['.users.json.0123456789abcdefghjk.tmp', '{ "us'],
  ['users.json.tmp', '{ "us'],
  ['.accounts.json.0123456789abcdefghjk.tmp', ''],
  ['.postern.lock.0123456789abcdefghjk', '{}'],
  ['postern.lock', 'not a lock'],
  ['spool/notes.txt', 'remember'],
  ['spool/empty', ''],
  ['uploads/notes.txt', 'remember'],
  ['uploads/folder/inner/file', 'deep'],
  ['logs/notes.txt', 'remember'],
  ['logs/postern-9999-99-99.log', ''],
  ['logs/postern-2026-01-01.log', '\0\0{ "torn'],
  ['logs/audit.99.log', ''],
  ['mail/notes.txt', 'remember'],
  ['mail/localhost/notes.txt', 'remember'],
  ['mail/example.org/file', ''],
  ['mail/example.org/nobody/cur', 'a file where a folder belongs'],
  ['mail/localhost/half/new', 'a file where a folder belongs'],
  [`${inbox}/notes.txt`, 'remember'],
  [`${inbox}/dovecot-uidlist`, '\0broken'],
  [`${inbox}/maildirfolder`, ''],
  [`${inbox}/subscriptions`, '\0broken\n'],
  [`${inbox}/.Odd/tmp`, 'a file where a folder belongs'],
  [`${inbox}/new/${now}.empty`, ''],
  [`${inbox}/new/${now}.no-size`, text],
  [`${inbox}/new/${now}.wrong,S=abc`, text],
  [`${inbox}/new/${now}.wrong,S=999999999`, text],
  [`${inbox}/new/no time at all`, text],
  [`${inbox}/new/.hidden`, text],
  [`${inbox}/new/${now}.flags:2,`, text],
  [`${inbox}/new/\u202eexe.eml`, text],
  [`${inbox}/cur/${now}.noflags`, text],
  [`${inbox}/cur/${now}.unsorted:2,SFD`, text],
  [`${inbox}/cur/${now}.bad:2,!\u00e9 9SS`, text],
  [`${inbox}/cur/${now}.experimental:1,S`, text],
  [`${inbox}/cur/${now}.binary:2,S`, '\0\x01\x02\xff'.repeat(1000)],
  [`${inbox}/cur/${now}.no-colon-header:2,S`, 'this is no header\r\n'.repeat(10)],
  [`${inbox}/cur/${longest}`, text],
  [`${inbox}/tmp/notes.txt`, 'remember'],
  [`${inbox}/tmp/${now}.left-behind`, 'half a mess'],
];

const links: readonly (readonly [path: string, target: string])[] = [
  ['spool/link', '/etc/hostname'],
  ['uploads/link', '/etc'],
  ['mail/linked.example', '/etc'],
  ['mail/localhost/linked', '../../..'],
  ['mail/localhost/dangling', 'nowhere'],
  [`${inbox}/.Linked`, '/etc'],
  [`${inbox}/new/${now}.link`, '/etc/hostname'],
  [`${inbox}/cur/${now}.link:2,S`, '/etc/hostname'],
  [`${inbox}/cur/${now}.dangling:2,S`, 'nowhere'],
  [`${inbox}/tmp/link`, '/etc/hostname'],
];

async function fill(folder: string): Promise<void> {
  const data = join(folder, 'data');
  for (const path of [...folders, `${inbox}/new`, `${inbox}/cur`, `${inbox}/tmp`]) {
    await mkdir(join(data, path), { recursive: true });
  }
  for (const [path, content] of files) await writeFile(join(data, path), content, 'latin1');
  for (const [path, target] of links) await symlink(target, join(data, path));
}

interface Component {
  readonly status: string;
  readonly why: string | null;
}

for (const durability of ['file', 'log'] as const) {
  describe(`a data folder full of what is not ours (${durability})`, () => {
    let server: InProcessServer;
    let found: ReadonlyMap<string, string> = new Map();

    before(async () => {
      const config = `{ durability: '${durability}', smtp: { listeners: ${freeListeners} } }`;
      server = await startInProcess(suite, config, {}, async (folder) => {
        await fill(folder);
        found = await pictureOf(join(folder, 'data'));
      });
    });

    test('lets the server start and take mail', async () => {
      await deliver(server.portOf('mx'), lines('Subject: in spite of it all', '', 'text'));
      const subjects = (await listMessages(server.admin)).map(({ subject }) => subject);
      assert.ok(subjects.includes('in spite of it all'));
    });

    test('shows every message that can be read, and no link or folder', async () => {
      const listed = await listMessages(server.admin);
      const ids = new Set(listed.map(({ id }) => id));
      for (const id of ['empty', 'no-size', 'flags', 'noflags', 'unsorted', 'bad', 'experimental', 'binary']) {
        assert.ok(ids.has(`${now}.${id}`), id);
        await rawMessage(server.admin, `${now}.${id}`);
      }
      assert.ok(ids.has(longest.slice(0, longest.indexOf(':'))));
      assert.ok(![...ids].some((id) => /link|dangling|folder|hidden/.test(id)));
      for (const page of ['/store', '/store/localhost', '/store/localhost/postmaster', '/store/example.org']) {
        await server.admin.page(page);
      }
      await server.admin.page('/store/localhost/postmaster/folders/INBOX');
    });

    test('is reported in health by its names, and works otherwise', async () => {
      const { components } = (await server.admin.json('/health/extended')) as {
        readonly components: Readonly<Record<string, Component>>;
      };
      assert.equal(components['mail folder']?.status, 'degraded');
      assert.match(
        components['mail folder'].why ?? '',
        /^\d+ entr(?:y|ies) of the mail folder (?:is no mailbox|are no mailboxes), and (?:is|are) left/,
      );
      assert.equal(components['data folder']?.status, 'degraded');
      assert.match(components['data folder'].why ?? '', /"notes\.txt"/);
      assert.equal(components['store']?.status, 'up');
    });

    test('is as it was, byte for byte, when the server has stopped', async () => {
      await server.server.stop();
      const after = await pictureOf(join(server.folder, 'data'));
      const setAside = [...after.keys()].some((path) => /^spool-log\/aside\/[0-9a-z]{20}-folder$/.test(path));
      for (const [path, what] of found) {
        if (path === 'postern.lock' || (path === 'spool-log/folder' && setAside)) continue;
        assert.equal(after.get(path), what, path);
      }
    });
  });
}
