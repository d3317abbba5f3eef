import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startInProcess } from '../../support/in-process-server.js';
import { freeListeners } from '../../support/server-process.js';

const routes = { dead: { mx: ['127.0.0.1'], port: 1, domains: ['dead.example'] } };
const accounts = ['read', 'operate', 'admin'].map((role) => ({
  username: `${role}-user`,
  password: `${role} password`,
  role,
}));
const config = `{
  http: { accounts: ${JSON.stringify(accounts)} },
  plugins: { 'client-queue': ${JSON.stringify({ routes })} },
  smtp: { listeners: ${freeListeners} },
}`;

test('pages show only the links and buttons that the account may use', async (t) => {
  const server = await startInProcess(t, config);
  const call = async (role: string, path: string, body?: object) => {
    const response = await fetch(server.base + path, {
      headers: {
        Authorization: `Basic ${btoa(`${role}-user:${role} password`)}`,
        Accept: body === undefined ? 'text/html' : 'application/json',
        'Content-Type': 'application/json',
      },
      ...(body !== undefined && { method: 'POST', body: JSON.stringify(body) }),
    });
    assert.ok(response.ok, `${path}: ${response.status}`);
    return response.text();
  };
  const envelopes = [{ mail: 'ann@dead.example', rcpt: ['bob@dead.example'], subject: 'Hello', text: 'Hi' }];
  const { uid } = JSON.parse(await call('admin', '/client/queue', { envelopes })) as { uid: string };
  for (const path of [
    '/client/queue/list',
    `/client/queue/${uid}`,
    '/client/destinations',
    '/client/destinations/route%3Adead',
    '/users',
    '/',
    '/health/extended',
    '/metrics',
    '/pipeline',
  ]) {
    const seen = await call('read', path);
    const posts = [...seen.matchAll(/method="post" action="([^"]*)"/g)].map(([, action]) => action);
    assert.deepEqual(
      posts.filter((action) => action !== '/pipeline/explain'),
      [],
      path,
    );
    assert.doesNotMatch(seen, /href="\/(logs|client\/send|config|system|audit|store)[/?"]/, path);
  }
  const entry = await call('operate', `/client/queue/${uid}`);
  assert.match(entry, /action="\/client\/queue\/hold"/);
  assert.doesNotMatch(entry, /href="\/logs/);
  assert.match(await call('operate', '/client/queue/list'), /<input type="checkbox" name="uids"/);
  assert.match(await call('admin', `/client/queue/${uid}`), /href="\/logs\?q=/);
});
