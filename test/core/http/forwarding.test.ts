import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, request, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { describe, test } from 'node:test';
import { z } from 'zod';
import type { ForwardedRequest, Forwarder, OtherNodes } from '../../../core/contracts/other-nodes.js';
import { defineEndpoint } from '../../../core/http/endpoint.js';
import { atEnd, type Ending } from '../../support/ending.js';
import { basic, openShell, passwords } from './opened-shell.js';

const params = z.strictObject({ node: z.string(), name: z.string() });
const boxes = [
  defineEndpoint({
    method: 'GET',
    path: '/boxes/{node}/{name}',
    summary: 'A box',
    group: 'Boxes',
    access: 'operate',
    params,
    nodeOf: ({ params: { node } }) => node,
    handle: ({ params: { name }, request: { account, remoteAddress } }) => ({ name, account, remoteAddress }),
  }),
  defineEndpoint({
    method: 'POST',
    path: '/boxes/{node}/{name}',
    summary: 'Fill a box',
    group: 'Boxes',
    access: 'operate',
    params,
    body: { kind: 'fields', schema: z.strictObject({ size: z.coerce.number() }) },
    nodeOf: ({ params: { node } }) => node,
    handle: ({ body }) => body,
  }),
];

/** A node that answers like that, and what it is asked. */
async function nodeThatSays(t: Ending, say: (answer: ServerResponse) => void) {
  const asked: (Omit<ForwardedRequest, 'body'> & { readonly text: string })[] = [];
  const server = createServer((_, answer) => say(answer));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  atEnd(t, () => {
    server.close();
    server.closeAllConnections();
  });
  const { port } = server.address() as AddressInfo;
  const otherNodes: OtherNodes = {
    node: 'here',
    names: () => ['here', 'there'],
    async ask(_, { body, ...rest }, signal) {
      asked.push({ ...rest, text: typeof body === 'object' ? await text(body) : (body ?? '') });
      const sent = request({ port, method: rest.method, path: rest.target, signal, agent: false });
      const answer = once(sent, 'response') as Promise<[IncomingMessage]>;
      sent.end();
      const [head] = await answer;
      return head;
    },
  };
  return { otherNodes, asked };
}

describe('a request for another node', () => {
  const open = async (t: Ending, say: (answer: ServerResponse) => void) => {
    const { otherNodes, asked } = await nodeThatSays(t, say);
    const opened = await openShell({ otherNodes });
    atEnd(t, () => opened.close());
    opened.shell.mount('boxes', boxes);
    return { ...opened, asked };
  };

  test('goes without credentials, cookies and what was said of its way', async (t) => {
    const site = await open(t, (answer) => answer.end('{}'));
    const headers = {
      Cookie: 'postern-session=secret',
      'X-Forwarded-For': '192.0.2.9',
      'Postern-Client': 'forged',
      'Sec-Fetch-Site': 'same-origin',
      Range: 'bytes=0-1',
      'If-None-Match': '"tag"',
      'X-Request-Id': 'of-the-client',
      TE: 'trailers',
    };
    assert.equal((await site.get('/boxes/there/a%20b?format=json', { headers, as: 'operator' })).status, 200);
    const [sent] = site.asked;
    assert.equal(sent?.target, '/boxes/there/a%20b?format=json');
    assert.deepEqual(sent.client, {
      account: { username: 'operator', role: 'operate' },
      address: '127.0.0.1',
      session: false,
    });
    assert.deepEqual(Object.keys(sent.headers).toSorted(), [
      'accept',
      'accept-encoding',
      'accept-language',
      'host',
      'if-none-match',
      'range',
      'user-agent',
      'x-request-id',
    ]);
    assert.equal(sent.headers['x-request-id'], 'of-the-client');
  });

  test('goes only where the account may go, and not from another site', async (t) => {
    const site = await open(t, (answer) => answer.end('{}'));
    assert.equal((await site.get('/boxes/there/a', { as: null })).status, 401);
    assert.equal((await site.get('/boxes/there/a', { as: 'reader' })).status, 403);
    const headers = { 'Sec-Fetch-Site': 'cross-site' };
    assert.equal((await site.get('/boxes/there/a', { method: 'POST', headers, body: 'size=1' })).status, 403);
    assert.deepEqual(site.asked, []);
    assert.equal((await site.get('/boxes/here/a')).status, 200);
    assert.deepEqual(site.asked, []);
  });

  test('has its body, also a form that was read before', async (t) => {
    const site = await open(t, (answer) => answer.end('{}'));
    await site.get('/boxes/there/a', { method: 'POST', body: new URLSearchParams({ size: '1', _page: '/boxes' }) });
    await site.get('/boxes/there/a', {
      method: 'POST',
      body: '{"size": 2}',
      headers: { 'Content-Type': 'application/json' },
    });
    assert.deepEqual(
      site.asked.map((one) => [one.text, one.headers['content-length']]),
      [
        ['size=1&_page=%2Fboxes', '21'],
        ['{"size": 2}', '11'],
      ],
    );
  });

  test('is answered with the headers of the resource, not with those of the connection', async (t) => {
    const site = await open(t, (answer) => {
      answer.writeHead(206, {
        ETag: '"one"',
        'Content-Type': 'message/rfc822',
        'Content-Range': 'bytes 0-3/9',
        'Content-Security-Policy': "default-src 'none'",
        Connection: 'close, X-Hop',
        'X-Hop': 'dropped',
        'Set-Cookie': 'postern-session=stolen',
        'Strict-Transport-Security': 'max-age=1',
        'X-Request-Id': 'of-another',
        'WWW-Authenticate': 'Basic',
      });
      answer.end('text');
    });
    const { status, headers, ...answer } = await site.get('/boxes/there/a').then(async (found) => ({
      status: found.status,
      headers: Object.fromEntries(found.headers),
      text: await found.text(),
    }));
    assert.equal(status, 206);
    assert.equal(answer.text, 'text');
    const { date: _, 'x-request-id': id, connection: __, 'keep-alive': ___, ...rest } = headers;
    assert.notEqual(id, 'of-another');
    assert.deepEqual(rest, {
      etag: '"one"',
      'content-type': 'message/rfc822',
      'content-range': 'bytes 0-3/9',
      'content-security-policy': "default-src 'none'",
      'transfer-encoding': 'chunked',
    });
  });

  test('whose answer breaks off breaks off, too', async (t) => {
    const site = await open(t, (answer) => {
      answer.writeHead(200, { 'Content-Length': 100 }).write('a beginning', () => answer.destroy());
    });
    await assert.rejects(async () => (await site.get('/boxes/there/a')).text());
  });

  test('is in the audit log of the node that answers', async (t) => {
    const site = await open(t, (answer) => answer.end('{}'));
    await site.get('/boxes/there/a', { method: 'POST', body: new URLSearchParams({ size: '1' }) });
    assert.deepEqual(site.audit, []);
    assert.equal(site.log.find(({ msg }) => msg === 'request')?.['answeredBy'], 'there');
  });

  test('is not found by a server that is alone', async (t) => {
    const site = await openShell();
    atEnd(t, () => site.close());
    site.shell.mount('boxes', boxes);
    assert.equal((await site.get('/boxes/there/a')).status, 404);
  });
});

describe('a request of another node', () => {
  const opened = async (t: Ending, http: object = {}) => {
    const { otherNodes } = await nodeThatSays(t, (answer) => answer.end('{}'));
    const site = await openShell({ otherNodes, http });
    atEnd(t, () => site.close());
    site.shell.mount('boxes', boxes);
    const forwarder = { node: 'there', address: '192.0.2.1', session: false };
    let from: Forwarder = { ...forwarder, account: null };
    const server = createServer((asked, answer) => site.shell.answer(asked, answer, from));
    await once(server.listen(0, '127.0.0.1'), 'listening');
    atEnd(t, () => void server.close());
    const { port } = server.address() as AddressInfo;
    const ask = (path: string, account: Forwarder['account'], init: RequestInit = {}): Promise<Response> => {
      from = { ...forwarder, account };
      const headers = { Connection: 'close', ...Object.fromEntries(new Headers(init.headers)) };
      return fetch(`http://127.0.0.1:${port}${path}`, { redirect: 'manual', ...init, headers });
    };
    return { ...site, ask };
  };
  const boss = { username: 'boss', role: 'admin' } as const;

  test('is answered with the lesser of both roles of its account', async (t) => {
    const { ask } = await opened(t);
    const answer = (await (await ask('/boxes/here/a', boss)).json()) as object;
    assert.deepEqual(answer, { name: 'a', account: boss, remoteAddress: '192.0.2.1' });
    assert.equal((await ask('/boxes/here/a', { ...boss, role: 'read' })).status, 403);
    assert.equal((await ask('/boxes/here/a', { username: 'reader', role: 'admin' })).status, 403);
    assert.equal((await ask('/boxes/here/a', null)).status, 401);
    const unknown = await ask('/boxes/here/a', { username: 'stranger', role: 'admin' });
    assert.equal(unknown.status, 403);
    assert.match(await unknown.text(), /mail\.example\.org has no account stranger, with which there asks/);
  });

  test('brings no credentials of its own', async (t) => {
    const { ask } = await opened(t);
    const headers = { Authorization: basic('boss', passwords.boss) };
    assert.equal((await ask('/boxes/here/a', null, { headers })).status, 401);
  });

  test('opens no page with a password of its own', async (t) => {
    const rule = { match: '/boxes/*', username: 'box', password: 'box-secret-1' };
    const { ask } = await opened(t, { access: [rule] });
    const headers = { Authorization: basic('box', 'box-secret-1') };
    assert.equal((await ask('/boxes/here/a', boss, { headers })).status, 421);
  });

  test('is never sent on', async (t) => {
    const { ask } = await opened(t);
    const answer = await ask('/boxes/elsewhere/a', boss);
    assert.equal(answer.status, 421);
    assert.match(await answer.text(), /The node elsewhere has this/);
  });

  test('reaches nothing that is of this node alone', async (t) => {
    const { ask } = await opened(t);
    for (const path of ['/', '/items', '/sign-in', '/docs', '/openapi.json', '/assets/app.css', '/boxes', '/boxes/'])
      assert.equal((await ask(path, boss)).status, 404, path);
    assert.equal((await ask('/boxes/here/a', boss, { method: 'OPTIONS' })).status, 204);
  });

  test('is in logs and audit log with the node that it came by', async (t) => {
    const { ask, audit, log } = await opened(t);
    await ask('/boxes/here/a', boss, { method: 'POST', body: new URLSearchParams({ size: '1' }) });
    assert.equal(audit.length, 1);
    assert.deepEqual((({ by, from, via }) => ({ by, from, via }))(audit[0] ?? {}), {
      by: 'boss',
      from: '192.0.2.1',
      via: 'there',
    });
    const line = log.find(({ msg }) => msg === 'request');
    assert.deepEqual([line?.['account'], line?.['via']], ['boss', 'there']);
  });

  test('waits until this server is ready', async (t) => {
    const { ask, shell } = await opened(t);
    await shell.close(0);
    const answer = await ask('/boxes/here/a', boss);
    assert.equal(answer.status, 503);
    assert.notEqual(answer.headers.get('retry-after'), null);
  });
});
