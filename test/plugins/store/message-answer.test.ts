import assert from 'node:assert/strict';
import { before, suite, test } from 'node:test';
import { lines } from '../../support/delivery.js';
import { suiteEnding } from '../../support/ending.js';
import type { HttpClient } from '../../support/http-client.js';
import { type InProcessServer, startInProcess } from '../../support/in-process-server.js';

interface Draft {
  readonly draftId: string;
  readonly to: readonly { readonly name: string; readonly address: string }[];
  readonly cc: readonly { readonly address: string }[];
  readonly subject: string;
  readonly text: string;
  readonly html: string | null;
  readonly inReplyTo: string | null;
  readonly references: readonly string[];
  readonly attachments: readonly { readonly attachmentId: string; readonly filename: string; readonly size: number }[];
}

const store = '/store/localhost/postmaster';

suite('a message is answered', () => {
  const ending = suiteEnding();
  let server: InProcessServer;
  let admin: HttpClient;
  before(async () => {
    server = await startInProcess(ending);
    admin = server.admin;
  });

  /** Files a message and begins a draft from it. */
  async function answer(as: string, text: string, folder = 'INBOX'): Promise<Draft> {
    const headers = { 'Content-Type': 'message/rfc822' };
    const path = `${store}/folders/${folder}/messages`;
    const { id } = (await admin.json(path, { body: text, headers }, 201)) as { id: string };
    const made = await admin.request(`${path}/${encodeURIComponent(id)}/draft`, { json: { as } });
    assert.equal(made.status, 201, made.text);
    const draft = JSON.parse(made.text) as Draft;
    assert.equal(made.headers.get('location'), `${store}/drafts/${draft.draftId}`);
    return draft;
  }
  const addresses = (people: readonly { readonly address: string }[]) => people.map(({ address }) => address);

  const letter = lines(
    'From: "Doe, Ann" <ann@example.org>',
    'To: postmaster@localhost, Bob <bob@example.net>',
    'Cc: cy@example.net, ANN@example.org, not an address',
    'Subject: =?utf-8?q?H=C3=A9llo?=',
    'Date: Sat, 21 Nov 2026 01:02:03 +0100',
    'Message-ID: <two@example.org>',
    'In-Reply-To: <one@example.org>',
    'References: <zero@example.org> <one@example.org>',
    '',
    'first line',
    '',
    '> quoted before',
    '',
  );

  test('a reply goes to its sender, quotes it and belongs to its thread', async () => {
    const draft = await answer('reply', letter);
    assert.deepEqual(draft.to, [{ name: 'Doe, Ann', address: 'ann@example.org' }]);
    assert.deepEqual(draft.cc, []);
    assert.equal(draft.subject, 'Re: Héllo');
    assert.equal(draft.inReplyTo, '<two@example.org>');
    assert.deepEqual(draft.references, ['<zero@example.org>', '<one@example.org>', '<two@example.org>']);
    assert.equal(
      draft.text,
      '\n\nOn Sat, 21 Nov 2026 00:02:03 +0000, "Doe, Ann" <ann@example.org> wrote:\n> first line\n>\n>> quoted before\n',
    );
  });

  test('a reply to all goes to everybody else, once, and not to the owner of the mailbox', async () => {
    const draft = await answer('reply-all', letter);
    assert.deepEqual(addresses(draft.to), ['ann@example.org']);
    assert.deepEqual(addresses(draft.cc), ['bob@example.net', 'cy@example.net']);
  });

  test('a reply finds the addresses that obsolete and quoted forms write, and they are kept', async () => {
    const obsolete = lines(
      'From: Pete(A nice \\) chap) <pete(his account)@silly.test(his host)>',
      'To:A Group(Some people)',
      "     :Chris Jones <c@(Chris's host.)public.example>,",
      '         joe@example.org,',
      '  John <jdoe@one.test> (my dear friend); (the end of the group)',
      'Cc: Mary Smith <@node.test:mary@example.net>, , jdoe@test  . example, "a b"@example.org',
      'Date: Thu,',
      '      13',
      '        Feb',
      '          1969',
      '      23(comment):   32',
      '               -0330 (Newfoundland Time)',
      'Message-ID:              <testabcd.1234@silly.test>',
      '',
      'Testing.',
    );
    const draft = await answer('reply-all', obsolete);
    assert.deepEqual(draft.to, [{ name: 'Pete', address: 'pete@silly.test' }]);
    const others = [
      'c@public.example',
      'joe@example.org',
      'jdoe@one.test',
      'mary@example.net',
      'jdoe@test.example',
      '"a b"@example.org',
    ];
    assert.deepEqual(addresses(draft.cc), others);
    assert.match(draft.text, /^\n\nOn Fri, 14 Feb 1969 03:02:00 \+0000, Pete <pete@silly.test> wrote:/);
    const again = (await admin.json(`${store}/drafts/${draft.draftId}`)) as Draft;
    assert.deepEqual(addresses(again.cc), others);
  });

  test('thousands of recipients in many fields are read in slices, as many as are taken at all (F-R22)', async () => {
    const field = (n: number) => `To: ${Array.from({ length: 6000 }, (_, i) => `p${n}.${i}@e.example`).join(',\r\n ')}`;
    const many = lines('From: ann@example.org', ...Array.from({ length: 10 }, (_, n) => field(n)), '', 'x');
    const headers = { 'Content-Type': 'message/rfc822' };
    const path = `${store}/folders/INBOX/messages`;
    const { id } = (await admin.json(path, { body: many, headers }, 201)) as { id: string };
    const message = `${path}/${encodeURIComponent(id)}`;
    let longest = 0;
    let last = performance.now();
    const watch = setInterval(() => {
      longest = Math.max(longest, performance.now() - last);
      last = performance.now();
    }, 1);
    try {
      const { to } = (await admin.json(message)) as Pick<Draft, 'to'>;
      assert.equal(to.length, 10_000);
      const page = await admin.request(message, { accept: 'text/html' });
      assert.match(page.text, /and 9,980 more/);
      const { text } = await admin.request(`${message}/draft`, { json: { as: 'reply-all' } });
      assert.equal((JSON.parse(text) as Draft).cc.length, 10_000);
    } finally {
      clearInterval(watch);
    }
    assert.ok(longest < 400, `the event loop stood still for ${longest} ms`);
  });

  test('a reply goes to Reply-To', async () => {
    const text = lines(
      'From: list@example.org',
      'Reply-To: ann@example.org, bob@example.org',
      'Subject: Re: x',
      '',
      'x',
    );
    const draft = await answer('reply', text);
    assert.deepEqual(addresses(draft.to), ['ann@example.org', 'bob@example.org']);
    assert.equal(draft.subject, 'Re: x');
    assert.deepEqual([draft.inReplyTo, draft.references], [null, []]);
  });

  test("a reply to one's own message goes to the same people", async () => {
    const text = lines('From: postmaster@localhost', 'To: ann@example.org', 'Cc: bob@example.org', '', 'x');
    const draft = await answer('reply-all', text, 'Sent');
    assert.deepEqual([addresses(draft.to), addresses(draft.cc)], [['ann@example.org'], ['bob@example.org']]);
  });

  test('a forwarded message says whose it was, and has the attachments byte by byte', async () => {
    const bytes = Buffer.from(Array.from({ length: 1000 }, (_, n) => n % 256));
    const part = (...head: readonly string[]) => ['--b', ...head];
    const text = lines(
      'From: ann@example.org',
      'To: postmaster@localhost',
      'Subject: pictures',
      'Message-ID: <p@example.org>',
      'Content-Type: multipart/mixed; boundary=b',
      '',
      ...part('Content-Type: text/plain', '', 'see below'),
      ...part('Content-Type: application/pdf', 'Content-Disposition: attachment; filename="a b.pdf"'),
      'Content-Transfer-Encoding: base64',
      '',
      bytes.toString('base64').replace(/.{76}/g, '$&\r\n'),
      ...part('Content-Type: message/rfc822', '', 'Subject: inner', '', 'inner text'),
      '--b--',
    );
    const draft = await answer('forward', text);
    assert.deepEqual([draft.to, draft.inReplyTo, draft.references], [[], null, ['<p@example.org>']]);
    assert.equal(draft.subject, 'Fwd: pictures');
    assert.match(
      draft.text,
      /Forwarded message -+\nFrom: ann@example\.org\nSubject: pictures\nTo: postmaster@localhost\n\nsee below\n$/,
    );
    const [file, inner] = draft.attachments;
    assert.deepEqual([draft.attachments.length, file?.filename, file?.size], [2, 'a b.pdf', 1000]);
    const path = `${store}/drafts/${draft.draftId}`;
    assert.deepEqual((await admin.request(`${path}/attachments/${file?.attachmentId}`)).bytes, bytes);
    assert.match(
      (await admin.request(`${path}/attachments/${inner?.attachmentId}`)).text,
      /^Subject: inner\r\n\r\ninner text/,
    );
    await admin.json(`${path}/send`, { json: { to: 'postmaster@localhost', subject: 'sent on' } }, 202);
  });

  test('a message of which not all can be quoted is forwarded whole', async () => {
    const long = `${'words '.repeat(12)}\r\n`.repeat(4000);
    const draft = await answer('forward', lines('From: ann@example.org', 'Content-Type: text/plain', '', long));
    assert.deepEqual(
      draft.attachments.map(({ filename }) => filename),
      ['forwarded.eml'],
    );
    assert.ok((draft.attachments[0]?.size ?? 0) > long.length);
  });

  test('of a message that has only HTML the words are quoted, line by line', async () => {
    const html = '<style>x</style><p>one&nbsp;&amp; two</p>\r\n<div>three<br>four</div><script>alert(1)</script>';
    const { text, html: none } = await answer(
      'reply',
      lines('From: ann@example.org', 'Content-Type: text/html', '', html),
    );
    assert.match(text, /\n> one & two\n(?:>\n)?> three\n> four\n$/);
    assert.equal(none, null);
  });

  test('a message of odd fields can be answered, and none of them breaks the draft', async () => {
    const text = lines(
      'From: =?utf-8?q?a=0D=0ABcc:_eve@evil.example?= <ann@example.org>',
      `Subject: =?utf-8?q?x=0D=0ABcc:_eve@evil.example?= ${'long '.repeat(1000)}`,
      'Message-ID: <not an id>',
      `References: ${'<r@example.org> '.repeat(300)}`,
      'Date: never',
      '',
      'x\u0000y',
    );
    const draft = await answer('reply', text.replace('\0', ''));
    const { bytes } = await admin.request(`${store}/drafts/${draft.draftId}`);
    assert.doesNotMatch(bytes.toString(), /"bcc":\[\{/);
    assert.deepEqual([draft.inReplyTo, draft.references.length], [null, 50]);
    await admin.json(`${store}/drafts/${draft.draftId}`, {
      method: 'PUT',
      json: { subject: draft.subject, to: draft.to },
    });
  });

  test('a message that is not there and a way that is none are refused', async () => {
    const path = `${store}/folders/INBOX/messages`;
    assert.equal((await admin.request(`${path}/1.none.host/draft`, { json: { as: 'reply' } })).status, 404);
    assert.equal((await admin.request(`${path}/1.none.host/draft`, { json: { as: 'bounce' } })).status, 422);
    assert.equal((await admin.request(`${path}/1.none.host/draft`, { json: {} })).status, 422);
  });
});
