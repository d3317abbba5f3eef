import assert from 'node:assert/strict';
import { appendFile, mkdir, open, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { monitoring } from '../../../plugins/monitoring/index.js';
import { segments } from '../../../plugins/monitoring/logs/log-page.js';
import { LogSearch, type LogSearchInput } from '../../../plugins/monitoring/logs/log-search.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { basic, passwords } from '../../core/http/opened-shell.js';
import { configurationOf, openPluginSite, type PluginSite } from '../plugin-site.js';

interface Answer {
  readonly items: readonly { at: string; matched: boolean; line: { msg: string; [name: string]: unknown } }[];
  readonly total: number | null;
  readonly nextCursor: string | null;
}

const openSite = (t: TestContext, options = {}): Promise<PluginSite> =>
  openPluginSite(t, monitoring, { configuration: configurationOf([]), options });

const logs = async (site: PluginSite, query = ''): Promise<Answer> =>
  (await site.json(`/logs${query}`)) as unknown as Answer;
const said = ({ items }: Answer): readonly string[] => items.map(({ line }) => line.msg);

test('lines are found by words, phrases, level and time, newest last', async (t) => {
  const site = await openSite(t);
  const { log } = site.serverLog;
  log.info({ session: 's1' }, 'connected');
  log.warn({ session: 's1', code: 'EACCES' }, 'cannot read the folder');
  log.error({ session: 's2' }, 'Cannot Write the folder');
  assert.deepEqual(said(await logs(site)), ['connected', 'cannot read the folder', 'Cannot Write the folder']);
  assert.deepEqual(said(await logs(site, '?q=cannot+folder')), ['cannot read the folder', 'Cannot Write the folder']);
  assert.deepEqual(said(await logs(site, '?query=%22write+the%22')), ['Cannot Write the folder']);
  assert.deepEqual(said(await logs(site, '?q=s1&level=warn')), ['cannot read the folder']);
  assert.deepEqual(said(await logs(site, '?level=error')), ['Cannot Write the folder']);
  assert.deepEqual(said(await logs(site, '?since=2026-11-21T12:00')).length, 3);
  assert.deepEqual(said(await logs(site, '?since=2026-11-21T12:00:01')), []);
  assert.deepEqual(said(await logs(site, '?until=1m')), []);
  assert.deepEqual(said(await logs(site, '?until=9999-12-31T23:59:59Z')).length, 3);
  await site.json('/logs?until=9999-12-31T23:59:59-12:00', 400);
  assert.deepEqual(await logs(site, '?limit=1'), {
    items: [{ at: 'postern-2026-11-21.log:197', matched: true, line: (await logs(site)).items[2]?.line }],
    total: null,
    limit: 1,
    nextCursor: 'postern-2026-11-21.log:197',
    prevCursor: null,
  });
});

test('a cursor leads through all files to the oldest line', async (t) => {
  const site = await openSite(t);
  const folder = join(site.data, 'logs');
  await mkdir(folder, { recursive: true });
  const line = (n: number): string =>
    `${JSON.stringify({ level: 'info', time: '2026-11-20T10:00:00.000Z', msg: `line ${n}` })}\n`;
  await writeFile(join(folder, 'postern-2026-11-19.log'), line(1) + line(2));
  await writeFile(join(folder, 'postern-2026-11-20.log'), line(3) + line(4));
  await writeFile(join(folder, 'postern-2026-11-20.1.log'), line(5) + line(6) + line(7));
  await writeFile(join(folder, 'audit.log'), line(99));
  const seen: string[][] = [];
  let cursor: string | null = '';
  while (cursor !== null) {
    const page: Answer = await logs(site, `?q=line&limit=3${cursor && `&cursor=${cursor}`}`);
    seen.unshift([...said(page)]);
    cursor = page.nextCursor;
  }
  assert.deepEqual(seen, [['line 1'], ['line 2', 'line 3', 'line 4'], ['line 5', 'line 6', 'line 7']]);
  assert.equal((await logs(site, '?q=line')).total, 7);
});

test('context shows the lines around, a permalink the line in its place', async (t) => {
  const site = await openSite(t);
  for (let n = 1; n <= 9; n += 1) site.serverLog.log.info(`line ${n}`);
  const found = await logs(site, '?q=%22line+5%22&context=2');
  assert.deepEqual(said(found), ['line 3', 'line 4', 'line 5', 'line 6', 'line 7']);
  assert.deepEqual(
    found.items.map(({ matched }) => matched),
    [false, false, true, false, false],
  );
  const two = await (await site.get('/logs?q=%22line+2%22&context=0&format=text')).text();
  assert.match(two, /^2026-11-21T12:00:00\.000Z info {2}line 2\n$/);
  const { at } = found.items[2] ?? { at: '' };
  assert.deepEqual(said(await logs(site, `?at=${at}&context=1`)), ['line 4', 'line 5', 'line 6']);
  await site.json('/logs?at=postern-2020-01-01.log:0', 404);
  await site.json(`/logs?at=${at.replace(/\d+$/, '999999999999999')}`, 404);
});

test('text is for pipes, NDJSON is the lines as they were logged', async (t) => {
  const site = await openSite(t);
  site.serverLog.log.warn({ session: 's1', plugin: 'store' }, 'first');
  site.serverLog.log.info('second');
  const text = await site.get('/logs');
  assert.match(text.headers.get('content-type') ?? '', /^text\/plain/);
  assert.equal(
    await text.text(),
    '2026-11-21T12:00:00.000Z warn  store: first session="s1"\n2026-11-21T12:00:00.000Z info  second\n',
  );
  const raw = await site.get('/logs?level=warn', { headers: { accept: 'application/x-ndjson' } });
  assert.equal(
    await raw.text(),
    '{"level":"warn","time":"2026-11-21T12:00:00.000Z","session":"s1","plugin":"store","msg":"first"}\n',
  );
});

test('what a peer says cannot begin a line, move a cursor or become markup', async (t) => {
  const site = await openSite(t);
  const hostile = '\r\n2026-11-21 error: forged\u001b[2J\u2028\u202e<script>alert(1)</script>{{7*7}}';
  site.serverLog.log.info({ hello: hostile }, hostile);
  const text = await (await site.get('/logs')).text();
  assert.equal(text.split('\n').length, 2);
  assert.doesNotMatch(text, /[^\P{Cc}\n]|[\u2028\u202e]/u);
  const page = await site.page('/logs?q=script');
  assert.doesNotMatch(page, /<script>alert|>49</);
  assert.match(page, /&lt;<mark>script<\/mark>&gt;alert/);
  await appendFile(join(site.data, 'logs', 'postern-2026-11-21.log'), 'not JSON \u001b[2J <b>\n');
  assert.match(await site.page('/logs'), /not JSON .* &lt;b&gt;/);
  assert.doesNotMatch(await (await site.get('/logs')).text(), /[^\P{Cc}\n]/u);
});

test('unknown and malformed parameters are refused, and no other file can be named', async (t) => {
  const site = await openSite(t);
  site.serverLog.log.info('something');
  for (const query of ['limit=-1', 'lines=-1', 'file=../users.json', 'since=yesterday', 'level=loud', 'limit=1001']) {
    assert.equal((await site.get(`/logs?${query}`)).status, 400, query);
  }
  for (const at of ['../users.json:0', 'audit.log:0', 'postern-2026-11-21.log:-1', 'postern-2026-11-21.log%00:1']) {
    assert.equal((await site.get(`/logs?at=${at}`)).status, 400, at);
    assert.equal((await site.get(`/logs?cursor=${at}`)).status, 400, at);
  }
  assert.equal((await site.get('/logs', { as: 'operator' })).status, 403);
  assert.equal((await site.get('/logs/stream', { as: 'operator' })).status, 403);
});

test('a search that reaches its limit says where to continue', async (t) => {
  const site = await openSite(t, { logs: { maxSearchBytes: 300_000 } });
  const filler = `${JSON.stringify({ level: 'info', time: '2026-11-20T10:00:00.000Z', msg: 'x'.repeat(900) })}\n`;
  await mkdir(join(site.data, 'logs'), { recursive: true });
  await writeFile(
    join(site.data, 'logs', 'postern-2026-11-20.log'),
    `${JSON.stringify({ level: 'info', time: '2026-11-20T09:00:00.000Z', msg: 'needle' })}\n${filler.repeat(2000)}`,
  );
  let rounds = 0;
  let page = await logs(site, '?q=needle');
  for (; page.nextCursor !== null; page = await logs(site, `?q=needle&cursor=${page.nextCursor}`)) {
    assert.deepEqual([said(page), page.total], [[], null]);
    rounds += 1;
  }
  assert.deepEqual(said(page), ['needle']);
  assert.ok(rounds >= 2, `${rounds} rounds`);
});

test('a hundred megabytes are searched without holding up the event loop', async (t) => {
  const folder = await temporaryFolder(t);
  const line = JSON.stringify({ level: 'info', time: '2026-11-20T10:00:00.000Z', msg: 'x'.repeat(140) });
  const block = Buffer.from(`${line}\n`.repeat(6000));
  const file = await open(join(folder, 'postern-2026-11-20.log'), 'w');
  await file.write(`${JSON.stringify({ level: 'warn', time: '2026-11-20T09:00:00.000Z', msg: 'the needle' })}\n`);
  for (let written = 0; written < 100 * 1024 * 1024; written += block.length) await file.write(block);
  await file.close();
  const search = new LogSearch(
    {
      folder,
      files: () => Promise.resolve(['postern-2026-11-20.log']),
      flush: () => Promise.resolve(),
      subscribe: () => () => undefined,
    },
    () => 2 ** 30,
  );
  const wanted: LogSearchInput = {
    words: ['NEEDLE'],
    level: 'warn',
    since: undefined,
    until: undefined,
    limit: 10,
    context: 0,
    before: undefined,
    signal: new AbortController().signal,
  };
  const delays = monitorEventLoopDelay({ resolution: 5 });
  delays.enable();
  const { lines, searched } = await search.find(wanted);
  delays.disable();
  assert.deepEqual(
    lines.map(({ text }) => (JSON.parse(text) as { msg: string }).msg),
    ['the needle'],
  );
  assert.ok(searched > 100 * 1024 * 1024);
  t.diagnostic(`event loop: 99 % within ${Math.round(delays.percentile(99) / 1e6)} ms`);
  await assert.rejects(Promise.all(Array.from({ length: 5 }, () => search.find(wanted))), /Too many searches/);
});

test('many lines around many matches come in parts, and each match in one of them', async (t) => {
  const site = await openSite(t);
  await mkdir(join(site.data, 'logs'), { recursive: true });
  const line = (n: number): string =>
    JSON.stringify({ level: 'info', time: '2026-11-20T10:00:00.000Z', msg: n % 50 === 25 ? `needle ${n}` : 'hay' });
  const lines = Array.from({ length: 10_000 }, (_, n) => `${line(n)}\n`);
  await writeFile(join(site.data, 'logs', 'postern-2026-11-20.log'), lines.join(''));
  const seen: string[] = [];
  for (let cursor: string | null = ''; cursor !== null;) {
    const page: Answer = await logs(site, `?q=needle&limit=1000&context=25${cursor && `&cursor=${cursor}`}`);
    assert.ok(page.items.length < 2200, `${page.items.length} lines`);
    assert.equal(page.total, null);
    seen.unshift(...said(page).filter((msg) => msg !== 'hay'));
    cursor = page.nextCursor;
  }
  assert.deepEqual(
    seen,
    Array.from({ length: 200 }, (_, n) => `needle ${n * 50 + 25}`),
  );
});

test('a line with a word a thousand times is marked at the first of them', () => {
  const text = 'x.'.repeat(4000);
  const cut = segments(text, ['x']);
  assert.equal(cut.map((segment) => segment.text).join(''), text);
  assert.ok(cut.length < 100, `${cut.length} pieces`);
  assert.deepEqual(cut.slice(0, 2), [
    { text: 'x', hit: true },
    { text: '.', hit: false },
  ]);
});

/** Reads events until one of them says so much. */
async function readUntil(reader: ReadableStreamDefaultReader<Uint8Array>, wanted: RegExp): Promise<string> {
  let text = '';
  while (!wanted.test(text)) {
    const { value, done } = await reader.read();
    if (done) break;
    text += Buffer.from(value).toString();
  }
  return text;
}

test('the stream tells every line that matches as it comes, and ends when the server stops', async (t) => {
  const site = await openSite(t);
  const { log } = site.serverLog;
  log.error('before');
  const answer = await site.get('/logs/stream?level=warn', { headers: { accept: 'text/event-stream' } });
  assert.match(answer.headers.get('content-type') ?? '', /^text\/event-stream/);
  const reader = answer.body?.getReader();
  assert.ok(reader);
  await readUntil(reader, /\n\n/);
  log.info('not this');
  log.warn({ hello: 'a\r\n\r\nevent: forged\n\n' }, 'this');
  const events = await readUntil(reader, /"this"/);
  assert.match(events, /^event: line\ndata: \{"level":"warn",.*"msg":"this"\}\n\n$/);
  assert.doesNotMatch(events, /before|not this|\nevent: forged/);
  site.stopping.abort();
  assert.match(await readUntil(reader, /event: end/), /event: end/);
  assert.equal((await reader.read()).done, true);
  assert.equal((await site.get('/logs/stream')).status, 503);
});

test('at most twenty clients watch at once, and one that leaves makes room', async (t) => {
  const site = await openSite(t);
  // The answer is kept: one that nobody holds is closed when memory is collected.
  const watch = async (): Promise<{ answer: Response; status: number; leave: () => void }> => {
    const controller = new AbortController();
    const answer = await fetch(`${site.url}/logs/stream`, {
      signal: controller.signal,
      headers: { authorization: basic('boss', passwords.boss) },
    });
    return { answer, status: answer.status, leave: () => controller.abort() };
  };
  const watching = await Promise.all(Array.from({ length: 20 }, watch));
  assert.deepEqual(new Set(watching.map(({ status }) => status)), new Set([200]));
  assert.equal((await watch()).status, 503);
  watching[0]?.leave();
  let last = 503;
  for (let tries = 0; tries < 200 && last === 503; tries += 1) {
    const one = await watch();
    last = one.status;
    watching.push(one);
  }
  assert.equal(last, 200);
  for (const { leave } of watching) leave();
});

test('the page works without JavaScript and links what belongs together', async (t) => {
  const site = await openSite(t);
  site.serverLog.log.error({ session: 'abc', err: new Error('broken') }, 'it failed');
  const page = await site.page('/logs?q=failed&level=warn&since=1h');
  assert.match(page, /<a href="\/logs\?q=abc">abc<\/a>/);
  assert.match(page, /it <mark>failed<\/mark>/);
  assert.match(page, /<pre class="log-stack">at /);
  assert.match(page, /<option value="warn" selected>/);
  assert.match(page, /href="\/logs\?at=postern-2026-11-21\.log%3A0"/);
  assert.doesNotMatch(page, /sse-connect/);
  assert.match(await site.page('/logs?live=on&q=abc'), /sse-connect="\/logs\/stream\?q=abc"/);
  assert.match(await site.page('/logs?q=nothing-like-this'), /No line matches/);
});
