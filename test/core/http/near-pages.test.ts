import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { openShell, type OpenedShell } from './opened-shell.js';

let opened: OpenedShell;
before(async () => {
  opened = await openShell();
});
after(() => opened.close());

const page = { Accept: 'text/html,*/*;q=0.8' };
const led = async (path: string, init: Parameters<OpenedShell['get']>[1] = {}) => {
  const answer = await opened.get(path, init);
  return `${answer.status} ${answer.headers.get('location')}`;
};

test('an address with a slash too many leads to the one without, by the same method', async () => {
  assert.equal(await led('/items/'), '308 /items');
  assert.equal(await led('/items//?q=a%20b'), '308 /items?q=a%20b');
  assert.equal(await led('/items/', { method: 'HEAD', headers: page }), '308 /items');
  const sent = { method: 'POST', body: '{"name":"slashed"}', headers: { 'Content-Type': 'application/json' } };
  assert.equal(await led('/items/', sent), '308 /items');
  assert.equal((await opened.get('/items/', { ...sent, redirect: 'follow' })).status, 201);
  assert.ok(opened.items.has('slashed'));
  assert.equal(await led('/nothing/'), '404 null');
  assert.equal(await led('//evil.example/'), '404 null');
});

test('a client that is not signed in learns only of public pages', async () => {
  assert.equal(await led('/items/', { as: null }), '401 null');
  assert.equal(await led('/nothing/', { as: null }), '401 null');
  assert.equal(await led('/open/', { as: null }), '308 /open');
});

test('the way back of an error page is a page, whatever the browser came from', async () => {
  const backOf = async (path: string, referer?: string, as = 'boss') => {
    const headers = { ...page, ...(referer !== undefined && { Referer: `${opened.url}${referer}` }) };
    return /href="([^"]*)"[^>]*>Go back</.exec(await (await opened.get(path, { as, headers })).text())?.[1];
  };
  assert.equal(await backOf('/items/none'), '/items');
  assert.equal(await backOf('/items/none', '/items?q=x'), '/items?q=x');
  assert.equal(await backOf('/items/none', '/notes'), '/items');
  assert.equal(await backOf('/notes/none', '/items/clear'), undefined);
});
