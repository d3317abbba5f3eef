import assert from 'node:assert/strict';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { z } from 'zod';
import type { StoredDocument } from '../../../core/contracts/cluster.js';
import { openDocument, openStoredDocument } from '../../../core/disk/document.js';
import { isProblem, isStartError } from '../../../core/problem.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { FaultyFiles } from '../spool/faulty-files.js';

const schema = z.strictObject({ names: z.array(z.string()) });
const initial = { names: [] };

test('an update is on the disk when it resolves, and is read again', async (t) => {
  const file = join(await temporaryFolder(t), 'users.json');
  const document = await openDocument({ file, schema, initial });
  await document.update((draft) => void draft.names.push('ann'));
  assert.deepEqual(JSON.parse(await readFile(file, 'utf8')), { names: ['ann'] });
  assert.deepEqual((await openDocument({ file, schema, initial })).data, { names: ['ann'] });
  assert.deepEqual(initial, { names: [] });
});

test('updates at the same time run one after the other', async (t) => {
  const file = join(await temporaryFolder(t), 'users.json');
  const document = await openDocument({ file, schema, initial });
  const names = Array.from({ length: 30 }, (_, n) => `user${n}`);
  await Promise.all(names.map((name) => document.update(({ names }) => ({ names: [...names, name] }))));
  assert.deepEqual(document.data.names, names);
});

test('data held by readers is never changed in place', async (t) => {
  const document = await openDocument({ file: join(await temporaryFolder(t), 'users.json'), schema, initial });
  const before = document.data;
  await document.update((draft) => void draft.names.push('ann'));
  assert.deepEqual(before, { names: [] });
});

test('an update that throws or is invalid changes nothing and blocks no other', async (t) => {
  const file = join(await temporaryFolder(t), 'users.json');
  const document = await openDocument({ file, schema, initial });
  await assert.rejects(
    document.update(() => {
      throw new Error('no');
    }),
  );
  await assert.rejects(document.update((draft) => Object.assign(draft, { names: 3 })));
  assert.deepEqual(document.data, { names: [] });
  await document.update((draft) => void draft.names.push('ann'));
  assert.deepEqual(document.data, { names: ['ann'] });
});

test('when the disk fails, the old data stays in memory and on disk, and a later update works', async (t) => {
  const folder = await temporaryFolder(t);
  const file = join(folder, 'users.json');
  const files = new FaultyFiles();
  const document = await openDocument({ file, schema, initial, files });
  await document.update((draft) => void draft.names.push('ann'));
  files.order({ call: 'fsync', code: 'EDQUOT', nth: 1 });
  await assert.rejects(
    document.update((draft) => void draft.names.push('bob')),
    (error) => isProblem(error) && error.problem === 'storage-full',
  );
  assert.deepEqual(document.data, { names: ['ann'] });
  assert.deepEqual(JSON.parse(await readFile(file, 'utf8')), { names: ['ann'] });
  assert.deepEqual(await readdir(folder), ['users.json']);
  await document.update((draft) => void draft.names.push('cid'));
  assert.deepEqual(document.data, { names: ['ann', 'cid'] });
});

for (const [what, text] of [
  ['is cut off', '{"names": ["ann'],
  ['is empty', ''],
  ['holds something else', '{"names": 3}'],
] as const) {
  test(`a file that ${what} stops the start by name and is left as it is`, async (t) => {
    const file = join(await temporaryFolder(t), 'users.json');
    await writeFile(file, text);
    await assert.rejects(
      openDocument({ file, schema, initial }),
      (error) => isStartError(error) && error.message.includes(file),
    );
    assert.equal(await readFile(file, 'utf8'), text);
  });
}

for (const [title, text, sentence] of [
  ['an array', '[]', /cannot be understood: expected object, received array\. It was left as it is/],
  ['null', 'null', /cannot be understood: expected object, received null\. It was left/],
  [
    'two mistakes',
    '{ "names": [1, "ann", true] }',
    /names\.0: expected string, received number; names\.2: expected string, received boolean\. It was left/,
  ],
] as const) {
  test(`F-R20: a document that holds ${title} is refused with a message for each mistake`, async (t) => {
    const file = join(await temporaryFolder(t), 'users.json');
    await writeFile(file, text);
    await assert.rejects(openDocument({ file, schema, initial }), (error) => {
      assert.ok(isStartError(error));
      assert.match(error.message, sentence);
      assert.doesNotMatch(error.message, /"code"|\[ \{/);
      return true;
    });
  });
}

/** A document that several servers change. */
function sharedDocument() {
  let current: { readonly text: string; readonly version: number } | undefined;
  const listeners = new Set<() => void>();
  const open = (): StoredDocument => ({
    place: 'shared',
    read: () => Promise.resolve(current),
    replace: (text, version) => {
      if (current?.version !== version) return Promise.resolve(undefined);
      current = { text, version: (version ?? 0) + 1 };
      return Promise.resolve(current.version);
    },
    watch: (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  });
  const ring = (): void => listeners.forEach((listener) => listener());
  return { open: () => openStoredDocument(open(), { schema, initial }), ring, stored: open() };
}

test('a change is made again on what another server has written meanwhile', async () => {
  const { open } = sharedDocument();
  const [one, other] = [await open(), await open()];
  await one.update((draft) => void draft.names.push('ann'));
  await other.update((draft) => void draft.names.push('bob'));
  await one.update((draft) => void draft.names.push('cid'));
  assert.deepEqual(one.data.names, ['ann', 'bob', 'cid']);
});

test('watchers of a document learn what another server has changed', async () => {
  const { open, ring } = sharedDocument();
  const [one, other] = [await open(), await open()];
  const seen = new Promise<readonly string[]>((resolve) => one.watch(() => resolve(one.data.names)));
  await other.update((draft) => void draft.names.push('bob'));
  ring();
  assert.deepEqual(await seen, ['bob']);
});

test('what another server has written and this one does not understand stays, and is not replaced', async () => {
  const { open, ring, stored } = sharedDocument();
  const document = await open();
  await document.update((draft) => void draft.names.push('ann'));
  await stored.replace('{ "names": [], "newer": true }', 1);
  ring();
  await assert.rejects(
    document.update((draft) => void draft.names.push('bob')),
    /shared cannot be understood/,
  );
  assert.deepEqual(document.data.names, ['ann']);
  assert.deepEqual(await stored.read(), { text: '{ "names": [], "newer": true }', version: 2 });
});
