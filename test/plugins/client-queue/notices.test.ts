import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { systemClock } from '../../../core/clock.js';
import { problem } from '../../../core/problem.js';
import { queueNotes } from '../../../plugins/client-queue/delivery/relay-target.js';
import { SmtpSink } from '../../support/smtp-sink.js';
import { outboundFixture, type Enqueued, type OutboundFixtureOptions } from './outbound-fixture.js';

type Test = Parameters<typeof outboundFixture>[0];

/** Every recipient is refused for good. */
async function refusing(t: Test, given: OutboundFixtureOptions = {}) {
  const sink = await SmtpSink.start(t, { steps: { rcpt: '550 5.1.1 No such user' } });
  const fixture = await outboundFixture(t, { ...given, options: { port: sink.port } });
  return {
    ...fixture,
    /** The entry when everybody has been told who is told. */
    told: async (message: Enqueued) => {
      const { uid } = await fixture.delivered(message);
      return fixture.entryWhen(uid, ({ notices }) => notices.length === 0);
    },
  };
}

async function textOf(fixture: {
  readonly submissions: readonly { content(): AsyncIterable<Buffer> }[];
}): Promise<string> {
  const chunks: Buffer[] = [];
  const [first] = fixture.submissions;
  if (first !== undefined) for await (const chunk of first.content()) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

describe('the sender of mail that failed', () => {
  test('gets one notice of all that failed in the run, from the null reverse-path', async (t) => {
    const fixture = await refusing(t);
    const { uid } = await fixture.told({ to: ['a@one.example', 'b@two.example', 'c@two.example'] });
    assert.equal(fixture.submissions.length, 1);
    const [notice] = fixture.submissions;
    assert.deepEqual(
      [notice?.reversePath, notice?.recipients.map(({ address }) => address)],
      [null, ['anna@example.org']],
    );
    assert.match(notice?.id ?? '', new RegExp(`^${uid}-\\d`));
    assert.equal(notice?.notes?.get(queueNotes.noticeOf), uid);
    const text = await textOf(fixture);
    for (const name of ['a@one.example', 'b@two.example', 'c@two.example']) {
      assert.match(text, new RegExp(`^Final-Recipient: rfc822; ${name}\r$`, 'm'));
    }
    assert.match(text, /^Status: 5\.1\.1\r$/m);
    assert.match(text, /^Subject: hello\r$/m, 'the message comes back');
  });

  test('hears of a message that is too large for the other server from this one', async (t) => {
    const sink = await SmtpSink.start(t, { capabilities: ['SIZE 10'] });
    const fixture = await outboundFixture(t, { options: { port: sink.port } });
    const { uid } = await fixture.delivered({ to: ['a@one.example'] });
    await fixture.entryWhen(uid, ({ notices }) => notices.length === 0);
    const text = await textOf(fixture);
    assert.match(text, /^Diagnostic-Code: x-postern; 552 5\.3\.4 /m);
    assert.match(text, /The message is too large for the other server\.\r\n {4}This server says: /);
    assert.doesNotMatch(text, /^Remote-MTA/m);
  });

  test('is not told that the other server gave no reason, or has rules, when an operator returned the message', async (t) => {
    for (const status of [undefined, '5.7.1']) {
      const fixture = await outboundFixture(t);
      const uid = await fixture.enqueue({ to: ['a@one.example'] });
      const bounce = { operation: 'bounce', ...(status !== undefined && { status }) } as const;
      await fixture.queue.mutate({ uids: [uid] }, bounce, Date.now());
      await fixture.outbound.housekeep();
      const text = await textOf(fixture);
      assert.match(text, /This server says: 554 /);
      assert.doesNotMatch(text, /other server/i);
    }
  });

  test(
    'is told though the clock was put back, and others of the message still wait',
    { timeout: 10_000 },
    async (t) => {
      const clock = {
        ahead: 86_400_000,
        now: () => systemClock.now() + clock.ahead,
        monotonic: () => systemClock.monotonic(),
      };
      const fixture = await refusing(t, { clock });
      await fixture.controls.set('two.example', { suspendedUntil: Infinity }, 'ops');
      const uid = await fixture.enqueue({ to: ['a@one.example', 'b@two.example'] });
      await fixture.outbound.start();
      await fixture.entryWhen(uid, ({ notices }) => notices.length > 0);
      assert.equal(fixture.submissions.length, 0, 'both may be told of together');
      clock.ahead = 0;
      await fixture.outbound.housekeep();
      assert.equal(fixture.submissions.length, 1);
    },
  );

  test('gets the notices that it asked for: none, or some', async (t) => {
    const fixture = await refusing(t);
    const at = (address: string, notify: readonly ('never' | 'failure' | 'success')[]) => ({
      address,
      destination: 'one.example',
      notify,
    });
    await fixture.told({ to: [at('a@one.example', ['never'])] });
    assert.equal(fixture.submissions.length, 0);
    await fixture.told({ to: [at('a@one.example', ['success']), at('b@one.example', ['failure'])] });
    assert.equal(fixture.submissions.length, 1);
    assert.doesNotMatch(await textOf(fixture), /a@one\.example/);
  });

  for (const [how, header, body] of [
    ['encoded', 'Subject: hello', 'body'],
    ['cut, where a header line cannot be folded', `X-Token: ${'t'.repeat(2000)}\r\nSubject: hello`, null],
    [
      'not returned, where a signature would break',
      'Subject: hello\r\nContent-Type: multipart/signed; boundary=b',
      null,
    ],
  ] as const) {
    test(`F-I9 gets a notice without a line over 998 octets: it is ${how}`, async (t) => {
      const fixture = await refusing(t);
      const subject = 'subject '.repeat(400);
      const text = `${header}\r\nX-Long: ${subject}\r\n\r\n--b\r\n\r\n${'body '.repeat(400)}\r\n`;
      await fixture.told({ to: ['a@one.example'], message: Buffer.from(text), entry: { subject } });
      const notice = await textOf(fixture);
      assert.ok(Math.max(...notice.split('\r\n').map(({ length }) => length)) <= 998);
      assert.match(notice, /^Subject: hello\r$/m);
      assert.equal(notice.includes('body body body'), body !== null);
      assert.equal(notice.includes('Header of your message'), body === null);
    });
  }

  test('gets the header alone when he wants no more, and what he called the message', async (t) => {
    const fixture = await refusing(t);
    await fixture.told({ to: ['a@one.example'], text: 'secret', entry: { ret: 'hdrs', envelopeId: 'mine 1' } });
    const text = await textOf(fixture);
    assert.match(text, /^Content-Type: text\/rfc822-headers\r$/m);
    assert.match(text, /^Original-Envelope-Id: mine 1\r$/m);
    assert.equal(text.match(/^secret\r$/m), null);
  });

  test('hears of an international recipient by the name that he gave him', async (t) => {
    const fixture = await refusing(t);
    const to = [
      { address: 'a@one.example', destination: 'one.example', originalRecipient: 'utf-8;j\\x{FC}rgen@x.example' },
    ];
    await fixture.told({ to, sender: 'jörg@example.org', entry: { smtputf8: true } });
    assert.match(await textOf(fixture), /^Original-Recipient: utf-8; jürgen@x\.example\r$/m);
  });

  for (const [title, header, sender] of [
    ['is a program', 'Auto-Submitted: auto-generated', 'cron@example.org'],
    ['has sent a report', 'Content-Type: multipart/report; boundary=x', 'anna@example.org'],
    ['wants no automatic answers', 'X-Auto-Response-Suppress: All', 'anna@example.org'],
    ['is a mailer daemon', 'X-Nothing: else', 'MAILER-DAEMON@example.org'],
  ] as const) {
    test(`is not emitted when it ${title}`, async (t) => {
      const fixture = await refusing(t);
      const entry = await fixture.told({ to: ['a@one.example'], sender, text: `hello\r\n${header}` });
      assert.equal(entry.state, 'bounced');
      assert.equal(fixture.submissions.length, 0);
    });
  }
});

describe('what cannot be told to anybody', () => {
  test('a bounce of a bounce is held for an operator, and makes no further mail', async (t) => {
    const fixture = await refusing(t);
    const entry = await fixture.told({ to: ['a@one.example'], sender: null, entry: { noticeOf: 'other' } });
    assert.deepEqual([entry.state, fixture.submissions.length], ['held', 0]);
    assert.match(entry.hold ?? '', /notice of failure/);
  });

  test('a loop ends with an operator', async (t) => {
    const fixture = await refusing(t);
    const visits = 'Received: from x by mail.example.org; now\r\n'.repeat(4);
    const entry = await fixture.told({ to: ['a@one.example'], text: `hello\r\n${visits}X: y` });
    assert.deepEqual([entry.state, fixture.submissions.length], ['held', 0]);
    assert.match(entry.hold ?? '', /mail loop: it has been here 4 times/);
  });

  test('a notice that no server accepts is held under its own uid', async (t) => {
    let tries = 0;
    const fixture = await refusing(t, {
      submit: ({ hop }) => {
        tries += 1;
        return hop === undefined ? Promise.reject(problem('invalid', 'No such user')) : Promise.resolve();
      },
    });
    const { uid } = await fixture.told({ to: ['a@one.example'] });
    assert.equal(tries, 2);
    const [, held] = fixture.submissions;
    assert.equal(held?.id, `${uid}-1`);
    const [sender] = held?.recipients ?? [];
    assert.ok(sender);
    assert.deepEqual(held?.hop?.(sender).target, 'hold');
  });
});

test('a notice that cannot be handed in now is handed in later, under the same id', async (t) => {
  let isFull = true;
  const fixture = await refusing(t, {
    submit: () => (isFull ? Promise.reject(problem('storage-full')) : Promise.resolve()),
  });
  const { uid } = await fixture.delivered({ to: ['a@one.example'] });
  await fixture.outbound.housekeep();
  assert.equal((await fixture.queue.find(uid))?.notices.length, 1);
  isFull = false;
  await fixture.outbound.housekeep();
  assert.equal((await fixture.queue.find(uid))?.notices.length, 0);
  assert.deepEqual(new Set(fixture.submissions.map(({ id }) => id)), new Set([`${uid}-1`]));
});

test('notices that cannot be sent now keep no other sender waiting', async (t) => {
  const fixture = await outboundFixture(t, {
    submit: ({ recipients: [to] }) =>
      to?.local === 'full' ? Promise.reject(problem('storage-full')) : Promise.resolve(),
  });
  const stuck = Array.from({ length: 450 }, () =>
    fixture.enqueue({ to: ['a@one.example'], sender: 'full@example.org' }),
  );
  const uids = [...(await Promise.all(stuck)), await fixture.enqueue({ to: ['a@one.example'] })];
  await fixture.queue.mutate({ uids }, { operation: 'bounce' }, Date.now());
  await fixture.outbound.housekeep();
  assert.equal((await fixture.queue.find(uids.at(-1) ?? ''))?.notices.length, 0);
  assert.equal((await fixture.queue.notices(1000)).length, 450);
});

test('success is reported where requested, unless the next server does it', async (t) => {
  const deaf = await SmtpSink.start(t, { capabilities: ['PIPELINING'] });
  const fixture = await outboundFixture(t, { options: { port: deaf.port } });
  const wish = { notify: ['success'] as const, originalRecipient: 'rfc822;Ann+2Bx@one.example' };
  const to = [{ address: 'a@one.example', destination: 'one.example', ...wish }];
  const { uid } = await fixture.delivered({ to });
  await fixture.entryWhen(uid, ({ notices }) => notices.length === 0);
  assert.match(await textOf(fixture), /^Action: relayed\r$/m);
  assert.match(await textOf(fixture), /^Original-Recipient: rfc822; Ann\+x@one\.example\r$/m);

  const knowing = await SmtpSink.start(t, { capabilities: ['DSN', 'PIPELINING'] });
  const other = await outboundFixture(t, { options: { port: knowing.port } });
  const entry = await other.delivered({ to, entry: { ret: 'full', envelopeId: 'e1' } });
  assert.deepEqual([entry.notices.length, other.submissions.length], [0, 0]);
  assert.match(
    knowing.messages[0]?.envelope.join('\n') ?? '',
    /RET=FULL ENVID=e1[^]*NOTIFY=SUCCESS ORCPT=rfc822;Ann\+2Bx@one\.example/,
  );
});

test('housekeeping and notices wait for the server that has the duty', async (t) => {
  const own = new Set<string>();
  const fixture = await refusing(t, { duties: { has: (name) => own.has(name) } });
  const { uid } = await fixture.delivered({ to: ['a@one.example'] });
  await fixture.entryWhen(uid, ({ notices }) => notices.length > 0);
  await fixture.controls.set('two.example', { suspendedUntil: Infinity }, 'ops');
  const held = await fixture.enqueue({ to: ['b@two.example'] });
  await fixture.queue.mutate({ uids: [held] }, { operation: 'hold', until: 1 }, 0);
  const stateOf = async () => (await fixture.queue.find(held))?.recipients[0]?.state;
  await fixture.outbound.housekeep();
  assert.equal(await stateOf(), 'held');
  own.add('queue.housekeeping');
  await fixture.outbound.housekeep();
  assert.equal(await stateOf(), 'queued');
  assert.equal(fixture.submissions.length, 0);
  own.add('queue.notices');
  await fixture.outbound.housekeep();
  assert.deepEqual(
    fixture.submissions.map(({ fresh }) => fresh),
    [false],
    'another server may have sent it already',
  );
});
