import assert from 'node:assert/strict';
import { test } from 'node:test';
import { deliver, lines } from '../support/delivery.js';
import { startInProcess } from '../support/in-process-server.js';

const folder = '/store/localhost/postmaster/folders/INBOX';

test('F-U1 "All 3" and "All 2 found" act on what the page shows', async (t) => {
  const server = await startInProcess(t);
  for (const subject of ['one apple', 'two pears', 'three apples']) {
    await deliver(server.portOf('mx'), lines(`Subject: ${subject}`, '', 'hello'));
  }
  const unread = async (): Promise<readonly string[]> => {
    const { items } = (await server.admin.json(`${folder}?unread=true`)) as { items: readonly { subject: string }[] };
    return items.map(({ subject }) => subject).toSorted();
  };
  /** Takes the value of the option as the page writes it. */
  const choose = async (query: string, action: string): Promise<number> => {
    const page = await server.admin.page(`${folder}${query}`);
    const [, value = ''] = /<option value="([^"]+)">All \d+/.exec(page) ?? [];
    assert.notEqual(value, '', 'the page offers all messages');
    const form = { action, filter: value.replaceAll('&amp;', '&') };
    return (await server.admin.request(`${folder}/selection`, { form, accept: 'text/html' })).status;
  };
  assert.equal(await choose('?q=apple&order=oldest', 'read'), 303);
  assert.deepEqual(await unread(), ['two pears']);
  assert.equal(await choose('', 'unread'), 303);
  assert.equal((await unread()).length, 3);
  assert.equal(await choose('?limit=2', 'read'), 303);
  assert.deepEqual(await unread(), []);
});
