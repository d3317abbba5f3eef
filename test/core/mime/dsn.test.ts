import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { describe, test } from 'node:test';
import { composeDsn, type DsnInput } from '../../../plugins/client-queue/dsn/dsn.js';

const original = Buffer.from('From: anna@example.org\r\nSubject: hello\r\nMessage-ID: <1@example.org>\r\n\r\n');

const input: DsnInput = {
  reportingMta: 'mail.example.org',
  from: 'mailer-daemon@mail.example.org',
  to: 'anna@example.org',
  date: new Date('2026-11-21T12:00:00Z'),
  messageId: '<q1-1@mail.example.org>',
  boundary: '=_b',
  arrival: new Date('2026-11-21T11:00:00Z'),
  envelopeId: 'env 1',
  recipients: [
    {
      address: 'bob@example.net',
      originalRecipient: 'rfc822;Bob+2Bx@example.net',
      action: 'failed',
      status: '5.1.1',
      diagnostic: '550 5.1.1 No such user',
      host: 'mx.example.net',
      lastAttempt: new Date('2026-11-21T11:30:00Z'),
    },
    {
      address: 'eve@example.com',
      action: 'failed',
      status: '5.4.7',
      diagnostic: '451 5.4.7 Tried for 5 days\r\nX-Evil: 1',
      host: null,
      lastAttempt: null,
    },
  ],
  subject: 'hello',
  originalMessageId: '<1@example.org>',
  returned: original,
  returnedWhole: false,
};

/** What Python's email package, which shares no code with this one, reads. */
const reader = `
import sys, json, email
from email import policy
m = email.message_from_bytes(sys.stdin.buffer.read(), policy=policy.default)
parts = list(m.iter_parts())
status = [[list(h) for h in block.items()] for block in parts[1].get_payload()]
print(json.dumps({
  'type': m.get_content_type(), 'report': m['content-type'].params.get('report-type'),
  'headers': [[k, str(v)] for k, v in m.items()],
  'parts': [p.get_content_type() for p in parts],
  'text': parts[0].get_content(), 'status': status, 'defects': [str(d) for p in m.walk() for d in p.defects],
  'last': parts[2].as_bytes().decode('utf-8', 'replace')}))
`;

interface Read {
  readonly type: string;
  readonly report: string;
  readonly headers: readonly (readonly [string, string])[];
  readonly parts: readonly string[];
  readonly text: string;
  readonly status: readonly (readonly (readonly [string, string])[])[];
  readonly defects: readonly string[];
  readonly last: string;
}

function read(message: Buffer): Read {
  const { stdout, stderr, status } = spawnSync('python3', ['-c', reader], { input: message, encoding: 'utf8' });
  assert.equal(status, 0, stderr);
  return JSON.parse(stdout) as Read;
}

describe('a notice, as another reader reads it', async () => {
  const dsn = read(await composeDsn(input));
  const header = new Map(dsn.headers.map(([name, value]) => [name.toLowerCase(), value]));

  test('is a report of three parts without a defect', () => {
    assert.deepEqual([dsn.type, dsn.report], ['multipart/report', 'delivery-status']);
    assert.deepEqual(dsn.parts, ['text/plain', 'message/delivery-status', 'text/rfc822-headers']);
    assert.deepEqual(dsn.defects, []);
  });

  test('says that a program has sent it, and about which message', () => {
    assert.equal(header.get('auto-submitted'), 'auto-replied');
    assert.equal(header.get('in-reply-to'), '<1@example.org>');
    assert.equal(header.get('references'), '<1@example.org>');
    assert.equal(header.get('to'), 'anna@example.org');
  });

  test('has the fields of the message and of each recipient, with the true status', () => {
    const [message, bob, eve, ...more] = dsn.status.map((fields) => new Map(fields));
    assert.equal(more.length, 0);
    assert.equal(message?.get('Original-Envelope-Id'), 'env 1');
    assert.equal(message?.get('Reporting-MTA'), 'dns; mail.example.org');
    assert.equal(message?.get('Arrival-Date'), 'Sat, 21 Nov 2026 11:00:00 +0000');
    assert.deepEqual(
      ['Original-Recipient', 'Final-Recipient', 'Action', 'Status', 'Remote-MTA', 'Diagnostic-Code'].map((name) =>
        bob?.get(name),
      ),
      [
        'rfc822; Bob+2Bx@example.net',
        'rfc822; bob@example.net',
        'failed',
        '5.1.1',
        'dns; mx.example.net',
        'smtp; 550 5.1.1 No such user',
      ],
    );
    assert.equal(eve?.get('Status'), '5.4.7');
    assert.equal(eve?.get('Remote-MTA'), undefined);
    assert.match(eve?.get('Diagnostic-Code') ?? '', /^x-postern; 451 5\.4\.7 Tried/);
  });

  test('names a server without a name by its address in brackets', async () => {
    const [recipient] = input.recipients;
    assert.ok(recipient);
    for (const [host, mta] of [
      ['192.0.2.1', '[192.0.2.1]'],
      ['2001:db8::1', '[IPv6:2001:db8::1]'],
    ] as const) {
      const text = (await composeDsn({ ...input, recipients: [{ ...recipient, host }] })).toString();
      assert.ok(text.includes(`Remote-MTA: dns; ${mta}\r\n`), mta);
    }
  });

  test('tells a person what happened, in plain words', () => {
    assert.match(dsn.text, /could not be delivered/);
    assert.match(dsn.text, /bob@example\.net\r?\n +There is no such mailbox/);
    assert.match(dsn.text, /mx\.example\.net says: 550 5\.1\.1 No such user/);
    assert.ok(dsn.text.split(/\r?\n/).every((line) => line.length <= 78));
  });

  test('lets no text of others begin a line', async () => {
    assert.doesNotMatch((await composeDsn(input)).toString(), /^X-Evil/m);
    assert.ok(!header.has('x-evil'));
  });
});

test('a message may be returned whole, and a Message-ID that is none is not referred to', async () => {
  const whole = Buffer.concat([original, Buffer.from('Grüße\r\n')]);
  const dsn = read(
    await composeDsn({ ...input, returned: whole, returnedWhole: true, originalMessageId: 'x\r\nBcc: y' }),
  );
  assert.equal(dsn.parts[2], 'message/rfc822');
  assert.match(dsn.last, /Grüße/);
  assert.ok(!dsn.headers.some(([name]) => /in-reply-to|bcc/i.test(name)));
});

test('whatever a server has said, and however the message was called, no line is too long to be sent', async () => {
  const recipients = input.recipients.map((one) => ({ ...one, diagnostic: `550 5.1.1 ${'ü'.repeat(900)}` }));
  const given = { reason: 'x'.repeat(1200), subject: 'y'.repeat(1200), originalMessageId: `<${'m'.repeat(996)}>` };
  for (const to of ['anna@example.org', 'jürgen@example.org']) {
    const lines = (await composeDsn({ ...input, ...given, to, recipients })).toString().split('\r\n');
    // RFC 5322 §2.1.1, RFC 6532 §3.4.
    for (const line of lines) assert.ok(Buffer.byteLength(line) <= 998, line.slice(0, 80));
  }
});

test('words beyond ASCII in subject and reason are readable', async () => {
  const dsn = read(await composeDsn({ ...input, subject: 'Grüße', reason: 'Wegen Umzug geschlossen – später' }));
  assert.match(dsn.text, /Subject: Grüße/);
  assert.match(dsn.text, /Wegen Umzug geschlossen – später/);
  assert.deepEqual(dsn.defects, []);
});

describe('a notice about international mail (RFC 6533)', () => {
  const [first] = input.recipients;
  assert.ok(first);
  const utf8Header = Buffer.from('From: jürgen@example.org\r\nSubject: Grüße\r\n\r\n');
  const whole = Buffer.concat([utf8Header, Buffer.from('Schöne Grüße\r\n')]);
  const about: DsnInput = {
    ...input,
    smtputf8: true,
    returned: utf8Header,
    recipients: [
      {
        ...first,
        address: 'bücher+neu@example.net',
        originalRecipient: 'utf-8;用户=x@example.net',
        diagnostic: '550 5.1.1 Unbekannt: bücher',
      },
      { ...first, address: 'bob@example.net', originalRecipient: 'rfc822;Bob+x@example.net' },
    ],
  };

  describe('to an address that needs SMTPUTF8', async () => {
    const text = (await composeDsn({ ...about, to: 'jürgen@example.org' })).toString();

    test('holds addresses and replies unchanged, in an internationalized report', () => {
      assert.match(text, /^Content-Type: multipart\/report; report-type=delivery-status;/m);
      assert.match(text, /^Content-Type: message\/global-delivery-status\r\n.*\r\nContent-Transfer-Encoding: 8bit\r$/m);
      assert.match(text, /^Original-Recipient: utf-8; 用户=x@example\.net\r$/m);
      assert.match(text, /^Final-Recipient: utf-8; bücher\+neu@example\.net\r$/m);
      assert.match(text, /^Diagnostic-Code: smtp; 550 5\.1\.1 Unbekannt: bücher\r$/m);
    });

    test('calls an address that is ASCII what it always was', () => {
      assert.match(
        text,
        /^Original-Recipient: rfc822; Bob\+x@example\.net\r\nFinal-Recipient: rfc822; bob@example\.net\r$/m,
      );
    });

    test('returns a header in UTF-8, or the message, as what it is', async () => {
      const headers =
        /^Content-Type: message\/global-headers\r\n.*\r\nContent-Transfer-Encoding: 8bit\r\n\r\nFrom: jürgen@/m;
      assert.match(text, headers);
      const all = (
        await composeDsn({ ...about, to: 'jürgen@example.org', returned: whole, returnedWhole: true })
      ).toString();
      assert.match(
        all,
        /^Content-Type: message\/global\r\n.*\r\nContent-Transfer-Encoding: 8bit\r\n\r\nFrom: jürgen@/m,
      );
    });
  });

  describe('to an address whose servers may not know SMTPUTF8', async () => {
    const dsn = await composeDsn({ ...about, returned: whole, returnedWhole: true });
    const text = dsn.toString();

    test('is ASCII from end to end', () => {
      assert.ok(dsn.every((byte) => byte < 128));
    });

    test('writes addresses in the form for 7 bits', () => {
      assert.match(text, /^Content-Type: message\/delivery-status\r$/m);
      assert.match(text, /^Original-Recipient: utf-8; \\x\{7528\}\\x\{6237\}\\x\{3D\}x@example\.net\r$/m);
      assert.match(text, /^Final-Recipient: utf-8; b\\x\{FC\}cher\\x\{2B\}neu@example\.net\r$/m);
      assert.match(text, /^Diagnostic-Code: smtp; 550 5\.1\.1 Unbekannt: b\?cher\r$/m);
    });

    test('returns the message encoded', async () => {
      const [, encoded = ''] =
        /^Content-Type: message\/global\r\n.*\r\nContent-Transfer-Encoding: base64\r\n\r\n([^-]*)--/m.exec(text) ?? [];
      assert.deepEqual(Buffer.from(encoded, 'base64'), whole);
      assert.match(
        (await composeDsn(about)).toString(),
        /^Content-Type: message\/global-headers\r\n.*\r\n.*base64\r$/m,
      );
    });
  });

  test('returns a header that is ASCII, or no UTF-8, or did not come by SMTPUTF8, as ever', async () => {
    const latin1 = Buffer.from('Subject: Gr\xfc\xdfe\r\n\r\n', 'latin1');
    for (const given of [{ returned: original }, { returned: latin1 }, { smtputf8: false }])
      assert.match((await composeDsn({ ...about, ...given })).toString(), /^Content-Type: text\/rfc822-headers\r$/m);
  });
});

for (const [action, subject] of [
  ['delayed', 'Your message is delayed'],
  ['relayed', 'Your message was passed on'],
  ['delivered', 'Your message was delivered'],
] as const) {
  test(`a notice that mail was ${action} says so`, async () => {
    const retryUntil = new Date('2026-11-26T11:00:00Z');
    const recipients = input.recipients.map((one) => ({ ...one, action, ...(action === 'delayed' && { retryUntil }) }));
    const dsn = read(await composeDsn({ ...input, recipients }));
    assert.ok(dsn.headers.some(([name, value]) => name === 'Subject' && value === subject));
    assert.ok(dsn.status.slice(1).every((fields) => new Map(fields).get('Action') === action));
  });
}
