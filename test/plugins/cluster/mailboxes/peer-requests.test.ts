import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { describe, test } from 'node:test';
import type { ForwardedRequest } from '../../../../core/contracts/other-nodes.js';
import { isProblem } from '../../../../core/problem.js';
import { PeerRequests } from '../../../../plugins/cluster/mailboxes/peer-requests.js';
import { atEnd, type Ending } from '../../../support/ending.js';
import { freePort } from '../../../support/free-port.js';
import { Authority } from './owner-site.js';

const authority = new Authority();
const client = { account: null, address: '192.0.2.1', session: false };
const get = { method: 'GET', target: '/logs', headers: {}, client, body: undefined };

type Handler = (asked: IncomingMessage, answer: ServerResponse) => void;

/** A way to the node mx2, which answers like that. */
async function wayTo(t: Ending, handler: Handler, { pair = authority.pair(), silentMs = 60_000, port = 0 } = {}) {
  const server = createServer(
    { ca: authority.cert, ...pair, requestCert: true, rejectUnauthorized: true },
    (asked, answer) => {
      answer.on('error', () => undefined);
      handler(asked, answer);
    },
  );
  if (port === 0) await once(server.listen(0, '127.0.0.1'), 'listening');
  const at = port === 0 ? (server.address() as AddressInfo).port : port;
  const counts: string[] = [];
  const requests = new PeerRequests({
    node: 'mx1',
    nodes: {
      living: [{ node: 'mx2' }, { node: 'mx3' }],
      addressOf: (node) => Promise.resolve(node === 'mx2' ? `localhost:${at}` : undefined),
    },
    tls: { ca: authority.cert, ...authority.pair() },
    count: (_, status) => void counts.push(status),
    silentMs,
  });
  atEnd(t, () => {
    requests.close();
    server.close();
    server.closeAllConnections();
  });
  const ask = (request: Partial<ForwardedRequest> = {}, node = 'mx2'): Promise<IncomingMessage> =>
    requests.ask(node, { ...get, ...request }, new AbortController().signal);
  return { requests, ask, counts, server };
}

const unavailable = (sentence: RegExp) => (error: unknown) =>
  isProblem(error) &&
  error.problem === 'unavailable' &&
  sentence.test(error.message) &&
  error.details.headers?.['Retry-After'] !== undefined;
const away = unavailable(/The node mx2 has this, and does not answer now/);
const inDoubt = unavailable(/may or may not have done this/);

describe('a request to another node', () => {
  test('that stops in the middle of its answer ends with an error, not as if all had come', async (t) => {
    const { ask } = await wayTo(
      t,
      (_, answer) => void answer.writeHead(200, { 'Content-Length': 1000 }).write('the beginning'),
      { silentMs: 200 },
    );
    await assert.rejects(text(await ask()));
  });

  test('that dies in the middle of its answer ends with an error', async (t) => {
    const { ask } = await wayTo(t, (asked, answer) => {
      answer.writeHead(200).write('the beginning', () => asked.socket.destroy());
    });
    await assert.rejects(text(await ask()));
  });

  test('that is silent is not waited for without end', async (t) => {
    const { ask, counts } = await wayTo(t, () => undefined, { silentMs: 200 });
    await assert.rejects(ask(), away);
    await assert.rejects(ask({ method: 'DELETE' }), inDoubt);
    assert.deepEqual(counts, ['away', 'away']);
  });

  test('that nobody answers was not done', async (t) => {
    const { ask } = await wayTo(t, () => assert.fail(), { port: await freePort() });
    await assert.rejects(ask(), away);
    await assert.rejects(ask({ method: 'POST', body: 'name=x' }), away);
  });

  test('is not given to who has no certificate of that node', async (t) => {
    const pairs = [authority.pair('mx9.internal'), new Authority().pair()];
    for (const pair of pairs) {
      const { ask } = await wayTo(t, () => assert.fail(), { pair });
      await assert.rejects(ask({ method: 'POST', body: 'secret' }), away);
    }
  });

  test('is not complete for the other node when its client has gone', async (t) => {
    const came = new EventEmitter();
    const { ask } = await wayTo(t, (asked) => void came.emit('request', asked));
    const begun = once(came, 'request') as Promise<[IncomingMessage]>;
    const body = new PassThrough();
    body.write('half');
    const answer = ask({ method: 'POST', body });
    answer.catch(() => undefined);
    const [asked] = await begun;
    const seen = text(asked);
    body.destroy();
    await assert.rejects(seen);
    await assert.rejects(answer);
  });

  test('that only reads is repeated on a new connection when a kept one had been closed', async (t) => {
    let nth = 0;
    const { ask, server } = await wayTo(t, (asked, answer) => {
      nth += 1;
      if (nth === 2) asked.socket.destroy();
      else answer.end(`answer ${nth}`);
    });
    assert.equal(await text(await ask()), 'answer 1');
    assert.equal(await text(await ask()), 'answer 3');
    server.closeIdleConnections();
  });

  test('waits for no place: too many at once are refused', async (t) => {
    const waiting: ServerResponse[] = [];
    const { ask } = await wayTo(t, (_, answer) => void waiting.push(answer));
    const first = Array.from({ length: 32 }, () => ask());
    while (waiting.length < 32) await new Promise((resolve) => setImmediate(resolve));
    await assert.rejects(ask(), unavailable(/Too many requests/));
    for (const answer of waiting) answer.end('done');
    for (const answer of await Promise.all(first)) assert.equal(await text(answer), 'done');
    const next = ask();
    while (waiting.length < 33) await new Promise((resolve) => setImmediate(resolve));
    waiting.at(-1)?.end('next');
    assert.equal(await text(await next), 'next');
  });

  test('that does not come to the pages of the node is 503, not what it says by the way', async (t) => {
    let status = 403;
    const { ask } = await wayTo(t, (_, answer) => void answer.writeHead(status).end('{}'));
    const headers = { 'x-request-id': 'one-request' };
    await assert.rejects(ask({ headers }), unavailable(/mx2 does not accept requests of mx1/));
    for (status of [200, 404, 503])
      await assert.rejects(
        ask({ headers, method: 'POST' }),
        unavailable(/The node mx2 has this, and is not ready now/),
      );
  });

  test('names a node that is not there, and one without a way', async (t) => {
    const { ask } = await wayTo(t, () => assert.fail());
    await assert.rejects(ask({}, 'mx9'), (error) => isProblem(error) && error.problem === 'not-found');
    await assert.rejects(ask({}, 'mx3'), /plugins\.cluster\.peers is not set at mx3/);
  });

  test('that is a stream of events ends when this node stops, and a download does not', async (t) => {
    const { ask, requests } = await wayTo(t, (asked, answer) => {
      const isStream = asked.url === '/http/logs';
      answer.writeHead(200, { 'Content-Type': isStream ? 'text/event-stream' : 'message/rfc822' });
      answer.write('begun ');
      if (!isStream) setTimeout(() => answer.end('done'), 50);
    });
    const events = await ask();
    const download = await ask({ target: '/store' });
    const reading = text(events);
    requests.endStreams();
    await assert.rejects(reading);
    assert.equal(await text(download), 'begun done');
  });
});
