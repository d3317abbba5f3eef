import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { suite, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { FaultyFiles } from '../../core/spool/faulty-files.js';
import type { RequestOptions } from '../../support/http-client.js';
import { ReadingFixture } from './reading-fixture.js';
import { openSite } from './store-site.js';

const home = '/store/example.org/ann';
const text = 'Subject: x\r\n\r\n';

/** Long enough for a request to come as far as it can while another one holds the mailbox. */
const aWhile = 250;

suite('a folder that changes while a change with If-Match waits for its mailbox', () => {
  const changes: Readonly<Record<string, RequestOptions & { readonly path: string }>> = {
    'is not renamed': { path: '', method: 'PATCH', json: { name: 'B' } },
    'is not moved': { path: '/move', method: 'POST', json: { destinationParent: 'Other' } },
    'is not removed with what came': { path: '?recursive=true', method: 'DELETE' },
  };
  for (const [what, { path, ...options }] of Object.entries(changes)) {
    test(what, async (t) => {
      const fixture = await ReadingFixture.open(t);
      const disk = new FaultyFiles();
      const { operator } = await openSite(t, fixture, { files: disk });
      for (const folder of ['A', 'Other']) await fixture.makeFolder(folder);
      const id = await fixture.file(text);
      await fixture.settled('A');
      const tag = (await operator.request(`${home}/folders/A/properties`)).headers.get('etag') ?? '';
      const release = disk.hold('rename');
      const moving = operator.json(`${home}/messages/move`, {
        json: { fromFolder: 'INBOX', toFolder: 'A', messageIds: [id] },
      });
      while (disk.count('rename') === 0) await pause(5);
      const changing = operator.request(`${home}/folders/A${path}`, { ...options, headers: { 'If-Match': tag } });
      await pause(aWhile);
      release();
      await moving;
      assert.equal((await changing).status, 412);
      const { total } = (await operator.json(`${home}/folders/A`)) as { total: number };
      assert.equal(total, 1);
    });
  }
});

suite('a folder that is removed while something waits to be put below it', () => {
  const changes: Readonly<Record<string, RequestOptions & { readonly path: string }>> = {
    'gets no folder': { path: '', json: { name: 'new', parent: 'P' } },
    'gets no copy': { path: '/A/copy', json: { destinationParent: 'P' } },
    'gets no folder that is moved': { path: '/A/move', json: { destinationParent: 'P' } },
  };
  for (const [what, { path, ...options }] of Object.entries(changes)) {
    test(what, async (t) => {
      const fixture = await ReadingFixture.open(t);
      const disk = new FaultyFiles();
      const { operator } = await openSite(t, fixture, { files: disk });
      for (const folder of ['A', 'P']) await fixture.makeFolder(folder);
      const release = disk.hold('rename');
      const removing = operator.request(`${home}/folders/P`, { method: 'DELETE' });
      while (disk.count('rename') === 0) await pause(5);
      const changing = operator.request(`${home}/folders${path}`, { method: 'POST', ...options });
      await pause(aWhile);
      release();
      assert.equal((await removing).status, 200);
      const { status, text: why } = await changing;
      assert.equal(status, 422, why);
      const { items } = (await operator.json(`${home}/folders`)) as { items: readonly { name: string }[] };
      assert.deepEqual(
        items.map(({ name }) => name),
        ['INBOX', 'A'],
      );
    });
  }
});

test('a folder into which another program files while it is removed as empty is there again, with the message', async (t) => {
  const fixture = await ReadingFixture.open(t);
  const disk = new FaultyFiles();
  const { operator } = await openSite(t, fixture, { files: disk });
  for (const folder of ['A', 'A.sub']) await fixture.makeFolder(folder);
  await operator.json(`${home}/folders/A.sub`, { method: 'DELETE' });
  const release = disk.hold('rename');
  const before = disk.count('rename');
  const removing = operator.request(`${home}/folders/A`, { method: 'DELETE' });
  while (disk.count('rename') === before) await pause(5);
  await fixture.file(text, { folder: 'A' });
  release();
  assert.equal((await removing).status, 409);
  const { total } = (await operator.json(`${home}/folders/A`)) as { total: number };
  assert.equal(total, 1);
  await operator.json(`${home}/folders/A?recursive=true`, { method: 'DELETE' });
  assert.deepEqual(
    (await readdir(fixture.home)).filter((name) => name.startsWith('.')),
    [],
  );
});
