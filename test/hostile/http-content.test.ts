import assert from 'node:assert/strict';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { statusOf } from '../core/http/raw-exchange.js';
import { payloads } from '../plugins/store/xss-payloads.js';
import { deliver, lines } from '../support/delivery.js';
import { suiteEnding } from '../support/ending.js';
import { listMessages } from '../support/mailbox-reader.js';
import { SmtpClient } from '../support/smtp-client.js';
import { bodyOf, examplePath, HttpFixture, json } from './http-fixture.js';

const suite = suiteEnding();
const inbox = '/store/localhost/postmaster/folders/INBOX';

/** Parts whose names and types want to act, with the type that may go out. */
const parts: readonly (readonly [filename: string, type: string])[] = [
  ['page.html', 'text/html'],
  ['picture.svg', 'image/svg+xml'],
  ['script.js', 'text/javascript'],
  ['sheet.xml', 'application/xml'],
  ['a\\"; b=c.html', 'application/xhtml+xml'],
  ["../../etc/x'<img src=x onerror=alert(1)>.html", 'text/html'],
];
const attachments = lines(
  'Subject: attached',
  'MIME-Version: 1.0',
  'Content-Type: multipart/mixed; boundary=b',
  '',
  ...parts.flatMap(([name, type]) => [
    '--b',
    `Content-Type: ${type}`,
    `Content-Disposition: inline; filename="${name}"`,
    '',
    '<script>alert("part")</script>',
  ]),
  '--b--',
);

/** What no page of ours holds: a script without a source of ours, a handler, a target that runs. */
const active =
  /<script(?![^>]* src="\/(?:assets\/)?[\w./-]+")|<[a-z][^<>"']*(?:"[^"]*"[^<>"']*|'[^']*'[^<>"']*)* (?:on\w+|(?:data-)?hx-on[\w:-]*)=|(?:href|src|action)="(?:javascript|data:text|vbscript)|<iframe(?![^>]* sandbox=)/i;

describe('what strangers write, on the pages of the whole server', () => {
  let fixture: HttpFixture;
  let messages: readonly string[];
  before(async () => {
    fixture = await HttpFixture.start(suite);
    const port = fixture.server.portOf('mx');
    const mailbox = join(fixture.server.folder, 'data', 'mail', 'localhost', 'postmaster');
    for (const name of ['.<img src=x onerror=alert(1)>', '.&ADw-script&AD4-alert(1)', '."><svg onload=alert(1)>']) {
      for (const part of ['cur', 'new', 'tmp']) await mkdir(join(mailbox, name, part), { recursive: true });
    }
    const clean = (text: string) => text.replace(/[\r\n\0]/g, ' ');
    const all = payloads.map(clean);
    for (const header of ['Subject: ', 'From: x@sender.example\r\nTo: ', 'X-Mark: ']) {
      await deliver(port, `${all.map((text) => `${header}${text}\r\n`).join('')}\r\n${all.join('\r\n')}\r\n`);
    }
    for (const text of all.slice(0, 12))
      await deliver(port, `Subject: ${text}\r\nFrom: "${text}" <a@b.example>\r\n\r\n`);
    const markup = payloads.map((text) => text.replaceAll('\0', '')).join('\r\n<p>text</p>\r\n');
    await deliver(port, `Subject: html\r\nContent-Type: text/html; charset=utf-8\r\n\r\n${markup}\r\n`);
    await deliver(port, attachments);
    messages = (await listMessages(fixture.server.admin)).map(
      ({ id }) => `${inbox}/messages/${encodeURIComponent(id)}`,
    );
  });

  const page = async (path: string): Promise<string> => {
    const answer = await fixture.ask('GET', path, { headers: ['Accept: text/html'] });
    assert.equal(statusOf(answer), 200, path);
    return bodyOf(answer);
  };

  test('what is looked for would be found', () => {
    for (const text of ['<script>alert(1)</script>', '<img src=x onerror=alert(1)>', '<a href="javascript:x">']) {
      assert.match(text, active);
    }
    assert.match('<p title="a > b" onclick="x">', active);
    assert.doesNotMatch('<a title="x onerror=1">&lt;script&gt;</a>', active);
  });

  test('H14 H15 H16 subjects, names, header fields, bodies and folders are text on every page', async () => {
    const views = ['', '?view=text', '?view=headers', '?view=structure', '?view=raw'];
    const places = ['/store', '/store/localhost', '/store/localhost/postmaster', inbox];
    for (const path of [...places, ...messages.flatMap((message) => views.map((view) => `${message}${view}`))]) {
      assert.equal(active.exec(await page(path))?.[0], undefined, path);
    }
  });

  test('H16 htmx evaluates nothing, runs no script that it loads, and calls no other host', async () => {
    for (const path of ['/', '/store', inbox, ...messages.slice(0, 2)]) {
      const text = await page(path);
      const config: unknown = JSON.parse(/<meta name="htmx-config" content='([^']*)'/.exec(text)?.[1] ?? '{}');
      const { allowEval, allowScriptTags, selfRequestsOnly } = config as Record<string, unknown>;
      assert.deepEqual([allowEval, allowScriptTags, selfRequestsOnly], [false, false, true], path);
      assert.doesNotMatch(text, /<[^<>]* (?:data-)?hx-(?:get|post|on)[\w:-]*="[^"]*(?:\/users|alert|evil)/);
    }
  });

  test('H14 the HTML body is a sandboxed document without scripts, on its own and in its frame', async () => {
    for (const message of messages) {
      const answer = await fixture.ask('GET', `${message}/html`, { headers: ['Accept: text/html'] });
      if (statusOf(answer) === 404) continue;
      const policy = /\r\nContent-Security-Policy: ([^\r]*)/i.exec(answer)?.[1] ?? '';
      assert.match(policy, /default-src 'none'/);
      assert.match(policy, /sandbox/);
      assert.doesNotMatch(policy, /allow-scripts|allow-same-origin|unsafe-eval/);
      assert.equal(active.exec(bodyOf(answer))?.[0], undefined);
    }
  });

  test('H14 what is asked for comes back as text', async () => {
    for (const payload of payloads.filter((text) => !/[\0\u2028\u202e\n\t]/.test(text)).slice(0, 20)) {
      const query = encodeURIComponent(payload);
      for (const path of [`/users?q=${query}`, `/config?q=${query}`, `${inbox}?q=${query}`, `/nowhere/${query}`]) {
        const answer = await fixture.ask('GET', path, { headers: ['Accept: text/html'] });
        assert.ok([200, 400, 404, 422].includes(statusOf(answer)), `${path}: ${statusOf(answer)}`);
        assert.equal(active.exec(bodyOf(answer))?.[0], undefined, path);
      }
    }
  });

  test('H14 user names and hello names hold no markup', async () => {
    const client = await SmtpClient.greeted({ port: fixture.server.portOf('mx') });
    for (const payload of payloads.slice(0, 15)) {
      const body = JSON.stringify({ username: `${payload}@localhost`, password: 'rye bread and cheese' });
      const answer = await fixture.ask('POST', '/users', { headers: json, body: Buffer.from(body).toString('latin1') });
      assert.ok([400, 422].includes(statusOf(answer)), payload);
      if (!/[\r\n]/.test(payload)) assert.ok((await client.command(`EHLO ${payload}`)).code >= 421);
    }
    client.close();
  });

  test('H13 parts that could act are saved as what cannot act, named safely and sandboxed', async () => {
    const [first] = await listMessages(fixture.server.admin);
    const message = `${inbox}/messages/${encodeURIComponent(first?.id ?? '')}`;
    const shown = (await fixture.server.admin.json(message)) as { parts: { part: string; filename: string | null }[] };
    const named = shown.parts.filter(({ filename }) => filename !== null);
    assert.equal(named.length, parts.length);
    for (const { part } of named) {
      const answer = await fixture.ask('GET', `${message}/parts/${part}`);
      const head = answer.slice(0, answer.indexOf('\r\n\r\n'));
      assert.match(
        head,
        /\r\nContent-Type: (?:application\/octet-stream|application\/pdf|text\/plain; charset=[\w-]+)\r/i,
      );
      assert.match(
        head,
        /\r\nContent-Disposition: attachment; filename="[^"\r\n]*"(?:; filename\*=UTF-8''[\w%.!~*'()&+^`|$#-]+)?(?:\r|$)/i,
      );
      assert.match(head, /\r\nX-Content-Type-Options: nosniff/i);
      assert.match(head, /\r\nContent-Security-Policy: [^\r]*sandbox/i);
      assert.doesNotMatch(head, /\.\.\/|\.\.%2f/i);
    }
  });

  test('H28 every line of the log is one JSON object of at most 8 KB, whatever was in it', async () => {
    await fixture.ask('GET', `/nowhere/${'x'.repeat(7000)}?q=%1b%5b31m%0d%0aforged`, {
      headers: ['User-Agent: \x1b[31m\xe2\x80\xa8forged', 'X-Request-Id: forged\ttab'],
    });
    const text = await fixture.logged();
    const written = text.split('\n').filter((line) => line !== '');
    for (const line of written) {
      assert.equal(typeof JSON.parse(line), 'object');
      assert.ok(line.length <= 8192 + 200, String(line.length));
    }
    // eslint-disable-next-line no-control-regex
    assert.doesNotMatch(text, /[\x00-\x09\x0b-\x1f\x7f\u2028]/);
  });

  test('H38 strangers add no line to the metrics and break none', async () => {
    const expose = async () =>
      bodyOf(await fixture.ask('GET', '/metrics/prometheus'))
        .trimEnd()
        .split('\n');
    const shape = /^(?:# (?:HELP|TYPE) .+|[a-zA-Z_:][\w:]*(?:\{(?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*",?)*\})? \S+)$/;
    await Promise.all([fixture.ask('GET', '/nowhere'), fixture.ask('BREW', '/store')]);
    const before = await expose();
    for (let n = 0; n < 50; n += 1) {
      await fixture.ask('GET', `/nowhere/${n}%22%7d`, { headers: [`User-Agent: "${n}\\n{}`] });
      await fixture.ask('GET', `/store/localhost/user${n}`);
    }
    const after = await expose();
    for (const line of after) assert.match(line, shape);
    const series = (all: readonly string[]) => all.filter((line) => line.startsWith('postern_')).length;
    assert.ok(series(after) - series(before) <= 40, `${series(before)} → ${series(after)}`);
  });
});

describe('secrets of the configuration', () => {
  const secrets = ['planted-account', 'planted-rule'] as const;

  test('H26 are in no answer to anybody, in no form', async (t) => {
    const fixture = await HttpFixture.start(t, {
      http: {
        access: [{ match: '/never', username: 'scraper', password: secrets[1], realm: 'x' }],
        accounts: [{ username: 'boss', password: secrets[0], role: 'admin' }],
      },
    });
    const token = Buffer.from(`boss:${secrets[0]}`).toString('base64');
    const gets = fixture.endpoints.filter(({ method }) => method === 'GET');
    for (const { path } of gets) {
      for (const accept of ['text/html', 'application/json', 'text/plain', '*/*']) {
        const headers = [`Authorization: Basic ${token}`, `Accept: ${accept}`];
        const answer = await fixture.ask('GET', examplePath(path), { as: null, headers });
        assert.ok(statusOf(answer) < 500, path);
        for (const secret of [...secrets, token]) assert.ok(!answer.includes(secret), `${path} as ${accept}`);
      }
    }
    const logged = await fixture.logged();
    for (const secret of [...secrets, token]) assert.ok(!logged.includes(secret));
  });
});
