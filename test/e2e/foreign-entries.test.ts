import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdir, readdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { suiteEnding } from '../support/ending.js';
import { pictureOf } from '../support/folder-picture.js';
import { startInProcess, type InProcessServer } from '../support/in-process-server.js';
import { until } from '../support/until.js';

const suite = suiteEnding();

const node = '01k7m3v9q0000abcdefg';

/** Which component of health tells of which folders. */
const watched: Readonly<Record<string, readonly string[]>> = {
  'data folder': ['config', 'idempotency', 'logs', 'spool', 'uploads'],
  'cache folder': ['cache', 'cache/folders'],
  'client-uploads folder': ['client-uploads'],
  'drafts folder': ['drafts'],
  'heapdumps folder': ['heapdumps'],
  'mail folder': ['mail', 'mail/.intents', `mail/.intents/${node}`],
  'trace folder': ['trace'],
  'traffic folder': ['traffic'],
};

const odd: Readonly<Record<string, (path: string) => Promise<unknown>>> = {
  'odd file': (path) => writeFile(path, 'remember'),
  'odd folder': async (path) => {
    await mkdir(path);
    await writeFile(join(path, 'inner'), 'remember');
  },
  'odd link': (path) => symlink('/etc', path),
  'odd pipe': (path) => Promise.resolve(execFileSync('mkfifo', [path])),
};

interface Component {
  readonly status: string;
  readonly why: string | null;
}

interface LogLine {
  readonly msg: string;
  readonly entries?: readonly string[];
}

const shownName = (component: string, folder: string): string =>
  component === 'mail folder' ? folder.replace(/^mail\/?/, '') : folder;

describe('what is in a folder of the server and of nobody there', () => {
  let server: InProcessServer;
  let found: ReadonlyMap<string, string> = new Map();

  before(async () => {
    server = await startInProcess(suite, undefined, {}, async (folder) => {
      for (const place of Object.values(watched).flat()) {
        await mkdir(join(folder, 'data', place), { recursive: true });
        for (const [name, make] of Object.entries(odd)) await make(join(folder, 'data', place, name));
      }
      await writeFile(join(folder, 'data', 'node.json'), JSON.stringify({ id: node }));
      found = await pictureOf(join(folder, 'data'));
    });
  });

  for (const [name, folders] of Object.entries(watched)) {
    test(`is reported by ${name} in health, all of it and nothing else`, async () => {
      const component = await until(name, async () => {
        const { components } = (await server.admin.json('/health/extended')) as {
          readonly components: Readonly<Record<string, Component>>;
        };
        return components[name]?.status === 'degraded' ? components[name] : undefined;
      });
      assert.match(
        component.why ?? '',
        new RegExp(`^${folders.length * Object.keys(odd).length} entries of the ${name} `),
      );
    });
  }

  test('is named in a warning, and is as it was when the server has stopped', async () => {
    await server.server.stop();
    const after = await pictureOf(join(server.folder, 'data'));
    for (const [path, what] of found) assert.equal(after.get(path), what, path);
    const named = new Set((await logged(join(server.folder, 'data', 'logs'))).flatMap(({ entries }) => entries ?? []));
    for (const [component, folders] of Object.entries(watched)) {
      for (const folder of folders) {
        for (const name of Object.keys(odd)) {
          const path = join(shownName(component, folder), name);
          assert.ok(named.has(path), path);
        }
      }
    }
  });
});

async function logged(folder: string): Promise<readonly LogLine[]> {
  const name = (await readdir(folder)).find((one) => one.startsWith('postern-')) ?? '';
  const lines = (await readFile(join(folder, name), 'utf8')).trimEnd().split('\n');
  return lines.map((line) => JSON.parse(line) as LogLine).filter(({ msg }) => msg.endsWith('; left alone'));
}
