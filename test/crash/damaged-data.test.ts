import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdir, symlink, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { before, describe, test } from 'node:test';
import { deliver, lines } from '../support/delivery.js';
import { suiteEnding } from '../support/ending.js';
import { pictureOf } from '../support/folder-picture.js';
import { startInProcess, type InProcessServer } from '../support/in-process-server.js';
import { listMessages } from '../support/mailbox-reader.js';
import { freeListeners } from '../support/server-process.js';

const suite = suiteEnding();
const id = '01m81eqb9n000fcnbjw1';
const hex = '0123456789abcdef'.repeat(4);
/** Of a folder in the cache. */
const key = '0123456789abcdef'.repeat(2);

/** Files under names of ours that are not what they should be, and names that nobody here has. */
const files: readonly (readonly [path: string, content: string])[] = [
  ['cache/folders/notes.txt', 'remember'],
  ['client-uploads/notes.txt', 'remember'],
  ['config/notes.txt', 'remember'],
  ['drafts/notes.txt', 'remember'],
  ['heapdumps/notes.txt', 'remember'],
  [`idempotency/${hex}.json`, '{ "torn'],
  ['idempotency/notes.txt', 'remember'],
  ['lost+found/notes.txt', 'remember'],
  [`mail/.intents/${id}`, '{ "torn'],
  ['mail/.intents/notes.txt', 'remember'],
  ['mail/.intents/.notes.tmp', 'remember'],
  ['mail/localhost/postmaster/dovecot-keywords', '\0broken'],
  ['queue/notes.txt', 'remember'],
  ['queue/0/notes.txt', 'remember'],
  [`queue/1/${id}.eml`, ''],
  ['queue/zz/notes.txt', 'remember'],
  ['queue/journal/notes.txt', 'remember'],
  [`queue/journal/${id}.segment`, 'not a segment'],
  [`queue/snapshot-${id}`, 'not a snapshot'],
  ['queue/quarantine/alone', 'remember'],
  ['queue/quarantine/alone.reason', 'no JSON'],
  ['site-plugins.json', '{ "torn'],
  [`spool-log/${id}.segment`, 'not a segment'],
  ['spool-log/notes.txt', 'remember'],
  ['stalls.json', '{ "torn'],
];

/** Places at which a folder, a link or a pipe stands under a name that a file of ours has. */
const places: readonly string[] = [
  `cache/folders/${key}.index`,
  `cache/folders/${key}.summaries`,
  `cache/folders/${key}.summaries.new`,
  `client-uploads/${id}`,
  `drafts/${id}`,
  `config/${id}.link`,
  `heapdumps/heap-20260101T000000-${id}.heapsnapshot`,
  `heapdumps/.heap-20260101T000000-${id}.heapsnapshot.tmp`,
  `idempotency/${hex}.json`,
  'logs/audit.log',
  'logs/audit.1.log',
  'logs/postern-2026-01-02.log',
  `mail/.intents/${id}`,
  `mail/.intents/.${id}.${id}.tmp`,
  'mail/localhost/postmaster/maildirsize',
  'mail/localhost/postmaster/subscriptions',
  `mail/localhost/postmaster/tmp/1700000000.M1P1.host`,
  `queue/0/${id}.eml`,
  `queue/journal/${id}.segment`,
  `queue/journal/${id}.segment.tmp`,
  'queue/quarantine/odd',
  `queue/snapshot-${id}`,
  `spool-log/${id}.segment`,
  `spool-log/${id}.segment.tmp`,
  `spool/${id}`,
  'stalls.json',
  `uploads/${id}`,
];

/** What stands in each place. */
const kinds: Readonly<Record<string, (path: string) => Promise<unknown>>> = {
  'files that cannot be understood': (path) => writeFile(path, files.find(([name]) => path.endsWith(name))?.[1] ?? ''),
  'folders in place of files': async (path) => {
    await mkdir(path);
    await writeFile(join(path, 'inner'), 'remember');
  },
  'links to folders': (path) => symlink('/etc', path),
  'links to nothing': (path) => symlink('nowhere', path),
  'links to themselves': (path) => symlink(basename(path), path),
  'pipes that nobody writes to': (path) => Promise.resolve(execFileSync('mkfifo', [path])),
};

const pages = [
  '/store',
  '/store/localhost/postmaster',
  '/store/localhost/postmaster/drafts',
  '/client/queue/list',
  '/client/queue/quarantine',
  '/client/queue/statistics',
  '/config',
  '/audit',
  '/logs',
  '/system',
  '/system/heapdumps',
];

interface Component {
  readonly status: string;
  readonly why: string | null;
}

/** From where to where things are set aside, each behind an id of its own. */
const asides = [
  ['queue/journal/', 'queue/journal/aside/'],
  ['queue/', 'queue/quarantine/'],
  ['spool-log/', 'spool-log/aside/'],
] as const;

/** Where it was, or set aside with everything in it. */
function isKept(after: ReadonlyMap<string, string>, path: string, what: string): boolean {
  if (after.get(path) === what) return true;
  return asides.some(
    ([from, to]) =>
      path.startsWith(from) &&
      [...after].some(
        ([other, is]) =>
          is === what &&
          other.startsWith(to) &&
          other.slice(to.length).replace(/^[0-9a-z]{20}-/, '') === path.slice(from.length),
      ),
  );
}

for (const [kind, make] of Object.entries(kinds)) {
  describe(`a data folder with ${kind} in every folder`, () => {
    let server: InProcessServer;
    let found: ReadonlyMap<string, string> = new Map();
    const paths = kind.startsWith('files') ? files.map(([path]) => path) : places;

    before(async () => {
      server = await startInProcess(suite, `{ smtp: { listeners: ${freeListeners} } }`, {}, async (folder) => {
        for (const path of paths) {
          await mkdir(dirname(join(folder, 'data', path)), { recursive: true });
          await make(join(folder, 'data', path));
        }
        found = await pictureOf(join(folder, 'data'));
      });
    });

    test('does not keep the server from its start, from mail and from any page', async () => {
      // More than there are threads that one of these could hold.
      for (let n = 0; n < 5; n += 1) {
        await deliver(server.portOf('mx'), lines('Subject: in spite of it all', '', 'text'));
      }
      assert.ok((await listMessages(server.admin)).some(({ subject }) => subject === 'in spite of it all'));
      for (const path of pages) {
        const { status, text } = await server.admin.request(path, { accept: 'application/json' });
        assert.ok(status < 500, `${path}: ${text}`);
      }
      // A line of the audit log.
      await server.admin.json('/config/reload', { method: 'POST' });
    });

    test('is reported in health', async () => {
      const { text } = await server.admin.request('/health/extended', { accept: 'application/json' });
      const { components } = JSON.parse(text) as { components: Readonly<Record<string, Component>> };
      for (const [name, words] of [
        ['data folder', /^\d+ entr(?:y|ies) of the data folder (?:is|are) unknown, and (?:is|are) left alone: /],
        ['cache folder', /"cache\/folders\//],
        ['client-uploads folder', /"client-uploads\//],
        ['drafts folder', /"drafts\//],
        ['heapdumps folder', /"heapdumps\//],
        ['spool', /spool-log\/aside/],
        ['queue', /queue\/journal\/aside/],
      ] as const) {
        assert.equal(components[name]?.status, 'degraded', name);
        assert.match(components[name].why ?? '', words);
      }
    });

    test('has lost none of it when the server has stopped', async () => {
      await server.server.stop();
      const after = await pictureOf(join(server.folder, 'data'));
      for (const [path, what] of found) assert.ok(isKept(after, path, what), path);
    });
  });
}
