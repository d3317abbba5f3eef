import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import {
  FolderAnswer,
  MailboxAnswer,
  MessageAnswer,
  PropertiesAnswer,
} from '../../../plugins/store/http/store-answer.js';
import { message, ReadingFixture } from './reading-fixture.js';
import { openSite } from './store-site.js';
import { payloads } from './xss-payloads.js';

const plain = message(
  'From: Ann <ann@example.org>',
  'To: Bob <bob@example.net>, carl@example.net',
  'Cc: team: dora@example.net;',
  'Subject: =?utf-8?Q?Gr=C3=BC=C3=9Fe?=',
  'Date: Sat, 21 Nov 2026 10:00:00 +0100',
  'Message-ID: <one@example.org>',
  '',
  'Hello Bob,',
  '> you wrote this',
  'good bye',
);

const mixed = message(
  'From: Ann <ann@example.org>',
  'Subject: with a picture',
  'Content-Type: multipart/mixed; boundary=b',
  '',
  '--b',
  'Content-Type: multipart/related; boundary=r',
  '',
  '--r',
  'Content-Type: text/html; charset=utf-8',
  '',
  '<p>Hi<img src="cid:pic@x"><img src="http://tracker.example/p.gif"><script>alert(1)</script></p>',
  '--r',
  'Content-Type: image/png',
  'Content-ID: <pic@x>',
  'Content-Transfer-Encoding: base64',
  '',
  'iVBORw0KGgo=',
  '--r--',
  '--b',
  'Content-Type: application/pdf; name="a b.pdf"',
  'Content-Disposition: attachment; filename="a b.pdf"',
  'Content-Transfer-Encoding: base64',
  '',
  'MDEyMzQ1Njc4OQ==',
  '--b--',
);

interface Listed {
  readonly items: readonly Record<string, unknown>[];
  readonly total: number;
  readonly nextCursor: string | null;
  readonly folder: Record<string, unknown>;
}

suite('the store over HTTP', () => {
  test('a mailbox answers with its folders, their counts and sizes', async (t) => {
    const fixture = await ReadingFixture.open(t);
    await fixture.makeFolder('Projects.2026');
    await fixture.makeFolder('Sent');
    await fixture.file(plain);
    await fixture.file(plain, { folder: 'Sent', flags: 'S' });
    const { operator } = await openSite(t, fixture);
    const size = Buffer.byteLength(plain);
    assert.deepEqual(await operator.json('/store/example.org/ann'), {
      domain: 'example.org',
      user: 'ann',
      mailbox: 'ann@example.org',
      size: 2 * size,
      quota: null,
      folders: [
        { name: 'INBOX', parent: null, special: 'inbox', total: 1, unread: 1, size },
        { name: 'Sent', parent: null, special: 'sent', total: 1, unread: 0, size },
        { name: 'Projects.2026', parent: 'Projects', special: null, total: 0, unread: 0, size: 0 },
      ],
    });
    const folders = (await operator.json('/store/example.org/ann/folders')) as Listed;
    assert.equal(folders.total, 3);
    assert.equal(folders.nextCursor, null);
  });

  test('domains and mailboxes are lists, and a local domain without mail is one of them', async (t) => {
    const fixture = await ReadingFixture.open(t);
    const { operator } = await openSite(t, fixture);
    const domains = (await operator.json('/store')) as Listed;
    assert.deepEqual(domains.items, [
      { domain: 'example.org', mailboxes: 1 },
      { domain: 'localhost', mailboxes: 0 },
    ]);
    const users = (await operator.json('/store/EXAMPLE.org')) as Listed;
    assert.deepEqual(users.items, [
      { user: 'ann', mailbox: 'ann@example.org', folders: 1, total: 0, unread: 0, size: 0 },
    ]);
    assert.equal((await operator.request('/store/elsewhere.example')).status, 404);
  });

  test('a folder is a list of summaries with its own counts', async (t) => {
    const fixture = await ReadingFixture.open(t);
    const id = await fixture.file(plain);
    const { operator } = await openSite(t, fixture);
    const list = (await operator.json('/store/example.org/ann/folders/inbox')) as Listed;
    assert.equal(list.total, 1);
    assert.deepEqual(list.folder, {
      name: 'INBOX',
      parent: null,
      special: 'inbox',
      total: 1,
      unread: 1,
      size: Buffer.byteLength(plain),
    });
    assert.deepEqual(list.items, [
      {
        id,
        folder: 'INBOX',
        from: { name: 'Ann', address: 'ann@example.org' },
        to: [
          { name: 'Bob', address: 'bob@example.net' },
          { name: '', address: 'carl@example.net' },
        ],
        subject: 'Grüße',
        date: '2026-11-21T09:00:00.000Z',
        internetMessageId: '<one@example.org>',
        hasAttachments: false,
        snippet: 'Hello Bob, > you wrote this good bye',
        receivedAt: '2023-11-14T22:13:21.000Z',
        size: Buffer.byteLength(plain),
        unread: true,
        flagged: false,
        answered: false,
        draft: false,
      },
    ]);
  });

  test('a list that has not changed is 304, and a new message changes its tag', async (t) => {
    const fixture = await ReadingFixture.open(t);
    await fixture.file(plain);
    const { operator } = await openSite(t, fixture);
    const path = '/store/example.org/ann/folders/INBOX';
    await fixture.settled();
    const etag = (await operator.request(path)).headers.get('etag') ?? '';
    assert.match(etag, /^"/);
    assert.equal((await operator.request(path, { headers: { 'If-None-Match': etag } })).status, 304);
    assert.equal((await operator.request(`${path}?limit=1`, { headers: { 'If-None-Match': etag } })).status, 200);
    await fixture.file(plain);
    assert.equal((await operator.request(path, { headers: { 'If-None-Match': etag } })).status, 200);
  });

  test('a message answers as JSON, text, page and raw bytes, and is still unread after that', async (t) => {
    const fixture = await ReadingFixture.open(t);
    const id = await fixture.file(plain);
    const { operator } = await openSite(t, fixture);
    const path = `/store/example.org/ann/folders/INBOX/messages/${encodeURIComponent(id)}`;
    const json = (await operator.json(path)) as Record<string, unknown>;
    assert.deepEqual(json['cc'], [{ name: '', address: 'dora@example.net' }]);
    assert.equal(json['text'], 'Hello Bob,\n> you wrote this\ngood bye\n');
    assert.equal(json['html'], null);
    assert.deepEqual((json['headers'] as unknown[])[3], ['Subject', 'Grüße']);
    assert.equal((await operator.request(path, { accept: 'text/plain' })).text, json['text']);
    const raw = await operator.request(path, { accept: 'message/rfc822' });
    assert.equal(raw.text, plain);
    assert.match(raw.headers.get('content-type') ?? '', /^message\/rfc822/);
    assert.equal(raw.headers.get('cache-control'), 'no-store');
    const page = await operator.page(path);
    assert.ok(page.includes('<h1>Grüße</h1>'));
    assert.ok(page.includes('<blockquote data-depth="1">you wrote this</blockquote>'));
    assert.equal((await fixture.list()).items[0]?.unread, true);
  });

  test('raw bytes can be asked for in ranges, by HEAD, and by what is known already', async (t) => {
    const fixture = await ReadingFixture.open(t);
    const id = await fixture.file(plain);
    const { operator } = await openSite(t, fixture);
    const path = `/store/example.org/ann/folders/INBOX/messages/${encodeURIComponent(id)}?format=rfc822`;
    const part = await operator.request(path, { headers: { Range: 'bytes=6-8' } });
    assert.equal(part.status, 206);
    assert.equal(part.text, 'Ann');
    const head = await operator.request(path, { method: 'HEAD' });
    assert.equal(head.status, 200);
    assert.equal(head.headers.get('content-length'), String(Buffer.byteLength(plain)));
    const etag = head.headers.get('etag') ?? '';
    assert.equal((await operator.request(path, { headers: { 'If-None-Match': etag } })).status, 304);
    assert.equal((await operator.request(path, { headers: { Range: 'bytes=99999-' } })).status, 416);
  });

  test('the HTML body is a sandboxed document without scripts, with its own pictures and without those of others', async (t) => {
    const fixture = await ReadingFixture.open(t);
    const id = await fixture.file(mixed);
    const { operator } = await openSite(t, fixture);
    const path = `/store/example.org/ann/folders/INBOX/messages/${encodeURIComponent(id)}/html`;
    const answer = await operator.request(path);
    assert.equal(answer.status, 200);
    assert.ok(answer.text.includes('src="data:image/png;base64,iVBORw0KGgo="'));
    assert.ok(!answer.text.includes('tracker.example'));
    assert.ok(!answer.text.includes('alert(1)'));
    const policy = answer.headers.get('content-security-policy') ?? '';
    for (const rule of ["default-src 'none'", 'img-src data:;', "frame-ancestors 'self'", 'sandbox allow-popups']) {
      assert.ok(policy.includes(rule), rule);
    }
    assert.ok(!policy.includes('allow-scripts') && !policy.includes('allow-same-origin'));
    assert.equal(answer.headers.get('x-frame-options'), null);
    assert.equal(answer.headers.get('referrer-policy'), 'no-referrer');
    const remote = await operator.request(`${path}?remote=1`);
    assert.ok(remote.text.includes('src="http://tracker.example/p.gif"'));
    assert.ok((remote.headers.get('content-security-policy') ?? '').includes('img-src data: https: http:;'));
  });

  test('a part is decoded, named, and can be asked for in ranges', async (t) => {
    const fixture = await ReadingFixture.open(t);
    const id = await fixture.file(mixed);
    const { operator } = await openSite(t, fixture);
    const path = `/store/example.org/ann/folders/INBOX/messages/${encodeURIComponent(id)}`;
    const { parts } = (await operator.json(path)) as { readonly parts: readonly Record<string, unknown>[] };
    const pdf = parts.find((part) => part['part'] === '2');
    assert.deepEqual(
      [pdf?.['contentType'], pdf?.['filename'], pdf?.['size'], pdf?.['attachment']],
      ['application/pdf', 'a b.pdf', 10, true],
    );
    const whole = await operator.request(`${path}/parts/2?download=1`);
    assert.equal(whole.text, '0123456789');
    assert.match(whole.headers.get('content-disposition') ?? '', /^attachment; filename="a b\.pdf"/);
    const range = await operator.request(`${path}/parts/2`, { headers: { Range: 'bytes=2-4' } });
    assert.deepEqual([range.status, range.text], [206, '234']);
    const head = await operator.request(`${path}/parts/2`, { method: 'HEAD' });
    assert.equal(head.headers.get('content-length'), '10');
    assert.equal((await operator.request(`${path}/parts/9`)).status, 404);
    const html = await operator.request(`${path}/parts/1.1`);
    assert.equal(html.headers.get('content-type'), 'text/plain; charset=utf-8');
    assert.match(html.headers.get('content-disposition') ?? '', /^attachment/);
  });

  test('properties of a folder tell its dates and the folders below', async (t) => {
    const fixture = await ReadingFixture.open(t);
    for (const folder of ['Projects', 'Projects.2026', 'Projects.2026.May']) await fixture.makeFolder(folder);
    await fixture.file(plain, { folder: 'Projects', at: 1_700_000_000 });
    await fixture.file(plain, { folder: 'Projects', at: 1_700_100_000, flags: 'S' });
    const { operator } = await openSite(t, fixture);
    const properties = (await operator.json('/store/example.org/ann/folders/Projects/properties')) as object;
    const { oldest, newest, ...others } = properties as { oldest: string; newest: string };
    assert.deepEqual(others, {
      name: 'Projects',
      size: 2 * Buffer.byteLength(plain),
      total: 2,
      unread: 1,
      children: ['Projects.2026'],
    });
    assert.match(oldest, /^2023-11-14T22:13:20/);
    assert.match(newest, /^2023-11-16T02:00:00/);
  });

  test('what is not there is 404, what is no name is 400', async (t) => {
    const fixture = await ReadingFixture.open(t);
    const { operator } = await openSite(t, fixture);
    const folder = '/store/example.org/ann/folders/INBOX';
    for (const path of [
      '/store/example.org/nobody',
      '/store/example.org/nobody/folders/INBOX',
      '/store/example.org/ann/folders/Missing',
      `${folder}/messages/1700000000.M1P1.host`,
      `${folder}/messages/1700000000.M1P1.host/html`,
      `${folder}/messages/1700000000.M1P1.host/parts/1`,
    ]) {
      assert.equal((await operator.request(path)).status, 404, path);
    }
    for (const path of [
      '/store/example.org/..%2Fann',
      '/store/example.org/a%00b',
      '/store/-bad-/ann',
      '/store/example.org/ann/folders/a..b',
      '/store/example.org/ann/folders/~root',
      `/store/example.org/ann/folders/${encodeURIComponent('Entwu\u0308rfe')}`,
      `${folder}?cursor=junk`,
      `${folder}?limit=0`,
      `${folder}?limit=1001`,
      `${folder}?since=yesterday`,
      `${folder}?sort=size`,
      `${folder}/messages/x%3A2%2CS`,
      `${folder}/messages/x/parts/abc`,
    ]) {
      assert.equal((await operator.request(path)).status, 400, path);
    }
  });

  test('mail is for operators: who may only look at the service is refused', async (t) => {
    const fixture = await ReadingFixture.open(t);
    await fixture.file(plain);
    const { reader } = await openSite(t, fixture, { signIn: true });
    for (const path of ['/store', '/store/example.org', '/store/example.org/ann/folders/INBOX']) {
      assert.equal((await reader.request(path)).status, 403, path);
    }
  });

  test('every page renders, empty or not', async (t) => {
    const fixture = await ReadingFixture.open(t);
    await fixture.makeFolder('Sent');
    const { operator } = await openSite(t, fixture);
    const inbox = '/store/example.org/ann/folders/INBOX';
    assert.ok((await operator.page(inbox)).includes('No messages'));
    const id = await fixture.file(mixed, { flags: 'FRD' });
    await fixture.file('no header at all');
    for (const path of [
      '/store',
      '/store/example.org',
      '/store/localhost',
      '/store/example.org/ann',
      inbox,
      '/store/example.org/ann/folders/Sent',
      ...['text', 'html', 'headers', 'structure', 'raw'].map(
        (view) => `${inbox}/messages/${encodeURIComponent(id)}?view=${view}`,
      ),
    ]) {
      assert.match(await operator.page(path), /<h1>/, path);
    }
    assert.ok((await operator.page(`${inbox}?q=nothing-like-this`)).includes('No messages match'));
    assert.ok((await operator.page(`${inbox}?q=PICTURE`)).includes('with a picture'));
  });

  test('answers are what their description says', async (t) => {
    const fixture = await ReadingFixture.open(t);
    const id = await fixture.file(mixed);
    const { operator } = await openSite(t, fixture);
    const mailbox = '/store/example.org/ann';
    const inbox = `${mailbox}/folders/INBOX`;
    for (const [path, schema] of [
      [mailbox, MailboxAnswer],
      [inbox, FolderAnswer],
      [`${inbox}/properties`, PropertiesAnswer],
      [`${inbox}/messages/${encodeURIComponent(id)}`, MessageAnswer],
    ] as const) {
      const answer = await operator.json(path);
      assert.deepEqual(schema.parse(answer), answer, path);
    }
  });

  test('attacks in subject, sender, recipients, file names and text are shown as the text that they are', async (t) => {
    const fixture = await ReadingFixture.open(t);
    const ids: string[] = [];
    for (const payload of payloads) {
      const word = `=?utf-8?B?${Buffer.from(payload).toString('base64')}?=`;
      const encoded = Buffer.from(payload).toString('base64');
      ids.push(
        await fixture.file(
          message(
            `Subject: ${word}`,
            `From: ${word} <a@b>`,
            `To: ${word} <a@b>`,
            `X-Attack: ${word}`,
            'Content-Type: multipart/mixed; boundary=b',
            '',
            '--b',
            'Content-Type: text/plain; charset=utf-8',
            'Content-Transfer-Encoding: base64',
            '',
            encoded,
            '--b',
            `Content-Disposition: attachment; filename="${word}"`,
            '',
            '--b--',
          ),
        ),
      );
    }
    const { operator } = await openSite(t, fixture);
    const inbox = '/store/example.org/ann/folders/INBOX';
    const pages = [await operator.page(`${inbox}?limit=1000`)];
    for (const id of ids) pages.push(await operator.page(`${inbox}/messages/${encodeURIComponent(id)}?view=text`));
    await fixture.makeFolder('Harmless');
    await fixture.file(plain, { folder: 'Harmless' });
    const harmless = ['/store', '/store/example.org/ann/folders/Harmless'].map((path) => operator.page(path));
    const own = new Set((await Promise.all(harmless)).flatMap((page) => page.match(/<script[^>]*>/g) ?? []));
    for (const page of pages) {
      for (const [script] of page.matchAll(/<script[^>]*>/gi)) assert.ok(own.has(script), script);
      for (const payload of payloads) {
        if (/<[a-z!?]/i.test(payload)) assert.ok(!page.includes(payload), payload);
      }
      for (const [tag] of page.matchAll(/<[a-z][^>]*>/gi)) {
        assert.doesNotMatch(tag.replace(/="[^"]*"/g, ''), /\s(?:on\w+|srcdoc|formaction|style)\b/i, tag);
        assert.doesNotMatch(tag, /(?:href|src|action)="(?:javascript|data|vbscript|\/\/)/i, tag);
      }
    }
  });

  test('the page of a message leads to its neighbours in the list that it was opened from', async (t) => {
    const fixture = await ReadingFixture.open(t);
    const [a, b, c, d] = [
      await fixture.file(plain),
      await fixture.file(plain, { flags: 'S' }),
      await fixture.file(mixed, { flags: 'SF' }),
      await fixture.file(plain),
    ];
    const { operator } = await openSite(t, fixture);
    const inbox = '/store/example.org/ann/folders/INBOX';
    const neighbours = async (id: string, list = '') => {
      const text = await operator.page(`${inbox}/messages/${encodeURIComponent(id)}?${list}`);
      return ['prev', 'next'].map((rel) => {
        const href = new RegExp(`rel="${rel}" href="([^"]*)"`).exec(text)?.[1]?.replaceAll('&amp;', '&');
        if (href === undefined) return null;
        const [path = '', query = ''] = href.split('?');
        assert.equal(query, list);
        return decodeURIComponent(path.split('/').at(-1) ?? '');
      });
    };
    assert.deepEqual(await neighbours(d), [null, c]);
    assert.deepEqual(await neighbours(c), [d, b]);
    assert.deepEqual(await neighbours(a), [b, null]);
    assert.deepEqual(await neighbours(a, 'order=oldest'), [null, b]);
    assert.deepEqual(await neighbours(b, 'unread=true'), [d, a], 'one that has left the list meanwhile');
    assert.deepEqual(await neighbours(d, 'unread=false'), [null, c]);
    assert.deepEqual(await neighbours(c, 'q=picture'), [null, null]);
    const list = await operator.page(`${inbox}?q=picture&flagged=true`);
    assert.match(list, new RegExp(`messages/[^"]*\\?q=picture&amp;flagged=true"`));
    const message = await operator.page(`${inbox}/messages/${encodeURIComponent(c)}?q=picture`);
    assert.match(message, /href="[^"]*\/folders\/INBOX\?q=picture">INBOX/);
    assert.match(message, /\?view=headers&amp;q=picture"/);
    const { status } = await operator.request(`${inbox}/messages/${encodeURIComponent(c)}?order=sideways`);
    assert.equal(status, 400);
  });
});
