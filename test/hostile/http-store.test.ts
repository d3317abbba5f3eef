import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { statusOf } from '../core/http/raw-exchange.js';
import { payloads } from '../plugins/store/xss-payloads.js';
import { suiteEnding } from '../support/ending.js';
import { bodyOf, HttpFixture, json } from './http-fixture.js';

const suite = suiteEnding();
const mailbox = '/store/localhost/postmaster';
const drafts = `${mailbox}/drafts`;
const inbox = `${mailbox}/folders/INBOX`;

/** Fields of a draft that would add a line to its header, or a recipient to those that were checked. */
const injections: Readonly<Record<string, object>> = {
  'a line end in the subject': { subject: 'a\r\nBcc: eve@evil.example' },
  'a line feed in the subject': { subject: 'a\nBcc: eve@evil.example' },
  'a line separator in the subject': { subject: 'a\u2028Bcc: eve@evil.example' },
  'a line end in From': { from: 'Ann\r\nX-Evil: y <ann@example.org>' },
  'a line end in the name of From': { from: { name: 'Ann\r\nX-Evil: y', address: 'ann@example.org' } },
  'a line end in To': { to: ['ann@example.org\r\nBcc: eve@evil.example'] },
  'a line end in Cc': { cc: 'ann@example.org\r\nX-Evil: y' },
  'a line end in Bcc': { bcc: 'ann@example.org\nX-Evil: y' },
  'a line end in In-Reply-To': { inReplyTo: '<a@b>\r\nX-Evil: y' },
  'a line end in References': { references: ['<a@b>\r\nX-Evil: y'] },
  'a header map': { headers: { 'X-Evil': 'y\r\nX-More: z' } },
  'a reply address': { replyTo: 'ann@example.org\r\nX-Evil: y' },
  'a message id': { messageId: '<a@b>\r\nX-Evil: y' },
  'a path to a file': { attachments: [{ path: '/etc/passwd' }] },
  'a file as HTML': { html: { path: '/etc/passwd' } },
  'a URL as text': { text: { href: 'http://127.0.0.1/' } },
};

const recipients: Readonly<Record<string, unknown>> = {
  'an angle bracket': 'ann@example.org>, <eve@evil.example',
  'a comma in one of a list': ['ann@example.org, eve@evil.example'],
  'a group': 'team: ann@example.org, eve@evil.example;',
  '5,000 groups in each other': 'g:'.repeat(5000),
  '60,000 of them': Array.from({ length: 60_000 }, () => 'a@b.example'),
  '20,000 in one text': 'a@b.example,'.repeat(20_000),
  'a quoted address at another domain': '"a@x.example"@y.example@z.example',
  'a list in a list': [['ann@example.org']],
  'a right-to-left mark': 'ann\u202e@example.org',
  NUL: 'ann\0@example.org',
};

interface Made {
  readonly draftId: string;
}

describe('what is written into mailboxes of the whole server', () => {
  let fixture: HttpFixture;
  let draftId: string;
  before(async () => {
    fixture = await HttpFixture.start(suite, { smtp: { limits: { messageBytes: 1_000_000 } } });
    draftId = (JSON.parse(bodyOf(await post(drafts, { subject: 'before' }))) as Made).draftId;
  });

  const post = (path: string, body: unknown, method = 'POST') =>
    fixture.ask(method, path, { headers: json, body: Buffer.from(JSON.stringify(body)).toString('latin1') });
  const raw = (path: string, body: string, type: string, method = 'POST') =>
    fixture.ask(method, path, { headers: [`Content-Type: ${type}`], body });
  const leftovers = async () => {
    const data = join(fixture.server.folder, 'data');
    return [...(await readdir(join(data, 'drafts'))), ...(await readdir(join(data, 'uploads')))];
  };

  for (const [name, body] of Object.entries(injections)) {
    test(`H07 ${name} is refused, and nothing of it is stripped and stored`, async () => {
      const tree = await fixture.tree();
      assert.equal(statusOf(await post(drafts, body)), 422);
      assert.equal(statusOf(await post(`${drafts}/${draftId}`, body, 'PUT')), 422);
      assert.equal(statusOf(await post(`${drafts}/${draftId}/send`, body)), 422);
      assert.equal(await fixture.tree(), tree);
    });
  }

  for (const [name, to] of Object.entries(recipients)) {
    test(`H08 recipients with ${name} are refused, and soon`, async () => {
      const tree = await fixture.tree();
      const started = process.cpuUsage();
      assert.ok([413, 422].includes(statusOf(await post(drafts, { to }))));
      const { user } = process.cpuUsage(started);
      assert.ok(user < 1_000_000, `${user} µs`);
      assert.equal(await fixture.tree(), tree);
    });
  }

  test('H07 H13 names and types of attachments that would break a field are refused', async () => {
    const tree = await fixture.tree();
    const attachments = `${drafts}/${draftId}/attachments`;
    for (const name of [
      'a%0d%0aX-Evil: y',
      'a%0ab',
      'a%00b',
      'a%e2%80%aetxt.exe',
      '..',
      '%2e%2e%2f',
      'x'.repeat(300),
    ]) {
      const answer = await raw(`${attachments}?filename=${name.replaceAll(' ', '%20')}`, 'x', 'text/html');
      assert.ok([400, 422].includes(statusOf(answer)), `${name}: ${answer.slice(0, 200)}`);
    }
    assert.equal(await fixture.tree(), tree);
  });

  const emptyMultipart = 'multipart/form-data; boundary=b';
  const part = (name: string, body: string) =>
    `--b\r\nContent-Disposition: form-data; name="files"; filename="${name}"\r\nContent-Type: a/b\r\n\r\n${body}\r\n`;
  const uploads: Readonly<Record<string, readonly [path: () => string, type: string, body: string]>> = {
    'an empty message for a folder': [() => `${inbox}/messages`, 'message/rfc822', ''],
    'an empty message for a draft': [() => drafts, 'message/rfc822', ''],
    'a message with a NUL for a folder': [() => `${inbox}/messages`, 'message/rfc822', 'Subject: a\0b\r\n\r\n'],
    'a message with a NUL for a draft': [() => drafts, 'message/rfc822', 'Subject: a\0b\r\n\r\n'],
    'a message of another type': [() => `${inbox}/messages`, 'image/png', 'x'],
    'a form with another boundary': [() => `${drafts}/${draftId}/attachments`, emptyMultipart, '--c\r\n\r\nx\r\n'],
    'a form that is cut': [() => `${drafts}/${draftId}/attachments`, emptyMultipart, part('a', 'x')],
    'a form of 10,000 files': [
      () => `${drafts}/${draftId}/attachments`,
      emptyMultipart,
      `${part('a', 'x').repeat(10_000)}--b--\r\n`,
    ],
    'a file whose name has a NUL': [
      () => `${drafts}/${draftId}/attachments`,
      emptyMultipart,
      `${part('a\0b', 'x')}--b--\r\n`,
    ],
  };
  for (const [name, [path, type, body]] of Object.entries(uploads)) {
    test(`H12 ${name} is refused, and nothing of it stays`, async () => {
      const tree = await fixture.tree();
      const answer = await raw(path(), body, type);
      assert.ok([400, 413, 415, 422].includes(statusOf(answer)), answer.slice(0, 300));
      assert.equal(await fixture.tree(), tree);
      assert.deepEqual(await leftovers(), []);
    });
  }

  test('H12 a message that is too large is 413 before it is sent, and an endless one when it has become so', async () => {
    const type = 'Content-Type: message/rfc822';
    const chunks = `ffff\r\n${'x'.repeat(0xffff)}\r\n`.repeat(20);
    for (const path of [`${inbox}/messages`, drafts, `${drafts}/${draftId}/attachments?filename=x`]) {
      const declared = await fixture.ask('POST', path, { headers: [type, 'Content-Length: 99999999999'], body: 'x' });
      assert.equal(statusOf(declared), 413, path);
      const endless = await fixture.ask('POST', path, { headers: [type, 'Transfer-Encoding: chunked'], body: chunks });
      assert.equal(statusOf(endless), 413, path);
    }
    assert.deepEqual(await leftovers(), []);
  });

  test('H12 paths in the names of files are never used', async () => {
    const tree = join(fixture.server.folder, 'data', 'x');
    const body = `${part('../../x', 'evil')}${part('/etc/x', 'evil')}${part('..\\\\x', 'evil')}--b--\r\n`;
    const answer = await raw(`${drafts}/${draftId}/attachments`, body, emptyMultipart);
    assert.equal(statusOf(answer), 201, answer);
    const { attachments } = JSON.parse(bodyOf(answer)) as { attachments: readonly { filename: string }[] };
    assert.ok(attachments.every(({ filename }) => filename === 'x'));
    await assert.rejects(readdir(tree), { code: 'ENOENT' });
    assert.deepEqual(await leftovers(), []);
  });

  test('H12 a raw message is filed as it is, whatever it holds', async () => {
    for (const payload of payloads.filter((text) => !text.includes('\0')).slice(0, 10)) {
      const text = `Subject: ${payload.replace(/[\r\n]/g, ' ')}\r\n\r\n${payload.replace(/\r?\n|\r/g, '\r\n')}\r\n`;
      const answer = await raw(`${inbox}/messages`, Buffer.from(text).toString('latin1'), 'message/rfc822');
      assert.equal(statusOf(answer), 201, answer);
      const place = /\r\nLocation: (\S+)/i.exec(answer)?.[1] ?? '';
      assert.match(place, /^\/store\/localhost\/postmaster\/folders\/INBOX\/messages\/[\w.%=-]+$/);
      const stored = await fixture.ask('GET', place, { headers: ['Accept: message/rfc822'] });
      assert.equal(bodyOf(stored), Buffer.from(text).toString('latin1'));
    }
  });

  const names = ['INBOX', 'inbox', 'cur', '..', '.', 'a.b', 'a/b', '~x', '', ' ', 'x\u202ey', 'a\0b', 'Sent', 'sent'];
  test('H06 folders are not made with names that are taken, reserved or none', async () => {
    const tree = await fixture.tree();
    for (const name of [...names, 'x'.repeat(300), 'e\u0301'.repeat(120)]) {
      const status = statusOf(await post(`${mailbox}/folders`, { name }));
      if (status === 201) {
        // What other programs keep in folders of their own is only a name among the mailbox's.
        assert.ok(['cur', 'Sent'].includes(name), name);
        assert.equal(statusOf(await fixture.ask('DELETE', `${mailbox}/folders/${name}`)), name === 'cur' ? 200 : 403);
      } else assert.ok([400, 409, 422].includes(status), `${JSON.stringify(name)}: ${status}`);
    }
    assert.notEqual(tree, '');
  });

  test('H06 a folder is not moved into itself nor onto another, and special ones stay', async () => {
    for (const name of ['One', 'Two']) assert.equal(statusOf(await post(`${mailbox}/folders`, { name })), 201);
    assert.equal(statusOf(await post(`${mailbox}/folders`, { name: 'Child', parent: 'One' })), 201);
    const tree = await fixture.tree();
    const folders = `${mailbox}/folders`;
    const attempts: readonly (readonly [path: string, body: object, method?: string])[] = [
      ['One/move', { destinationParent: 'One' }],
      ['One/move', { destinationParent: 'One.Child' }],
      ['One/copy', { destinationParent: 'One.Child' }],
      ['One', { name: 'Two' }, 'PATCH'],
      ['One', { name: 'two' }, 'PATCH'],
      ['INBOX', { name: 'Other' }, 'PATCH'],
      ['Sent', { name: 'Other' }, 'PATCH'],
      ['INBOX/move', { destinationParent: 'One' }],
      ['One/move', { destinationParent: '../..' }],
      ['One/copy', { newName: '../..' }],
    ];
    for (const [path, body, method] of attempts) {
      const status = statusOf(await post(`${folders}/${path}`, body, method));
      assert.ok([400, 403, 404, 409, 422].includes(status), `${path} ${JSON.stringify(body)}: ${status}`);
    }
    for (const name of ['INBOX', 'One']) {
      const status = statusOf(await fixture.ask('DELETE', `${folders}/${name}`, { headers: json, body: '{}' }));
      assert.ok([403, 409].includes(status), `${name}: ${status}`);
    }
    assert.equal(await fixture.tree(), tree);
  });

  const bulk: Readonly<Record<string, object>> = {
    'messages/move': { fromFolder: 'INBOX', toFolder: 'Archive' },
    'messages/delete': { folder: 'INBOX' },
    'messages/read-status': { folder: 'INBOX', action: 'read' },
    'messages/flag-status': { folder: 'INBOX', action: 'flag' },
    'folders/INBOX/selection': { action: 'read' },
  };
  for (const [path, body] of Object.entries(bulk)) {
    test(`H32 a million ids, odd ids and no ids at ${path} change nothing`, async () => {
      const tree = await fixture.tree();
      const million = ['Content-Length: 4000000', ...json];
      assert.equal(statusOf(await fixture.ask('POST', `${mailbox}/${path}`, { headers: million, body: '{"' })), 413);
      const selectors: readonly (readonly [selector: object, status: number])[] = [
        [{ messageIds: Array.from({ length: 10_001 }, (_, n) => `${n}.x`) }, 413],
        [{ messageIds: [] }, 422],
        [{ messageIds: ['../../x'] }, 422],
        [{ messageIds: ['a\0b'] }, 422],
        [{ messageIds: [['x']] }, 422],
        [{ messageIds: [null] }, 422],
        [{ messageIds: 'all', filter: { all: true } }, 422],
        [{}, 422],
        [{ filter: {} }, 422],
        [{ filter: { al: true } }, 422],
        [{ filter: { all: false } }, 422],
        [{ filter: { all: true, q: 'x' } }, 422],
        [{ ids: ['x'] }, 422],
      ];
      for (const [selector, status] of selectors) {
        const answer = await post(`${mailbox}/${path}`, { ...body, ...selector });
        assert.equal(statusOf(answer), status, `${JSON.stringify(selector).slice(0, 100)}: ${answer.slice(-300)}`);
      }
      assert.equal(await fixture.tree(), tree);
    });
  }

  test('H32 of known, unknown and doubled ids each is done once, and the unknown ones are named', async () => {
    const filed = await raw(`${inbox}/messages`, 'Subject: one\r\n\r\n', 'message/rfc822');
    const { id } = JSON.parse(bodyOf(filed)) as { id: string };
    const answer = await post(`${mailbox}/messages/move`, {
      fromFolder: 'INBOX',
      toFolder: 'Archive',
      messageIds: [id, '1.unknown.host', id, '__proto__'],
    });
    const { moved, notFound, newIds } = JSON.parse(bodyOf(answer)) as {
      moved: number;
      notFound: readonly string[];
      newIds: Readonly<Record<string, string>>;
    };
    assert.deepEqual([moved, notFound, Object.keys(newIds)], [1, ['1.unknown.host', '__proto__'], [id]]);
  });

  test('H37 a hundred changes and attachments of one draft at once lose nothing, and it is discarded once', async () => {
    const made = JSON.parse(bodyOf(await post(drafts, { subject: 'race' }))) as Made;
    const path = `${drafts}/${made.draftId}`;
    const { admin } = fixture.server;
    const headers = { 'Content-Type': 'application/octet-stream' };
    const tasks = Array.from({ length: 100 }, (_, n) =>
      n % 2 === 0
        ? admin.request(`${path}/attachments?filename=f${n}`, { body: String(n), headers })
        : admin.request(path, { method: 'PUT', json: { subject: `race ${n}` } }),
    );
    const statuses = (await Promise.all(tasks)).map(({ status }) => status);
    assert.deepEqual(
      statuses.filter((status, n) => status !== (n % 2 === 0 ? 201 : 200)),
      [],
    );
    const after = JSON.parse(bodyOf(await fixture.ask('GET', path))) as {
      attachments: readonly { filename: string }[];
    };
    const expected = Array.from({ length: 50 }, (_, n) => `f${n * 2}`);
    assert.deepEqual(after.attachments.map(({ filename }) => filename).toSorted(), expected.toSorted());
    const gone = await Promise.all(Array.from({ length: 5 }, () => fixture.ask('DELETE', path)));
    assert.deepEqual(
      gone.map(statusOf).toSorted((a, b) => a - b),
      [200, 404, 404, 404, 404],
    );
    assert.deepEqual(await leftovers(), []);
  });

  test('H37 the same key twice makes one draft, and another payload under it is 422', async () => {
    const keyed = (body: string) => fixture.ask('POST', drafts, { headers: [...json, 'Idempotency-Key: same'], body });
    const answers = await Promise.all(Array.from({ length: 5 }, () => keyed('{"subject":"once"}')));
    assert.ok(answers.every((answer) => [201, 409].includes(statusOf(answer))));
    const ids = answers
      .filter((answer) => statusOf(answer) === 201)
      .map((a) => (JSON.parse(bodyOf(a)) as Made).draftId);
    assert.equal(new Set(ids).size, 1);
    assert.equal(statusOf(await keyed('{"subject":"other"}')), 422);
  });
});
