import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import type { RequestOptions } from '../../support/http-client.js';
import { ReadingFixture } from './reading-fixture.js';
import { openSite, type StoreDeps } from './store-site.js';

const home = '/store/example.org/ann';
const text = 'Subject: x\r\n\r\n';

interface Listed {
  readonly items: readonly { readonly id: string; readonly name: string }[];
  readonly total: number;
}

const idsOf = async ({ operator }: StoreDeps, folder: string, query = ''): Promise<readonly string[]> =>
  ((await operator.json(`${home}/folders/${folder}${query}`)) as Listed).items.map(({ id }) => id);

const statusOf = async ({ operator }: StoreDeps, path: string, options: RequestOptions): Promise<number> =>
  (await operator.request(`${home}${path}`, options)).status;

const page = { accept: 'text/html', headers: { 'Sec-Fetch-Site': 'same-origin' } };

suite('folders over HTTP', () => {
  test('a folder is made, renamed, copied, moved and removed, each with its answer', async (t) => {
    const fixture = await ReadingFixture.open(t);
    const site = await openSite(t, fixture);
    const { operator } = site;
    const made = await operator.request(`${home}/folders`, { json: { name: 'Büro' } });
    assert.equal(made.status, 201);
    assert.equal(made.headers.get('location'), `${home}/folders/B%C3%BCro`);
    assert.deepEqual(JSON.parse(made.text), {
      name: 'Büro',
      parent: null,
      special: null,
      total: 0,
      unread: 0,
      size: 0,
    });
    await operator.json(`${home}/folders`, { json: { name: '2026', parent: 'Büro' } }, 201);
    await fixture.file(text, { folder: 'Büro.2026' });
    const renamed = await operator.json(`${home}/folders/Büro`, { method: 'PATCH', json: { name: 'Office' } });
    assert.equal((renamed as { name: string }).name, 'Office');
    const copied = (await operator.json(
      `${home}/folders/Office.2026/copy`,
      { json: { destinationParent: null, newName: 'Copy' } },
      201,
    )) as { total: number };
    assert.equal(copied.total, 1);
    const moved = await operator.json(`${home}/folders/Copy/move`, { json: { destinationParent: 'Office' } });
    assert.equal((moved as { name: string }).name, 'Office.Copy');
    const { children } = (await operator.json(`${home}/folders/Office/properties`)) as { children: readonly string[] };
    assert.deepEqual(children, ['Office.2026', 'Office.Copy']);
    assert.equal(await statusOf(site, '/folders/Office', { method: 'DELETE' }), 409);
    const gone = await operator.json(`${home}/folders/Office?recursive=true`, { method: 'DELETE' });
    assert.deepEqual(gone, { name: 'Office', folders: 3, messages: 2, size: 28 });
    assert.deepEqual(((await operator.json(`${home}/folders`)) as Listed).total, 1);
  });

  test('what cannot be is refused with its status', async (t) => {
    const fixture = await ReadingFixture.open(t);
    const site = await openSite(t, fixture);
    const json = (value: unknown, method = 'POST') => ({ method, json: value });
    await site.operator.json(`${home}/folders`, json({ name: 'A' }), 201);
    await site.operator.json(`${home}/folders`, json({ name: 'Sent' }), 201);
    const cases: readonly (readonly [path: string, options: RequestOptions, status: number])[] = [
      ['/folders', json({ name: 'a' }), 409],
      ['/folders', json({ name: 'a.b' }), 422],
      ['/folders', json({ name: 'inbox' }), 422],
      ['/folders', json({}), 422],
      ['/folders', json({ name: 'x', parent: 'none' }), 422],
      ['/folders/none', json({ name: 'x' }, 'PATCH'), 404],
      ['/folders/INBOX', json({ name: 'x' }, 'PATCH'), 403],
      ['/folders/Sent', json({ name: 'x' }, 'PATCH'), 403],
      ['/folders/Sent?recursive=true', { method: 'DELETE' }, 403],
      ['/folders/INBOX', { method: 'DELETE' }, 403],
      ['/folders/..%5c', { method: 'DELETE' }, 400],
      ['/folders/A/move', json({ destinationParent: 'A' }), 422],
      ['/folders/A/copy', json({}), 409],
      ['/folders/none/copy', json({ newName: 'x' }), 404],
      ['/folders/A?recursive=maybe', { method: 'DELETE' }, 400],
    ];
    for (const [path, options, status] of cases) {
      assert.equal(await statusOf(site, path, options), status, `${path} ${JSON.stringify(options)}`);
    }
    assert.equal((await site.operator.request('/store/example.org/nobody/folders', json({ name: 'A' }))).status, 404);
  });

  test('the page of a mailbox grows with its folders, not with their square', async (t) => {
    const fixture = await ReadingFixture.open(t);
    const { operator } = await openSite(t, fixture);
    const pageSize = async () => (await operator.request(home, page)).text.length;
    const none = await pageSize();
    for (let n = 0; n < 50; n += 1) await fixture.makeFolder(`Folder ${n}`);
    const fifty = (await pageSize()) - none;
    for (let n = 50; n < 200; n += 1) await fixture.makeFolder(`Folder ${n}`);
    assert.ok((await pageSize()) - none < 4.5 * fifty);
  });

  test('INBOX as the parent, in any case, is the first level', async (t) => {
    const { operator } = await openSite(t, await ReadingFixture.open(t));
    const named = async (path: string, json: object, status: number) =>
      ((await operator.json(`${home}/folders${path}`, { json }, status)) as { name: string }).name;
    assert.equal(await named('', { name: 'A', parent: 'INBOX' }, 201), 'A');
    assert.equal(await named('', { name: 'B', parent: 'inbox' }, 201), 'B');
    assert.equal(await named('', { name: 'C', parent: 'A' }, 201), 'A.C');
    assert.equal(await named('/A.C/move', { destinationParent: 'Inbox' }, 200), 'C');
    assert.equal(await named('/C/copy', { destinationParent: '.inbox', newName: 'D' }, 201), 'D');
  });

  test('an error points at a field of the request', async (t) => {
    const { operator } = await openSite(t, await ReadingFixture.open(t));
    await operator.json(`${home}/folders`, { json: { name: 'A' } }, 201);
    await operator.json(`${home}/folders`, { json: { name: 'Parent' } }, 201);
    const long = 'x'.repeat(250);
    await operator.json(`${home}/folders`, { json: { name: long } }, 201);
    const cases: readonly (readonly [path: string, json: object, pointer: string, method?: string])[] = [
      ['', { name: 'a.b' }, '/name'],
      ['', { name: 'x', parent: 'none' }, '/parent'],
      ['/A', { name: 'a.b' }, '/name', 'PATCH'],
      ['/A/copy', { newName: 'a.b' }, '/newName'],
      ['/A/copy', { destinationParent: 'none', newName: 'x' }, '/destinationParent'],
      ['/A/move', { destinationParent: 'none' }, '/destinationParent'],
      [`/${long}/move`, { destinationParent: 'Parent' }, '/destinationParent'],
      [`/${long}/copy`, { destinationParent: 'Parent' }, '/destinationParent'],
    ];
    for (const [path, json, pointer, method = 'POST'] of cases) {
      const { errors } = (await operator.json(`${home}/folders${path}`, { json, method }, 422)) as {
        errors: readonly { pointer: string }[];
      };
      assert.deepEqual(
        errors.map((error) => error.pointer),
        [pointer],
        `${path} ${JSON.stringify(json)}`,
      );
    }
  });

  test('If-Match with a tag of the folder as it is lets a change through, and with an older one not', async (t) => {
    const fixture = await ReadingFixture.open(t);
    const site = await openSite(t, fixture);
    await fixture.makeFolder('A');
    await fixture.settled('A');
    const tag = async (path: string) => (await site.operator.request(`${home}${path}`)).headers.get('etag') ?? '';
    const [properties, list] = [await tag('/folders/A/properties'), await tag('/folders/A?limit=3')];
    assert.match(properties, /^"/);
    await fixture.file(text, { folder: 'A' });
    const rename = (name: string, match: string) =>
      statusOf(site, '/folders/A', { method: 'PATCH', json: { name }, headers: { 'If-Match': match } });
    for (const old of [properties, list]) assert.equal(await rename('B', old), 412);
    await fixture.settled('A');
    assert.equal(await rename('B', await tag('/folders/A?limit=3')), 200);
  });

  test('a person is asked before a folder goes, with what is in it', async (t) => {
    const fixture = await ReadingFixture.open(t);
    const site = await openSite(t, fixture);
    await fixture.makeFolder('A');
    await fixture.makeFolder('A.sub');
    await fixture.file(text, { folder: 'A.sub' });
    const path = `${home}/folders/A?recursive=true`;
    const asked = await site.operator.request(path, { ...page, form: { _method: 'DELETE' } });
    assert.equal(asked.status, 200);
    assert.match(asked.text, /Delete the folder A and 1 folder below it, with 1 message, permanently\?/);
    const done = await site.operator.request(path, { ...page, form: { _method: 'DELETE', confirm: 'yes' } });
    assert.equal(done.status, 303);
    assert.match(done.headers.get('location') ?? '', /^\/store\/example.org\/ann\?notice=/);
    assert.deepEqual((await readdir(fixture.home)).toSorted(), ['cur', 'new', 'tmp']);
  });
});

suite('messages over HTTP', () => {
  test('messages are moved, marked and deleted, and the answers count and name what was not there', async (t) => {
    const fixture = await ReadingFixture.open(t);
    const site = await openSite(t, fixture);
    const { operator } = site;
    const ids = [await fixture.file(text), await fixture.file(text), await fixture.file(text)] as const;
    const read = { folder: 'INBOX', action: 'read', messageIds: [ids[0], 'none'] };
    assert.deepEqual(await operator.json(`${home}/messages/read-status`, { json: read }), {
      updated: 1,
      unchanged: 0,
      notFound: ['none'],
    });
    const move = { fromFolder: 'INBOX', toFolder: 'Archive', messageIds: [ids[0], ids[0], 'none'] };
    const moved = (await operator.json(`${home}/messages/move`, { json: move })) as Record<string, unknown>;
    const [archived] = await idsOf(site, 'Archive');
    assert.deepEqual(moved, { moved: 1, notFound: ['none'], newIds: { [ids[0]]: archived } });
    assert.deepEqual(await idsOf(site, 'Archive', '?unread=false'), [archived]);
    const remove = (body: object) => operator.json(`${home}/messages/delete`, { json: body });
    assert.deepEqual(await remove({ folder: 'INBOX', messageIds: [ids[1]] }), { deleted: 1, notFound: [] });
    assert.equal((await idsOf(site, 'Trash')).length, 1);
    assert.deepEqual(await remove({ folder: 'INBOX', messageIds: [ids[2]], permanent: true }), {
      deleted: 1,
      notFound: [],
    });
    assert.deepEqual(await remove({ folder: 'Trash', messageIds: await idsOf(site, 'Trash') }), {
      deleted: 1,
      notFound: [],
    });
    assert.equal((await idsOf(site, 'Trash')).length, 0);
  });

  test('ids or a filter, never both, never neither, and never by mistake all', async (t) => {
    const fixture = await ReadingFixture.open(t);
    const site = await openSite(t, fixture);
    const id = await fixture.file(text);
    await fixture.file(text, { flags: 'F' });
    const remove = (body: object) => statusOf(site, '/messages/delete', { json: { folder: 'INBOX', ...body } });
    const wrong: readonly object[] = [
      {},
      { messageIds: [] },
      { messageIds: [''] },
      { messageIds: ['a/b'] },
      { messageIds: [7] },
      { messageIds: '*' },
      { filter: {} },
      { filter: '' },
      { filter: { q: ' ' } },
      { filter: 'q=%20%E3%80%80' },
      { filter: { unraed: true } },
      { filter: { all: true, unread: true } },
      { filter: { all: false } },
      { filter: { since: 'yesterday' } },
      { filter: { since: '2026-02-30' } },
      { filter: 'all=true&unread=true' },
      { filter: { flagged: true }, messageIds: [id] },
      { ids: [id] },
    ];
    for (const body of wrong) assert.equal(await remove(body), 422, JSON.stringify(body));
    assert.equal(await statusOf(site, '/messages/delete', { json: { messageIds: [id] } }), 422, 'without a folder');
    const many = Array.from({ length: 10_001 }, (_, n) => `id${n}`);
    assert.equal(await remove({ messageIds: many }), 413);
    assert.equal(await remove({ filter: { flagged: true }, expect: 2 }), 409);
    assert.equal((await idsOf(site, 'INBOX')).length, 2);
    assert.equal(await remove({ filter: { flagged: true }, expect: 1 }), 200);
    assert.deepEqual(await idsOf(site, 'INBOX'), [id]);
    assert.equal(await remove({ filter: { all: true } }), 200);
    assert.deepEqual(await idsOf(site, 'INBOX'), []);
  });

  test('messages are flagged and unflagged, by a call and by the buttons of a page', async (t) => {
    const fixture = await ReadingFixture.open(t);
    const site = await openSite(t, fixture);
    const [first, second] = [await fixture.file(text), await fixture.file(text, { flags: 'FS' })];
    const call = (action: string, body: object) =>
      site.operator.json(`${home}/messages/flag-status`, { json: { folder: 'INBOX', action, ...body } });
    const flagged = () => idsOf(site, 'INBOX', '?flagged=true');
    const messageIds = [first, second, 'none'];
    assert.deepEqual(await call('flag', { messageIds }), { updated: 1, unchanged: 1, notFound: ['none'] });
    assert.deepEqual(await flagged(), [second, first]);
    assert.deepEqual(await idsOf(site, 'INBOX', '?unread=true'), [first], 'reading is another matter');
    assert.deepEqual(await readdir(join(fixture.home, 'cur')), [`${first}:2,F`, `${second}:2,FS`]);
    assert.deepEqual(await call('unflag', { filter: { unread: false } }), { updated: 1, unchanged: 0, notFound: [] });
    assert.deepEqual(await flagged(), [first]);
    assert.equal(
      await statusOf(site, '/messages/flag-status', { json: { folder: 'INBOX', action: 'read', messageIds } }),
      422,
    );

    const bar = (action: string) =>
      site.operator.request(`${home}/folders/INBOX/selection`, { ...page, form: { action, messageIds: second } });
    assert.equal((await bar('flag')).status, 303);
    assert.deepEqual(await flagged(), [second, first]);
    assert.equal((await bar('unflag')).status, 303);
    assert.deepEqual(await flagged(), [first]);
    const list = await site.operator.request(`${home}/folders/INBOX`, page);
    assert.match(list.text, /value="flag">Flag<[^]*value="unflag">Unflag</);
    const message = await site.operator.request(`${home}/folders/INBOX/messages/${encodeURIComponent(first)}`, page);
    assert.match(message.text, /flag-status[^]*value="unflag"[^]*aria-pressed="true"/);
  });

  test('a dry run counts, shows some, and changes nothing', async (t) => {
    const fixture = await ReadingFixture.open(t);
    const site = await openSite(t, fixture);
    for (let n = 0; n < 12; n++) await fixture.file(text);
    const dry = { folder: 'INBOX', dryRun: true };
    const call = async (name: string, body: object) =>
      (await site.operator.json(`${home}/messages/${name}`, { json: body })) as Record<string, unknown>;
    const all = await call('delete-all', dry);
    assert.deepEqual([all['deleted'], all['dryRun'], (all['sample'] as readonly unknown[]).length], [12, true, 10]);
    assert.equal((await call('cleanup', { ...dry, months: 1 }))['affected'], 12);
    assert.equal((await call('mark-all-read', dry))['updated'], 12);
    assert.equal((await call('delete', { ...dry, filter: { unread: true } }))['deleted'], 12);
    const move = { fromFolder: 'INBOX', toFolder: 'Archive', messageIds: ['none'], dryRun: true };
    assert.deepEqual((await call('move', move))['notFound'], ['none']);
    assert.equal((await idsOf(site, 'INBOX', '?unread=true')).length, 12);
  });

  test('a folder is marked read, cleaned up by the received date and emptied', async (t) => {
    const fixture = await ReadingFixture.open(t);
    const site = await openSite(t, fixture);
    const now = Math.floor(Date.now() / 1000);
    for (const days of [1, 20, 100, 400]) await fixture.file(text, { at: now - days * 86_400 });
    const call = (name: string, body: object) => site.operator.json(`${home}/messages/${name}`, { json: body });
    assert.deepEqual(await call('mark-all-read', { folder: 'INBOX' }), { updated: 4 });
    assert.deepEqual(await call('mark-all-read', { folder: 'INBOX' }), { updated: 0 });
    assert.deepEqual(await call('cleanup', { folder: 'INBOX', months: 12 }), { affected: 1 });
    assert.deepEqual(await call('cleanup', { folder: 'INBOX' }), { affected: 1 });
    assert.equal(await statusOf(site, '/messages/delete-all', { json: {} }), 422);
    assert.equal(await statusOf(site, '/messages/delete-all', { json: { folder: 'none' } }), 404);
    assert.equal(await statusOf(site, '/messages/delete-all', { json: { folder: 'INBOX', expect: 3 } }), 409);
    assert.deepEqual(await call('delete-all', { folder: 'INBOX', expect: 2 }), { deleted: 2 });
    for (const months of [0, -1, 1.5, '3']) {
      assert.equal(await statusOf(site, '/messages/cleanup', { json: { folder: 'INBOX', months } }), 422);
    }
  });

  test('a raw message is filed as read or as new, within the limit and the quota', async (t) => {
    const fixture = await ReadingFixture.open(t);
    const site = await openSite(t, fixture, { quota: 40 });
    const file = (body: string | Buffer, query = '', headers = { 'Content-Type': 'message/rfc822' }) =>
      site.operator.request(`${home}/folders/INBOX/messages${query}`, { method: 'POST', body, headers });
    const filed = await file('Subject: x\n\n');
    assert.equal(filed.status, 201);
    const { id, size } = JSON.parse(filed.text) as { id: string; size: number };
    assert.equal(size, 14);
    assert.equal(filed.headers.get('location'), `${home}/folders/INBOX/messages/${encodeURIComponent(id)}`);
    assert.equal(await readFile(join(fixture.home, 'cur', `${id}:2,S`), 'latin1'), text);
    assert.equal((await file(text, '?unread=true')).status, 201);
    assert.equal((await idsOf(site, 'INBOX', '?unread=true')).length, 1);
    assert.equal((await file(text)).status, 507);
    assert.equal((await file('x'.repeat(1001))).status, 413);
    assert.equal((await file('')).status, 422);
    assert.equal((await file(text, '', { 'Content-Type': 'image/png' })).status, 415);
    assert.equal((await idsOf(site, 'INBOX')).length, 2);
  });

  test('the bar of a page works on what was chosen, or on all that match', async (t) => {
    const fixture = await ReadingFixture.open(t);
    const site = await openSite(t, fixture);
    const ids = [await fixture.file(text), await fixture.file(text), await fixture.file(text)] as const;
    const path = `${home}/folders/INBOX/selection`;
    const send = (fields: Record<string, string>, folder = path) =>
      site.operator.request(folder, { ...page, form: fields });
    const back = `${home}/folders/INBOX?unread=true`;
    const read = await send({ action: 'read', messageIds: ids[0], toFolder: '', filter: '', back });
    assert.equal(read.status, 303);
    assert.match(
      read.headers.get('location') ?? '',
      /^\/store\/example\.org\/ann\/folders\/INBOX\?unread=true&notice=/,
    );
    assert.equal((await send({ action: 'move', messageIds: ids[0], toFolder: '', filter: '' })).status, 422);
    assert.equal((await send({ action: 'delete', filter: '', toFolder: '' })).status, 422);
    assert.equal((await send({ action: 'move', filter: 'unread=true', toFolder: 'Trash', expect: '2' })).status, 303);
    assert.deepEqual(await idsOf(site, 'INBOX'), [ids[0]]);
    const trash = `${home}/folders/Trash/selection`;
    const asked = await send({ action: 'delete', filter: 'all=true', toFolder: '', expect: '2' }, trash);
    assert.match(asked.text, /Delete 2 messages of Trash permanently\?/);
    assert.match(asked.text, /name="filter" value="all=true"/);
    const confirmed = { action: 'delete', filter: 'all=true', expect: '2', confirm: 'yes' };
    assert.equal((await send(confirmed, trash)).status, 303);
    assert.deepEqual(await idsOf(site, 'Trash'), []);
  });

  test('the notice after a move or a deletion to Trash offers Undo, which moves the messages back', async (t) => {
    const fixture = await ReadingFixture.open(t);
    const site = await openSite(t, fixture);
    for (let count = 0; count < 3; count += 1) await fixture.file(text);
    const noticeOf = async (answer: { readonly status: number; readonly headers: Headers }): Promise<string> => {
      assert.equal(answer.status, 303);
      const { text: shown } = await site.operator.request(answer.headers.get('location') ?? '', page);
      return /<div class="notice">.*?<\/form>/s.exec(shown)?.[0] ?? '';
    };
    const undo = (notice: string) => {
      const fields = new URLSearchParams();
      for (const [, name = '', value = ''] of notice.matchAll(/name="(\w+)" value="([^"]*)"/g))
        fields.append(name, value);
      const headers = { 'Content-Type': 'application/x-www-form-urlencoded' };
      const action = /action="([^"]*)"/.exec(notice)?.[1] ?? '';
      return site.operator.request(action, { ...page, method: 'POST', headers, body: fields.toString() });
    };
    const path = `${home}/folders/INBOX/selection`;
    for (const [fields, there, sentence] of [
      [{ action: 'move', toFolder: 'Archive', filter: 'all=true' }, 'Archive', '3 messages moved to Archive.'],
      [{ action: 'delete', toFolder: '', filter: 'all=true' }, 'Trash', '3 messages moved to Trash.'],
    ] as const) {
      const notice = await noticeOf(await site.operator.request(path, { ...page, form: fields }));
      assert.ok(notice.includes(sentence), notice);
      assert.equal((await idsOf(site, there)).length, 3);
      const undone = await undo(notice);
      assert.match(undone.headers.get('location') ?? '', /^\/store\/example\.org\/ann\/folders\/INBOX\?notice=/);
      assert.deepEqual([(await idsOf(site, 'INBOX')).length, (await idsOf(site, there)).length], [3, 0]);
    }
    const [id = ''] = await idsOf(site, 'INBOX');
    const one = { folder: 'INBOX', messageIds: id };
    await undo(await noticeOf(await site.operator.request(`${home}/messages/delete`, { ...page, form: one })));
    assert.equal((await idsOf(site, 'INBOX')).length, 3);
    const forever = { ...one, messageIds: (await idsOf(site, 'INBOX'))[0] ?? '', permanent: 'true', confirm: 'yes' };
    assert.equal(
      await noticeOf(await site.operator.request(`${home}/messages/delete`, { ...page, form: forever })),
      '',
    );
  });

  test('nothing that a request names leads out of the mailbox', async (t) => {
    const fixture = await ReadingFixture.open(t);
    const site = await openSite(t, fixture);
    await fixture.file(text);
    const before = await readdir(fixture.root, { recursive: true });
    const names = [
      '..',
      '.',
      '../x',
      '..\\x',
      '/etc',
      '.INBOX.x',
      '~root',
      'a\0',
      'a\r\nb',
      '\u202e',
      'x'.repeat(4096),
      '',
    ];
    for (const name of names) {
      const bodies: readonly (readonly [string, object])[] = [
        ['/folders', { name }],
        ['/folders', { name: 'ok', parent: name === '' ? 'none' : name }],
        ['/folders/INBOX/copy', { newName: name === '' ? '.' : name }],
        ['/messages/move', { fromFolder: name, toFolder: 'INBOX', messageIds: ['x'] }],
        ['/messages/move', { fromFolder: 'INBOX', toFolder: name, messageIds: ['x'] }],
        ['/messages/delete', { folder: 'INBOX', messageIds: [`../${name}`] }],
        ['/messages/delete-all', { folder: name }],
      ];
      for (const [path, json] of bodies) {
        const status = await statusOf(site, path, { json });
        assert.ok([400, 404, 409, 422].includes(status), `${path} ${JSON.stringify(json)} ${status}`);
      }
    }
    const after = await readdir(fixture.root, { recursive: true });
    assert.deepEqual(after.filter((name) => !name.startsWith('.intents')).toSorted(), before.toSorted());
  });
});
