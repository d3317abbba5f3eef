import assert from 'node:assert/strict';
import { mkdir, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { z } from 'zod';
import { EntryAnswer, StatisticsAnswer, EntrySummaryAnswer } from '../../../plugins/client-queue/http/entry-answer.js';
import { MutationAnswer } from '../../../plugins/client-queue/http/mutations.js';
import { SessionAnswer } from '../../../plugins/client-queue/http/sending.js';
import type { RequestOptions } from '../../support/http-client.js';
import { startInProcess, type InProcessServer } from '../../support/in-process-server.js';
import { freeListeners } from '../../support/server-process.js';
import { type SinkMoment, SmtpSink } from '../../support/smtp-sink.js';

const ListAnswer = z.object({
  items: z.array(EntrySummaryAnswer),
  total: z.int(),
  page: z.int().nullable(),
  nextCursor: z.string().nullable(),
  statistics: StatisticsAnswer,
});
const QueuedAnswer = z.object({
  status: z.enum(['QUEUED', 'DELIVERED']),
  uid: z.string().nullable(),
  uids: z.array(z.string()),
  queueSize: z.int(),
});

/** What the sink answers to a recipient, by its local part: `t451…@`, `p550…@`. */
function byName({ line }: SinkMoment): string | undefined {
  const [, kind, code = ''] = /<([tp])(\d{3})[^@]*@/.exec(line) ?? [];
  if (kind === undefined) return undefined;
  return kind === 't' ? `${code} 4.2.0 Not now` : `${code} 5.1.1 Never`;
}

class Fixture {
  readonly sink: SmtpSink;
  /** A server that callers may name. */
  readonly named: SmtpSink;
  readonly server: InProcessServer;

  constructor(sink: SmtpSink, named: SmtpSink, server: InProcessServer) {
    this.sink = sink;
    this.named = named;
    this.server = server;
  }

  static async start(t: TestContext): Promise<Fixture> {
    const sink = await SmtpSink.start(t, { steps: { rcpt: byName } });
    const routes = {
      sink: { mx: ['127.0.0.1'], port: sink.port, tls: 'never', domains: ['sink.example', '*.sink.example'] },
      dead: { mx: ['127.0.0.1'], port: 1, tls: 'never', domains: ['dead.example'] },
    };
    const named = await SmtpSink.start(t, { steps: { rcpt: byName } });
    const targets = [{ host: '127.0.0.1', ports: [named.port] }];
    const plugins = JSON.stringify({ 'client-queue': { routes, targets } });
    const config = `{ domains: ['example.org'], plugins: ${plugins}, smtp: { listeners: ${freeListeners} } }`;
    return new Fixture(sink, named, await startInProcess(t, config));
  }

  async call<T>(schema: z.ZodType<T>, path: string, options: RequestOptions = {}, status = 200): Promise<T> {
    return schema.parse(await this.server.admin.json(path, options, status));
  }

  /** Status and detail of what is refused. */
  async refusal(path: string, options: RequestOptions): Promise<string> {
    const { status, text } = await this.server.admin.request(path, { accept: 'application/json', ...options });
    return `${status} ${z.object({ detail: z.string().optional() }).parse(JSON.parse(text)).detail ?? ''}`;
  }

  async queue(...rcpt: readonly string[]): Promise<string> {
    const envelopes = [{ mail: 'ann@elsewhere.example', rcpt, subject: 'Hello', text: 'Hi' }];
    const { uid } = await this.call(QueuedAnswer, '/client/queue', { json: { envelopes } }, 202);
    return uid ?? '';
  }

  async list(query = ''): Promise<z.output<typeof ListAnswer>> {
    return this.call(ListAnswer, `/client/queue/list?${query}`);
  }

  entry(uid: string): Promise<z.output<typeof EntryAnswer>> {
    return this.call(EntryAnswer, `/client/queue/${uid}`);
  }

  /** The entry as soon as it is in that state. */
  async until(uid: string, state: string): Promise<z.output<typeof EntryAnswer>> {
    for (;;) {
      const entry = await this.entry(uid);
      if (entry.state === state) return entry;
      await pause(50);
    }
  }
}

test('below /client', async (t) => {
  const fixture = await Fixture.start(t);
  const { sink, server } = fixture;
  const envelope = { mail: 'ann@example.org', rcpt: ['bob@sink.example'], subject: 'Hello', text: 'Hi' };

  await t.test('a case is sent now, and the answer is the session', async () => {
    const result = await fixture.call(SessionAnswer, '/client/send', {
      json: { route: 'sink', envelopes: [envelope] },
    });
    assert.equal(result.outcome, 'delivered');
    assert.match(sink.messages.at(-1)?.text.toString() ?? '', /^Subject: Hello\r$/m);
  });

  await t.test('a raw message is sent now, with its envelope in the query', async () => {
    const path = '/client/send?mail=ann@example.org&rcpt=bob@sink.example,p550@sink.example&route=sink';
    const headers = { 'Content-Type': 'message/rfc822' };
    const result = await fixture.call(SessionAnswer, path, { headers, body: 'Subject: Raw\n\n.dot\n' });
    assert.equal(result.outcome, 'partial');
    assert.equal(sink.messages.at(-1)?.text.toString(), 'Subject: Raw\r\n\r\n.dot\r\n');
  });

  await t.test('JSON5 is accepted, and an error names its line', async () => {
    const json5 = (body: string) => ({ headers: { 'Content-Type': 'application/json5' }, body });
    const right = `{ route: 'sink', envelopes: [{ mail: '', rcpt: ['bob@sink.example'], text: 'x', }] } // a comment`;
    assert.equal((await fixture.call(SessionAnswer, '/client/send', json5(right))).outcome, 'delivered');
    assert.match(await fixture.refusal('/client/send', json5('{ route: ')), /^400 The case is no JSON5/);
    assert.match(await fixture.refusal('/client/send', json5('{ envelopes: [{}] }')), /^422 \/envelopes\/0/);
    assert.match(await fixture.refusal('/client/send', json5('{ mx: 1,\n "mx": 2 }')), /^422 \/mx: line 2, .* line 1;/);
  });

  await t.test('servers that are no targets, and files, are refused', async () => {
    const forbidden = { mx: ['127.0.0.1'], port: sink.port, envelopes: [envelope] };
    assert.match(await fixture.refusal('/client/send', { json: forbidden }), /^403 /);
    const { mail, rcpt } = envelope;
    const file = { route: 'sink', envelopes: [{ mail, rcpt, file: '../../etc/passwd' }] };
    assert.match(await fixture.refusal('/client/send', { json: file }), /^403 /);
  });

  await t.test('a raw message without envelope, or empty, is invalid', async () => {
    const headers = { 'Content-Type': 'message/rfc822' };
    assert.match(await fixture.refusal('/client/send', { headers, body: 'x' }), /^422 mail and rcpt/);
    assert.match(await fixture.refusal('/client/send?mail=<>&rcpt=', { headers, body: 'x' }), /^422 rcpt/);
    assert.match(await fixture.refusal('/client/send?mail=<>&rcpt=a', { headers, body: 'x' }), /^422 rcpt/);
    assert.match(
      await fixture.refusal('/client/send?mail=a@b.example&rcpt=bob@sink.example', { headers, body: '' }),
      /^422 /,
    );
  });

  await t.test('queued mail is delivered by its route, and the entry tells how', async () => {
    const uid = await fixture.queue('carol@sub.sink.example');
    const entry = await fixture.until(uid, 'delivered');
    assert.equal(entry.recipients[0]?.destination, 'route:sink');
    assert.equal(entry.history[0]?.outcome, 'delivered');
    assert.equal(entry.hasMessage, false);
    const raw = await server.admin.request(`/client/queue/${uid}/message`);
    assert.equal(raw.status, 404);
  });

  await t.test('recipients of this server get the message at once, without an entry', async () => {
    const json = { envelopes: [{ ...envelope, rcpt: ['postmaster@example.org'] }] };
    const answer = await fixture.call(QueuedAnswer, '/client/queue', { json }, 202);
    assert.deepEqual([answer.status, answer.uid, answer.uids], ['DELIVERED', null, []]);
  });

  await t.test('what belongs to a session is refused in the queue', async () => {
    const of = (more: object) => fixture.refusal('/client/queue', { json: { envelopes: [envelope], ...more } });
    assert.match(await of({ mx: ['127.0.0.1'], port: fixture.named.port, verify: false }), /^422 verify/);
    assert.match(await of({ tls: 'require' }), /^422 tls/);
    assert.match(await of({ mx: ['127.0.0.1'], port: sink.port }), /^403 /);
    assert.match(await of({ auth: { user: 'a', pass: 'b' } }), /^422 auth/);
    assert.match(await of({ assertions: { protocol: [['RCPT', '250']] } }), /^422 assertions/);
    assert.match(await of({ protocol: 'lmtp' }), /^422 protocol/);
    assert.match(await of({ route: 'none' }), /^422 There is no route/);
  });

  await t.test('mail is queued for servers that the caller names, if they are allowed targets', async () => {
    const { named } = fixture;
    const where = { mx: ['127.0.0.1'], port: named.port, tls: 'never' };
    const rcpt = ['bob@anywhere.example', 't450@anywhere.example'];
    const json = { ...where, envelopes: [{ ...envelope, rcpt }] };
    const { uid } = await fixture.call(QueuedAnswer, '/client/queue', { json }, 202);
    const entry = await fixture.until(uid ?? '', 'deferred');
    const destination = `mx:smtp:never:${named.port}:127.0.0.1`;
    assert.deepEqual(
      entry.recipients.map((one) => [one.state, one.destination]),
      [
        ['delivered', destination],
        ['deferred', destination],
      ],
    );
    assert.equal(named.messages.at(-1)?.recipients[0], 'bob@anywhere.example');
    const page = await server.admin.page(`/client/destinations/${encodeURIComponent(destination)}`);
    assert.match(page, new RegExp(`127\\.0\\.0\\.1:${named.port}</a>: all destinations with the same servers`));
    const raw = `/client/queue?mail=a@b.example&rcpt=c@d.example&mx=127.0.0.1&port=${named.port}`;
    const headers = { 'Content-Type': 'message/rfc822' };
    const second = await fixture.call(QueuedAnswer, raw, { headers, body: 'Subject: Raw\n\nHi\n' }, 202);
    await fixture.until(second.uid ?? '', 'delivered');
    await fixture.call(MutationAnswer, '/client/queue/delete', { json: { uids: [uid] } });
  });

  await t.test('the same Idempotency-Key queues once', async () => {
    const headers = { 'Idempotency-Key': 'once-1' };
    const json = { envelopes: [{ ...envelope, rcpt: ['t450x@sink.example'] }] };
    const first = await fixture.call(QueuedAnswer, '/client/queue', { headers, json }, 202);
    const second = await fixture.call(QueuedAnswer, '/client/queue', { headers, json }, 202);
    assert.deepEqual(second, first);
    // As after a crash that came before the answer was kept.
    for (const name of await readdir(join(server.folder, 'data', 'idempotency')))
      await rm(join(server.folder, 'data', 'idempotency', name));
    const third = await fixture.call(QueuedAnswer, '/client/queue', { headers, json }, 202);
    assert.deepEqual(third.uids, first.uids);
    assert.equal((await fixture.list('q=t450x')).total, 1);
    await fixture.call(MutationAnswer, '/client/queue/delete', { json: { uids: first.uids } });
  });

  await t.test('the forms send what was typed or chosen', async () => {
    const headers = { 'Sec-Fetch-Site': 'same-origin' };
    const boundary = 'form-boundary';
    const part = (name: string, value: string, more = '') =>
      `--${boundary}\r\nContent-Disposition: form-data; name="${name}"${more}\r\n\r\n${value}\r\n`;
    const send = (path: string, ...parts: readonly string[]) =>
      server.admin.request(path, {
        method: 'POST',
        accept: 'text/html',
        headers: { ...headers, 'Content-Type': `multipart/form-data; boundary=${boundary}` },
        body: `${parts.join('')}--${boundary}--\r\n`,
      });
    const typed = `{ route: 'sink', envelopes: [{ mail: 'a@b.example', rcpt: ['c@sink.example'], text: '<b>' }] }`;
    const sent = await send('/client/send', part('case', typed));
    assert.match(sent.text, /<h1>Session delivered<\/h1>/);
    const file = part('eml', 'Subject: A file\r\n\r\nx', '; filename="a.eml"\r\nContent-Type: message/rfc822');
    const fields = [part('mail', ''), part('rcpt', 't450d@sink.example'), part('route', 'sink')];
    const queued = await send('/client/queue', file, ...fields);
    assert.equal(queued.status, 303);
    const uid = /^\/client\/queue\/([a-z0-9-]+)/.exec(queued.headers.get('location') ?? '')?.[1] ?? '';
    const { subject, sender } = await fixture.entry(uid);
    assert.deepEqual([subject, sender], ['A file', '']);
    assert.equal((await send('/client/send', part('case', ' '))).status, 422);
    await fixture.call(MutationAnswer, '/client/queue/delete', { json: { uid } });
  });

  await t.test('the list filters, counts, and continues by cursor', async () => {
    const uids = [];
    for (const name of ['t450a', 't450b', 't451c']) uids.push(await fixture.queue(`${name}@sink.example`));
    for (const uid of uids) await fixture.until(uid, 'deferred');
    const first = await fixture.list('limit=2&sort=queuedAt&order=asc');
    assert.equal(first.total, 3);
    assert.deepEqual(
      first.items.map(({ uid }) => uid),
      uids.slice(0, 2),
    );
    const rest = await fixture.list(`limit=2&sort=queuedAt&order=asc&cursor=${first.nextCursor ?? ''}`);
    assert.deepEqual(
      rest.items.map(({ uid }) => uid),
      uids.slice(2),
    );
    assert.equal((await fixture.list('recipient=t451c@sink.example')).total, 1);
    assert.equal((await fixture.list('q=T450A')).total, 1);
    assert.equal((await fixture.list('state=held')).total, 0);
    assert.equal((await fixture.list('destination=route:sink&minAttempts=1')).total, 3);
    const [reason] = first.statistics.byReason;
    assert.equal(first.statistics.byDestination[0]?.total, 3);
    assert.ok((reason?.count ?? 0) > 0);
    assert.equal((await fixture.list(`reason=${encodeURIComponent(reason?.reason ?? '')}`)).total, reason?.count);
    for (const bad of [
      'state=never',
      'limit=0',
      'limit=1e3',
      'page=-1',
      'sort=colour',
      'cursor=xyz',
      'minAttempts=NaN',
    ])
      assert.equal((await server.admin.request(`/client/queue/list?${bad}`)).status, 400, bad);
  });

  await t.test('nothing is ever chosen by nothing', async () => {
    for (const operation of ['retry', 'delete', 'bounce', 'hold', 'release']) {
      for (const json of [
        {},
        { filter: {} },
        { uids: [] },
        { uid: 'a', uids: ['b'] },
        { filter: { all: true, q: 'x' } },
        { filter: { colour: 'x' } },
        { filter: 'x' },
      ])
        assert.match(
          await fixture.refusal(`/client/queue/${operation}`, { json }),
          /^422 /,
          `${operation} ${JSON.stringify(json)}`,
        );
    }
    assert.equal((await fixture.list()).total, 3);
  });

  await t.test('operations say what they did to each entry', async () => {
    const { items } = await fixture.list('sort=queuedAt&order=asc');
    const uids = items.map(({ uid }) => uid);
    const held = await fixture.call(MutationAnswer, '/client/queue/hold', {
      json: { uids: [uids[0], uids[0], 'none'], reason: 'odd' },
    });
    assert.deepEqual([held.requested, held.changed, held.by], [2, 1, 'admin']);
    assert.deepEqual(new Set(held.results.map(({ outcome }) => outcome)), new Set(['done', 'notFound']));
    assert.equal((await fixture.entry(uids[0] ?? '')).hold, 'odd');
    assert.equal((await fixture.list('state=held')).total, 1);
    const filter = { destination: 'route:sink' };
    const counted = await fixture.call(MutationAnswer, '/client/queue/delete', { json: { filter, dryRun: true } });
    assert.deepEqual([counted.requested, counted.changed, counted.sample?.length], [3, 0, 3]);
    assert.match(await fixture.refusal('/client/queue/delete', { json: { filter, expect: 2 } }), /^409 /);
    const released = await fixture.call(MutationAnswer, '/client/queue/release', { json: { uid: uids[0] } });
    assert.equal(released.changed, 1);
    const deleted = await fixture.call(MutationAnswer, '/client/queue/delete', { json: { uid: uids[1] } });
    assert.equal(deleted.queueSize, 2);
    assert.equal((await fixture.entry(uids[1] ?? '')).state, 'deleted');
  });

  await t.test('an operation with If-Match changes the entry only as it was read', async () => {
    const uid = await fixture.queue('t451m@sink.example');
    await fixture.until(uid, 'deferred');
    const path = `/client/queue/${uid}`;
    const read = await server.admin.request(path, { accept: 'application/json' });
    const tag = read.headers.get('etag') ?? '';
    const status = async (operation: string, ifMatch: string, json: object = { uid }): Promise<number> =>
      (await server.admin.request(`/client/queue/${operation}`, { json, headers: { 'If-Match': ifMatch } })).status;
    assert.equal(await status('hold', tag), 200);
    for (const operation of ['retry', 'delete', 'bounce', 'hold', 'release'])
      assert.equal(await status(operation, tag), 412, operation);
    assert.equal(await status('release', tag, { uids: [uid] }), 412);
    assert.equal(await status('delete', tag, { uid, dryRun: true }), 412);
    assert.equal((await fixture.entry(uid)).state, 'held');
    assert.equal(await status('delete', '*', { uid: 'none' }), 412, 'what is not there matches nothing');
    for (const several of [{ uids: [uid, 'none'] }, { filter: { recipient: 't451m@sink.example' } }])
      assert.equal(await status('delete', tag, several), 400, 'a tag stands for one entry');
    const now = (await server.admin.request(path, { accept: 'application/json' })).headers.get('etag') ?? '';
    assert.equal(await status('delete', `"other", ${now}`), 200);
  });

  await t.test(
    'a filter by domain or destination acts on the recipients that match, and says who is not affected',
    async () => {
      const path = '/client/queue/delete';
      const uid = await fixture.queue('t451a@sink.example', 't451b@dead.example');
      for (const query of [
        'domain=sink.example',
        'destination=route:sink',
        'domain=dead.example&olderThan=0s&since=2h',
      ])
        assert.ok(
          (await fixture.list(query)).items.some((entry) => entry.uid === uid),
          query,
        );
      for (const age of ['1h', '15m', '7d', '3600', '2026-01-01', '2020-01-01T00:00:00Z'])
        assert.equal((await fixture.list(`domain=dead.example&olderThan=${age}`)).total, 0, age);
      assert.match(await fixture.refusal('/client/queue/list?olderThan=soon', {}), /^400 /);
      const filter = { domain: 'dead.example', since: '1h' };
      const counted = await fixture.call(MutationAnswer, path, { json: { filter, dryRun: true } });
      assert.deepEqual([counted.recipients, counted.messages, counted.otherRecipients], [1, 1, 1]);
      const headers = { 'Sec-Fetch-Site': 'same-origin' };
      const form = { filter: 'domain=dead.example&since=1h' };
      const asked = await server.admin.request(path, { accept: 'text/html', headers, form });
      assert.match(asked.text, /1 recipient in 1 message will be deleted/);
      assert.match(asked.text, /1 other recipient of these messages stays as it is/);
      assert.match(asked.text, /→ t451b@dead\.example</);
      const done = await fixture.call(MutationAnswer, path, { json: { filter, expect: 1 } });
      assert.deepEqual([done.requested, done.changed, done.recipients, done.otherRecipients], [1, 1, 1, 1]);
      const { recipients } = await fixture.entry(uid);
      assert.equal(recipients.find(({ address }) => address === 't451b@dead.example')?.state, 'deleted');
      assert.notEqual(recipients.find(({ address }) => address === 't451a@sink.example')?.state, 'deleted');
      await fixture.call(MutationAnswer, '/client/queue/delete', { json: { uid } });
    },
  );

  await t.test('a GET of an address that is for POST says so, and links to the queue', async () => {
    for (const path of ['/client/queue', '/client/queue/retry', '/client/queue/quarantine/none/queue']) {
      const { status, text } = await server.admin.request(path);
      assert.equal(status, 405);
      assert.match(text, /This address is not for GET\. POST: .*"href":"\/client\/queue\/(list|jobs|quarantine)"/);
    }
  });

  await t.test('a form is shown what it will touch, and asked', async () => {
    const path = '/client/queue/delete';
    const headers = { 'Sec-Fetch-Site': 'same-origin' };
    const form = { filter: 'destination=route%3Asink', back: '/client/queue/list?q=x' };
    const asked = await server.admin.request(path, { accept: 'text/html', headers, form });
    assert.equal(asked.status, 200);
    assert.match(asked.text, /2 recipients in 2 messages will be deleted/);
    assert.equal((await fixture.list()).total, 2);
    const confirmed = { ...form, expect: '2', confirm: 'yes' };
    const done = await server.admin.request(path, { accept: 'text/html', headers, form: confirmed });
    assert.deepEqual([done.status, done.headers.get('location')?.split('&')[0]], [303, '/client/queue/list?q=x']);
    assert.equal((await fixture.list()).total, 0);
    for (const back of [
      '//evil.example',
      '/client/queue/../../logs',
      '/client/queue/list\r\nX: y',
      '/client/queue/\\x',
    ]) {
      const elsewhere = { uid: 'none', back, confirm: 'yes' };
      const answer = await server.admin.request(path, { accept: 'text/html', headers, form: elsewhere });
      assert.match(answer.headers.get('location') ?? '', /^\/client\/queue\/list\?notice=/);
    }
  });

  await t.test('a bounce reaches the sender as a notification with the reason', async () => {
    const envelopes = [{ mail: 'postmaster@example.org', rcpt: ['t450@sink.example'], subject: 'Return me' }];
    const { uid } = await fixture.call(QueuedAnswer, '/client/queue', { json: { envelopes } }, 202);
    await fixture.until(uid ?? '', 'deferred');
    await fixture.call(MutationAnswer, '/client/queue/bounce', {
      json: { uid, reason: 'Wrong company', status: '5.7.1' },
    });
    assert.equal((await fixture.entry(uid ?? '')).state, 'bounced');
    for (;;) {
      const { text } = await server.admin.request('/store/example.org/postmaster/folders/INBOX?q=could+not', {
        accept: 'application/json',
      });
      const { items } = z
        .object({ items: z.array(z.object({ id: z.string(), snippet: z.string() })) })
        .parse(JSON.parse(text));
      const [notice] = items;
      if (notice === undefined) {
        await pause(50);
        continue;
      }
      const raw = await server.admin.request(`/store/example.org/postmaster/folders/INBOX/messages/${notice.id}`, {
        accept: 'message/rfc822',
      });
      assert.match(raw.text, /^Status: 5\.7\.1\r$/m);
      assert.match(raw.text, /Wrong company/);
      return;
    }
  });

  await t.test('a destination is suspended, limited and resumed', async () => {
    const path = '/client/destinations/route:dead';
    const Control = z.object({
      destination: z.string(),
      suspended: z.boolean(),
      reason: z.string().nullable(),
      maxConnections: z.int().nullable(),
    });
    const suspended = await fixture.call(Control, path, { method: 'PUT', json: { suspendFor: 600, reason: 'moving' } });
    assert.deepEqual([suspended.suspended, suspended.reason], [true, 'moving']);
    const uid = await fixture.queue('x@dead.example');
    assert.match(await server.admin.page('/client/queue/list'), /route:dead<\/a> is suspended/);
    assert.equal((await fixture.entry(uid)).attempts, 0);
    await fixture.call(Control, path, { method: 'PUT', json: { suspendedUntil: null, maxConnections: 2 } });
    const entry = await fixture.until(uid, 'deferred');
    assert.equal(entry.attempts, 1);
    assert.equal((await fixture.call(Control, path)).maxConnections, 2);
    const named = { destination: 'Example.COM', suspendFor: 'ever' };
    assert.equal((await fixture.call(Control, '/client/destinations', { json: named })).suspended, true);
    await fixture.call(Control, '/client/destinations/example.com', { method: 'DELETE' });
    const umlaut = '/client/destinations/b%C3%BCcher.example';
    for (const method of ['PUT', 'GET', 'DELETE']) {
      const options = method === 'PUT' ? { method, json: { suspendFor: 60 } } : { method };
      assert.equal((await fixture.call(Control, umlaut, options)).destination, 'xn--bcher-kva.example');
    }
    assert.match(await fixture.refusal('/client/destinations/example.com', {}), /^404 /);
    assert.match(await fixture.refusal('/client/destinations', { json: { ...named, destination: '<b>' } }), /^422 /);
    const { site } = await fixture.call(z.object({ site: z.string() }), path);
    assert.equal(site, 'site:127.0.0.1:1');
    const sitePath = `/client/destinations/${encodeURIComponent(site)}`;
    await fixture.call(Control, sitePath, { method: 'PUT', json: { maxConnections: 3, suspendFor: 600 } });
    const Site = z.object({
      destinations: z.array(z.string()),
      waiting: z.int(),
      siteLimits: z.object({ maxConnections: z.int(), suspended: z.boolean() }),
    });
    assert.deepEqual(await fixture.call(Site, sitePath), {
      destinations: ['route:dead'],
      waiting: 1,
      siteLimits: { maxConnections: 3, suspended: true },
    });
    assert.match(await server.admin.page('/client/queue/list'), /site:127\.0\.0\.1:1<\/a> is suspended/);
    assert.match(await server.admin.page(path), /The site is suspended/);
    assert.match(await server.admin.page(sitePath), /Mail waits for <a [^>]*>route:dead/);
    assert.match(await fixture.refusal('/client/destinations/site:nobody.example', {}), /^404 /);
    await fixture.call(Control, sitePath, { method: 'DELETE' });
    await fixture.call(Control, path, { method: 'DELETE' });
    assert.match(await fixture.refusal(path, { method: 'DELETE' }), /^404 /);
    for (const json of [{}, { maxConnections: -1 }, { suspendedUntil: 'tomorrow' }, { colour: 1 }])
      assert.match(await fixture.refusal(path, { method: 'PUT', json }), /^422 /);
  });

  await t.test('what was set aside is looked at, queued anew and removed', async () => {
    const folder = join(server.folder, 'data', 'queue', 'quarantine');
    await mkdir(folder, { recursive: true });
    const text = 'Received: from a by b for <bob@sink.example>; now\r\nSubject: Lost <b>\r\n\r\nStill here.\r\n';
    await writeFile(join(folder, 'one-lost.eml'), `Return-Path: <ann@elsewhere.example>\r\n${text}`);
    await writeFile(join(folder, 'one-lost.eml.reason'), '{"reason":"No entry belongs to it.","at":1}\n');
    await writeFile(join(folder, '01m80kprx0001q0gz4yj-some-retry.eml'), 'lost');
    assert.match(await fixture.refusal('/client/queue/some-retry', {}), /^404 This entry was found broken/);
    assert.match(await fixture.refusal('/client/queue/some', {}), /^404 The queue has no such entry/);
    await rm(join(folder, '01m80kprx0001q0gz4yj-some-retry.eml'));
    await writeFile(join(folder, 'two-bytes'), Buffer.from([0, 255, 10]));
    await mkdir(join(folder, 'a-folder'));
    await symlink('/etc/hostname', join(folder, 'a-link'));
    const list = '/client/queue/quarantine';
    const One = z.object({
      reason: z.string(),
      message: z.object({ sender: z.string(), recipients: z.array(z.string()), subject: z.string() }).nullable(),
    });
    const one = await fixture.call(One, `${list}/one-lost.eml`);
    assert.equal(one.reason, 'No entry belongs to it.');
    assert.deepEqual(one.message, {
      sender: 'ann@elsewhere.example',
      recipients: ['bob@sink.example'],
      subject: 'Lost <b>',
    });
    assert.equal((await fixture.call(One, `${list}/two-bytes`)).message, null);
    assert.match(await server.admin.page(`${list}/one-lost.eml`), /value="bob@sink\.example"/);
    const bytes = await server.admin.request(`${list}/two-bytes/content`);
    assert.match(String(bytes.headers.get('content-disposition')), /^attachment; filename="two-bytes"/);
    for (const name of ['none', '..', '..%2f..%2fusers.json', 'one-lost.eml.reason'])
      assert.match(await fixture.refusal(`${list}/${name}/content`, {}), /^(400|404) /, name);
    for (const name of ['a-folder', 'a-link']) {
      assert.match(await fixture.refusal(`${list}/${name}/content`, {}), /^409 /, name);
      assert.match(await fixture.refusal(`${list}/${name}`, { method: 'DELETE' }), /^409 /, name);
    }
    const queueing = (name: string, json: object) => fixture.refusal(`${list}/${name}/queue`, { method: 'POST', json });
    assert.match(await queueing('two-bytes', { rcpt: 'bob@sink.example' }), /^422 It says nothing of its sender/);
    assert.match(await queueing('one-lost.eml', { rcpt: '' }), /^422 rcpt/);
    assert.match(await queueing('one-lost.eml', { rcpt: 'not an address' }), /^422 /);
    const Anew = z.object({ uids: z.array(z.string()) });
    const json = { rcpt: one.message?.recipients };
    const { uids } = await fixture.call(Anew, `${list}/one-lost.eml/queue`, { method: 'POST', json }, 202);
    const entry = await fixture.until(uids[0] ?? '', 'delivered');
    assert.equal(entry.sender, 'ann@elsewhere.example');
    assert.ok(sink.messages.at(-1)?.text.toString().endsWith(text));
    const Removed = z.object({ removed: z.string() });
    await fixture.call(Removed, `${list}/two-bytes`, { method: 'DELETE' });
    assert.deepEqual((await readdir(folder)).sort(), ['a-folder', 'a-link']);
    assert.match(await server.admin.page('/audit'), /removed the quarantined file/);
  });

  await t.test('a reply is explained', async () => {
    const Answer = z.object({ explanation: z.object({ action: z.string(), category: z.string() }).nullable() });
    const said = await fixture.call(Answer, '/client/replies?reply=451+4.7.1+Greylisted,+try+again');
    assert.deepEqual(said.explanation, { action: 'defer', category: 'greylist' });
    assert.equal((await fixture.call(Answer, '/client/replies')).explanation, null);
  });

  await t.test('every page is there, also for those who may only read, without the mail', async () => {
    const uid = await fixture.queue('t450<script>@sink.example'.replace('<script>', ''));
    await fixture.until(uid, 'deferred');
    for (const path of [
      '/client/send',
      '/client/queue/list',
      '/client/queue/statistics',
      '/client/queue/quarantine',
      '/client/destinations',
      '/client/destinations/route:sink',
      '/client/replies',
      `/client/queue/${uid}`,
    ])
      assert.match(await server.admin.page(path), /<h1>/, path);
    assert.match(await server.admin.page(`/client/queue/${uid}`), /Received/);
    assert.equal((await server.admin.request(`/client/queue/${uid}/message`)).status, 200);
    assert.equal((await server.admin.request('/client/queue/none')).status, 404);
  });
});
