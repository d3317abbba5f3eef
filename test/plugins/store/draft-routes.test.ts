import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { before, suite, test } from 'node:test';
import { suiteEnding } from '../../support/ending.js';
import type { HttpClient } from '../../support/http-client.js';
import { type InProcessServer, startInProcess } from '../../support/in-process-server.js';

interface Draft {
  readonly draftId: string;
  readonly subject: string;
  readonly text: string | null;
  readonly to: readonly unknown[];
  readonly attachments: readonly {
    readonly attachmentId: string;
    readonly filename: string;
    readonly contentType: string;
  }[];
}

const path = '/store/localhost/postmaster/drafts';
const json = { 'Content-Type': 'application/json' };

suite('drafts over HTTP', () => {
  const ending = suiteEnding();
  let server: InProcessServer;
  let admin: HttpClient;
  before(async () => {
    server = await startInProcess(ending);
    admin = server.admin;
  });

  const create = async (body: object = {}) => (await admin.json(path, { json: body }, 201)) as Draft;
  const read = async (draftId: string) => (await admin.json(`${path}/${draftId}`)) as Draft;
  const tagOf = async (draftId: string) => (await admin.request(`${path}/${draftId}`)).headers.get('etag') ?? '';

  test('a draft is created, listed, changed under its entity tag, and discarded', async () => {
    const answer = await admin.request(path, { json: { to: 'Ann <ann@example.org>', subject: 'Hé', text: 'a\nb' } });
    const { draftId } = JSON.parse(answer.text) as Draft;
    assert.equal(answer.status, 201);
    assert.equal(answer.headers.get('location'), `${path}/${draftId}`);
    const list = (await admin.json(path)) as { readonly items: readonly Draft[]; readonly total: number };
    assert.ok(list.items.some((item) => item.draftId === draftId && item.subject === 'Hé'));
    const tag = await tagOf(draftId);
    assert.equal(tag, answer.headers.get('etag'));
    const put = (ifMatch: string) =>
      admin.request(`${path}/${draftId}`, {
        method: 'PUT',
        json: { subject: 'new' },
        headers: { 'If-Match': ifMatch },
      });
    const saved = await put(tag);
    assert.equal(saved.status, 200);
    assert.notEqual(saved.headers.get('etag'), tag);
    assert.equal((await put(tag)).status, 412);
    assert.equal((await put('*')).status, 200);
    const again = await admin.request(`${path}/${draftId}`, { headers: { 'If-None-Match': await tagOf(draftId) } });
    assert.equal(again.status, 304);
    assert.equal((await admin.request(`${path}/${draftId}`, { method: 'DELETE' })).status, 200);
    for (const method of ['GET', 'DELETE']) {
      assert.equal((await admin.request(`${path}/${draftId}`, { method })).status, 404);
    }
  });

  const injections: readonly object[] = [
    { subject: 'a\r\nBcc: eve@example.net' },
    { subject: 'a\u2028b' },
    { subject: 'a\0b' },
    { from: 'Ann\r\n <ann@example.org>' },
    { from: { name: 'Ann\nX: y', address: 'ann@example.org' } },
    { to: ['ann@example.org\r\nBcc: eve@example.net'] },
    { to: [{ name: 'a', address: 'ann@example.org>\r\nX: y' }] },
    { cc: 'ann@example.org\n, eve@example.net' },
    { bcc: ['ann@example.org, eve@example.net'] },
    { to: 'team: ann@example.org, eve@example.net;' },
    { to: '"a@x.example"@y.example@z.example' },
    { to: 'g:'.repeat(5000) },
    { to: Array.from({ length: 60_000 }, () => 'a@b.example') },
    { to: [['ann@example.org']] },
    { inReplyTo: '<a@b>\r\nX: y' },
    { inReplyTo: 'a@b' },
    { references: '<a@b>\r\nX: y' },
    { references: ['<a@b> <c@d>'] },
    { text: 'a\0b' },
    { html: 'half \ud800 pair' },
    { headers: { 'X-A': 'b' } },
    { 'Reply-To': 'a' },
  ];
  for (const body of injections) {
    test(`refused, not mended: ${JSON.stringify(body).slice(0, 70)}`, async () => {
      const { draftId } = await create({ subject: 'before' });
      const total = async () => ((await admin.json(path)) as { total: number }).total;
      const count = await total();
      assert.equal((await admin.request(path, { json: body })).status, 422);
      assert.equal((await admin.request(`${path}/${draftId}`, { method: 'PUT', json: body })).status, 422);
      assert.equal((await read(draftId)).subject, 'before');
      assert.equal(await total(), count);
    });
  }

  test('names of attachments that would break or mislead are refused, paths are cut to their last part', async () => {
    const { draftId } = await create();
    const attach = (filename: string, headers = { 'Content-Type': 'text/html' }) =>
      admin.request(`${path}/${draftId}/attachments?${new URLSearchParams({ filename }).toString()}`, {
        body: '<script>alert(1)</script>',
        headers,
      });
    for (const name of ['a\r\nX: y', 'a\u202etxt.exe', '..', 'x'.repeat(300)]) {
      assert.ok([400, 422].includes((await attach(name)).status), JSON.stringify(name));
    }
    assert.deepEqual((await read(draftId)).attachments, []);
    for (const name of ['../../x', 'quo"te;=.html', '日本.svg', 'C:\\dir\\y.pdf'])
      assert.equal((await attach(name)).status, 201);
    assert.equal((await attach('m.eml', { 'Content-Type': 'message/rfc822' })).status, 201);
    assert.equal((await attach('t', { 'Content-Type': 'text/x\u00e9; a' })).status, 201);
    const { attachments } = await read(draftId);
    assert.deepEqual(
      attachments.map(({ filename }) => filename),
      ['x', 'quo"te;=.html', '日本.svg', 'y.pdf', 'm.eml', 't'],
    );
    for (const { attachmentId } of attachments) {
      const got = await admin.request(`${path}/${draftId}/attachments/${attachmentId}`);
      assert.equal(got.status, 200);
      assert.equal(got.text, '<script>alert(1)</script>');
      assert.match(
        got.headers.get('content-disposition') ?? '',
        /^attachment; filename="[^"\r\n]*"; filename\*=UTF-8''/,
      );
      assert.match(got.headers.get('content-type') ?? '', /^(?:application\/octet-stream|text\/plain; charset=utf-8)$/);
      assert.equal(got.headers.get('x-content-type-options'), 'nosniff');
      assert.match(got.headers.get('content-security-policy') ?? '', /sandbox/);
    }
  });

  test('a draft with more flowed text than is read keeps it: nothing is attached', async () => {
    const text = `Content-Type: text/plain; format=flowed\r\n\r\n${'some words \r\n'.repeat(100_000)}`;
    const headers = { 'Content-Type': 'message/rfc822' };
    const { draftId } = JSON.parse((await admin.request(path, { body: text, headers })).text) as Draft;
    const before = await tagOf(draftId);
    const attached = await admin.request(`${path}/${draftId}/attachments?filename=a.txt`, {
      body: 'small',
      headers: { 'Content-Type': 'text/plain' },
    });
    assert.equal(attached.status, 409);
    assert.equal(await tagOf(draftId), before);
  });

  test('several files come as one form, are read in ranges and removed', async () => {
    const { draftId } = await create({ subject: 's', text: 't' });
    const form = new FormData();
    form.append('files', new Blob(['first file']), 'a.txt');
    form.append('files', new Blob(['second']), '../b.txt');
    const encoded = new Response(form);
    const added = await admin.request(`${path}/${draftId}/attachments`, {
      body: Buffer.from(await encoded.arrayBuffer()),
      headers: { 'Content-Type': encoded.headers.get('content-type') ?? '', Accept: 'application/json' },
    });
    assert.equal(added.status, 201, added.text);
    const { attachments } = JSON.parse(added.text) as Draft;
    assert.deepEqual(
      attachments.map(({ filename }) => filename),
      ['a.txt', 'b.txt'],
    );
    const file = `${path}/${draftId}/attachments/${attachments[0]?.attachmentId}`;
    const part = await admin.request(file, { headers: { Range: 'bytes=6-9' } });
    assert.deepEqual([part.status, part.text], [206, 'file']);
    assert.equal((await admin.request(file, { method: 'DELETE' })).status, 200);
    assert.equal((await admin.request(file, { method: 'DELETE' })).status, 404);
    assert.equal((await admin.request(file)).status, 404);
    const now = await read(draftId);
    assert.deepEqual([now.subject, now.text, now.attachments.length], ['s', 't', 1]);
  });

  test('raw messages: what is empty, broken or too large is refused and leaves no file', async () => {
    const raw = { 'Content-Type': 'message/rfc822' };
    const post = (body: string | Buffer, headers = raw) => admin.request(path, { body, headers });
    assert.equal((await post('')).status, 422);
    assert.equal((await post('Subject: a\0b\n\n')).status, 422);
    assert.equal((await post('x', { 'Content-Type': 'text/plain' })).status, 415);
    const made = await post('Subject: raw\nTo: postmaster@localhost\n\nline\n');
    assert.equal(made.status, 201);
    assert.equal((JSON.parse(made.text) as Draft).text, 'line');
    const multipart = { 'Content-Type': 'multipart/form-data; boundary=wrong' };
    const { draftId } = await create();
    assert.equal(
      (await admin.request(`${path}/${draftId}/attachments`, { body: '--right\r\n\r\n', headers: multipart })).status,
      400,
    );
    const large = Buffer.alloc(50 * 1024 * 1024 + 1);
    assert.equal(
      await post(large).then(
        ({ status }) => status,
        () => 413,
      ),
      413,
    );
    assert.deepEqual(await readdir(join(server.folder, 'data', 'drafts')), []);
    assert.deepEqual(await readdir(join(server.folder, 'data', 'uploads')), []);
  });

  test('a draft is sent once, whatever is clicked, and never in part', async () => {
    const { draftId } = await create({ to: 'postmaster@localhost', bcc: ['postmaster@localhost'], subject: 'sent' });
    const send = () =>
      admin.request(`${path}/${draftId}/send`, { method: 'POST', headers: { 'Idempotency-Key': draftId } });
    const first = await send();
    assert.equal(first.status, 202, first.text);
    assert.equal((JSON.parse(first.text) as { uid: null }).uid, null);
    const again = await send();
    assert.equal(again.headers.get('idempotency-replayed'), 'true');
    assert.equal(again.text, first.text);
    const location = first.headers.get('location') ?? '';
    const filed = (await admin.json(location)) as { draft: boolean; unread: boolean; bcc: readonly unknown[] };
    assert.deepEqual([filed.draft, filed.unread, filed.bcc.length], [false, false, 1]);
    const inbox = await admin.json('/store/localhost/postmaster/folders/INBOX?q=sent');
    assert.equal((inbox as { total: number }).total, 1);
    const wrong = await create({ to: 'postmaster@localhost, bob@elsewhere.example, nobody@localhost' });
    const refused = await admin.request(`${path}/${wrong.draftId}/send`, { method: 'POST' });
    assert.equal(refused.status, 422);
    assert.match(refused.text, /these recipients: nobody@localhost/);
    const after = await admin.json('/store/localhost/postmaster/folders/INBOX');
    assert.equal((after as { total: number }).total, 1);
    assert.equal((await read(wrong.draftId)).to.length, 3);
  });

  test('a draft for people elsewhere is queued for them, and the answer leads to the entry', async () => {
    const { draftId } = await create({
      to: 'postmaster@localhost, bob@elsewhere.example',
      bcc: 'eve@elsewhere.example',
    });
    const sent = await admin.request(`${path}/${draftId}/send`, { method: 'POST' });
    assert.equal(sent.status, 202, sent.text);
    const { uid, sentId } = JSON.parse(sent.text) as { uid: string; sentId: string };
    const location = sent.headers.get('location') ?? '';
    assert.equal(location, `/client/queue/${uid}`);
    const entry = (await admin.json(location)) as { sender: string; recipients: readonly { address: string }[] };
    assert.equal(entry.sender, 'postmaster@localhost');
    assert.deepEqual(entry.recipients.map(({ address }) => address).toSorted(), [
      'bob@elsewhere.example',
      'eve@elsewhere.example',
    ]);
    assert.doesNotMatch((await admin.request(`${location}/message`)).text, /Bcc|X-Postern/i);
    const copy = await admin.json(`/store/localhost/postmaster/folders/Sent/messages/${encodeURIComponent(sentId)}`);
    assert.equal((copy as { bcc: readonly unknown[] }).bcc.length, 1);
    assert.equal((await admin.request(`${path}/${draftId}`)).status, 404);
    const form = await create({ to: 'bob@elsewhere.example' });
    const page = await admin.request(`${path}/${form.draftId}/send`, { form: {}, headers: { Accept: 'text/html' } });
    assert.match(page.headers.get('location') ?? '', /^\/client\/queue\/[\w-]+\?notice=/);
  });

  test('changes, attachments and discards at once lose no attachment', async () => {
    const { draftId } = await create({ text: 'x' });
    const attach = (n: number) =>
      admin.request(`${path}/${draftId}/attachments?filename=f${n}`, {
        body: `${n}`,
        headers: { 'Content-Type': 'a/b' },
      });
    const put = (n: number) => admin.request(`${path}/${draftId}`, { method: 'PUT', json: { text: `${n}` } });
    const answers = await Promise.all(Array.from({ length: 40 }, (_, n) => (n % 2 === 0 ? attach(n) : put(n))));
    assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([200, 201]));
    assert.equal((await read(draftId)).attachments.length, 20);
    const remove = () => admin.request(`${path}/${draftId}`, { method: 'DELETE' });
    const gone = await Promise.all([remove(), remove(), attach(99)]);
    assert.deepEqual(gone.filter(({ status }) => status === 200).length, 1);
    assert.equal((await admin.request(`${path}/${draftId}`)).status, 404);
  });

  test('two POSTs with one key make one draft', async () => {
    const headers = { ...json, 'Idempotency-Key': 'twice' };
    const post = () => admin.request(path, { body: '{"subject":"once"}', headers });
    const answers = await Promise.all([post(), post()]);
    answers.push(await post());
    const made = answers.filter(({ status }) => status === 201).map(({ text }) => (JSON.parse(text) as Draft).draftId);
    assert.equal(new Set(made).size, 1);
    assert.ok(answers.every(({ status }) => status === 201 || status === 409));
  });

  test('an unknown draft, a bad id and a missing mailbox have different answers', async () => {
    assert.equal((await admin.request(`${path}/01m7xwjky6000bn568c1`)).status, 404);
    for (const malformed of ['not-an-id', '01M7XWJKY6000BN568C1', '%20']) {
      for (const method of ['GET', 'DELETE']) {
        assert.equal((await admin.request(`${path}/${malformed}`, { method })).status, 404);
      }
      assert.equal((await admin.request(`${path}/${malformed}`, { method: 'PUT', json: {} })).status, 404);
    }
    assert.equal((await admin.request('/store/localhost/nobody/drafts')).status, 404);
    assert.equal((await admin.request('/store/localhost/nobody/drafts', { json: {} })).status, 404);
  });

  test('the pages work by forms alone, and a conflict shows both versions', async () => {
    const page = { Accept: 'text/html' };
    const begun = await admin.request(path, { method: 'POST', form: {}, headers: page });
    assert.equal(begun.status, 303);
    const place = begun.headers.get('location') ?? '';
    const version = /name="version" value="([^"]+)"/.exec(await admin.page(place))?.[1] ?? '';
    const save = (subject: string) =>
      admin.request(place, { form: { _method: 'PUT', version, subject, text: 'a\r\nb', to: '' }, headers: page });
    assert.equal((await save('mine <b>')).status, 303);
    assert.match(await admin.page(place), /value="mine &lt;b&gt;"/);
    const late = await save('late');
    assert.equal(late.status, 412);
    assert.match(late.text, /Yours[\s\S]*late[\s\S]*Theirs[\s\S]*mine &lt;b&gt;/);
    const asked = await admin.request(place, { form: { _method: 'DELETE' }, headers: page });
    assert.match(asked.text, /Discard this draft/);
    const done = await admin.request(place, { form: { _method: 'DELETE', confirm: 'yes' }, headers: page });
    assert.equal(done.status, 303);
    assert.match(await admin.page(path), /Drafts/);
  });

  test('what is refused stays in the editor, with what is wrong beside its field', async () => {
    const page = { Accept: 'text/html' };
    const { draftId } = await create({ subject: 'saved' });
    const written = { to: 'no address', subject: 'not lost', text: '\r\na long\r\ntext <b>' };
    const put = { _method: 'PUT', version: 'seen', ...written };
    for (const [place, form] of [
      [`${path}/${draftId}`, put],
      [`${path}/${draftId}/send`, written],
    ] as const) {
      const refused = await admin.request(place, { form, headers: page });
      assert.equal(refused.status, 422);
      assert.match(refused.text, /<form class="draft"/);
      assert.match(refused.text, /value="no address"[^>]* aria-invalid="true"/);
      assert.match(refused.text, /value="not lost"/);
      assert.match(refused.text, />\n\na long\ntext &lt;b&gt;<\/textarea>/);
      assert.match(refused.text, /class="error"[^>]*>An address is a local part/);
    }
    const upload = await admin.request(
      `${path}/${draftId}/attachments`,
      await multipart({ subject: 'kept', to: '' }, []),
    );
    assert.equal(upload.status, 422);
    assert.match(upload.text, /value="kept"[\s\S]*name="files"/);
    assert.equal((await read(draftId)).subject, 'saved');
    const script = await admin.request(`${path}/${draftId}`, { method: 'PUT', json: { to: 'no address' } });
    assert.match(script.headers.get('content-type') ?? '', /problem\+json/);
  });

  test('the editor is one form: the value of its button says what to do', async () => {
    const { draftId } = await create({ subject: 'begun' });
    const place = `${path}/${draftId}`;
    const html = await admin.page(place);
    assert.match(html, new RegExp(`<form class="draft" method="post" action="${place}" enctype="multipart/form-data"`));
    assert.doesNotMatch(html, /formaction|formenctype/);
    const written = { to: 'postmaster@localhost', subject: 'by buttons', text: 'x' };
    const press = async (operation: string, files: readonly (readonly [string, string])[] = []) =>
      admin.request(place, await multipart({ ...written, operation }, files));
    assert.equal((await press('save')).status, 303);
    assert.equal((await read(draftId)).subject, 'by buttons');
    assert.equal((await press('attach', [['a.txt', 'one']])).status, 303);
    assert.equal((await press('attach', [['b.txt', 'two']])).status, 303);
    const both = (await read(draftId)).attachments;
    assert.deepEqual(
      both.map(({ filename }) => filename),
      ['a.txt', 'b.txt'],
    );
    assert.match(await admin.page(place), new RegExp(`name="operation" value="remove:${both[0]?.attachmentId}"`));
    assert.equal((await press(`remove:${both[0]?.attachmentId}`)).status, 303);
    assert.deepEqual(
      (await read(draftId)).attachments.map(({ filename }) => filename),
      ['b.txt'],
    );
    assert.equal((await press('remove:none')).status, 404);
    const refused = await press('burn');
    assert.equal(refused.status, 422);
    assert.match(refused.text, /value="by buttons"/);
    const chosen = await press('send', [['c.txt', 'three']]);
    assert.equal(chosen.status, 422);
    assert.match(chosen.text, /You have chosen a file that is not attached yet/);
    const sent = await press('send');
    assert.equal(sent.status, 303);
    assert.match(sent.headers.get('location') ?? '', /\/folders\/Sent\/messages\//);
    assert.equal((await admin.request(place)).status, 404);
  });

  test('only the editor sees the ids of attachments', async () => {
    const { draftId } = await create({ to: 'postmaster@localhost', subject: 'with files', text: 'see below' });
    const octets = { 'Content-Type': 'application/octet-stream' };
    for (const name of ['a.bin', 'b.bin']) {
      const answer = await admin.request(`${path}/${draftId}/attachments?filename=${name}`, {
        body: name,
        headers: octets,
      });
      assert.equal(answer.status, 201);
    }
    const sent = await admin.request(`${path}/${draftId}/send`, { method: 'POST' });
    const raw = await admin.request(sent.headers.get('location') ?? '', { headers: { Accept: 'message/rfc822' } });
    assert.doesNotMatch(raw.text, /X-Postern/);
    assert.match(raw.text, /filename="?a\.bin[\s\S]*filename="?b\.bin/);
    const { items } = (await admin.json('/store/localhost/postmaster/folders/INBOX?q=with+files')) as {
      readonly items: readonly { readonly id: string; readonly hasAttachments: boolean }[];
    };
    const [first] = items;
    const place = `/store/localhost/postmaster/folders/INBOX/messages/${encodeURIComponent(first?.id ?? '')}`;
    assert.doesNotMatch((await admin.request(place, { headers: { Accept: 'message/rfc822' } })).text, /X-Postern/);
    assert.equal(first?.hasAttachments, true);
  });

  test('the folder of drafts leads to the editor', async () => {
    const { draftId } = await create({ subject: 'in the folder' });
    const folder = '/store/localhost/postmaster/folders/Drafts';
    assert.match(await admin.page(folder), new RegExp(`href="${path}/${draftId}"`));
    const { items } = (await admin.json(`${folder}?q=in+the+folder`)) as { items: readonly { id: string }[] };
    const message = await admin.page(`${folder}/messages/${encodeURIComponent(items[0]?.id ?? '')}`);
    assert.match(message, new RegExp(`href="${path}/${draftId}">Edit this draft`));
    assert.doesNotMatch(message, /Reply/);
  });

  async function multipart(fields: Readonly<Record<string, string>>, files: readonly (readonly [string, string])[]) {
    const form = new FormData();
    for (const [name, value] of Object.entries(fields)) form.append(name, value);
    for (const [name, content] of files) form.append('files', new Blob([content], { type: 'message/rfc822' }), name);
    if (files.length === 0) form.append('files', new Blob([], { type: 'application/octet-stream' }), '');
    const encoded = new Response(form);
    const headers = { 'Content-Type': encoded.headers.get('content-type') ?? '', Accept: 'text/html' };
    return { body: Buffer.from(await encoded.arrayBuffer()), headers };
  }

  test('messages in files are added to a folder, by a form', async () => {
    const folder = '/store/localhost/postmaster/folders/Archive';
    const files = [
      ['a.eml', 'Subject: first\n\nx\n'],
      ['b.eml', 'Subject: second\r\n\r\ny\r\n'],
    ] as const;
    const added = await admin.request(`${folder}/messages`, await multipart({ unread: 'true' }, files));
    assert.equal(added.status, 303);
    assert.match(added.headers.get('location') ?? '', /^\/store\/localhost\/postmaster\/folders\/Archive\?notice=/);
    const { items } = (await admin.json(folder)) as { items: readonly { subject: string; unread: boolean }[] };
    assert.deepEqual(
      items.map(({ subject, unread }) => [subject, unread]),
      [
        ['second', true],
        ['first', true],
      ],
    );
    assert.equal((await admin.request(`${folder}/messages`, await multipart({}, []))).status, 400);
    const { body, headers } = await multipart({}, [...files, ['c.eml', '']]);
    const partly = await admin.request(`${folder}/messages`, {
      body,
      headers: { ...headers, Accept: 'application/json' },
    });
    assert.equal(partly.status, 422);
    assert.match(partly.text, /2 messages of 3 added, then: The message is empty/);
    assert.deepEqual(await readdir(join(server.folder, 'data', 'uploads')), []);
  });
});
