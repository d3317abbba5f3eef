import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { parseAddress } from '../../../../core/mime/address.js';
import { returnPathLine } from '../../../../core/mime/header.js';
import { receivedField, type TracedTransaction } from '../../../../core/smtp/server/data.js';

const date = new Date('2026-11-21T00:43:14.999Z');

function recipientOf(address: string) {
  return { address: parseAddress(address), hop: undefined, discarded: false };
}

type Session = TracedTransaction['session'];

function traced(session: Partial<Session> = {}, transaction: Partial<TracedTransaction> = {}): string {
  const field = receivedField(
    {
      id: 'id1',
      recipients: [recipientOf('to@example.com')],
      smtputf8: false,
      ...transaction,
      session: {
        listener: { name: 'mx', mode: 'mx' },
        remote: { address: '192.0.2.1', port: 1234 },
        hello: { verb: 'EHLO', name: 'client.example' },
        tls: undefined,
        user: undefined,
        ...session,
      },
    },
    'mx.example.com',
    date,
  );
  return field.toString();
}

const tls = { protocol: 'TLSv1.3', cipher: 'TLS_AES_256_GCM_SHA384' };

describe('the Received field', () => {
  test('says from whom, by whom, how, when and for whom', () => {
    assert.equal(
      traced(),
      'Received: from client.example ([192.0.2.1])\r\n\tby mx.example.com with ESMTP id id1\r\n' +
        '\tfor <to@example.com>;\r\n\tSat, 21 Nov 2026 00:43:14 +0000\r\n',
    );
  });

  test('names no recipient when there are several', () => {
    const recipients = [recipientOf('one@example.com'), recipientOf('two@example.com')];
    assert.doesNotMatch(traced({}, { recipients }), /one|two|for/);
  });

  test('never names who has signed in', () => {
    assert.doesNotMatch(traced({ user: { username: 'secret@example.com' } }), /secret/);
  });

  for (const [protocol, session, smtputf8] of [
    ['SMTP', { hello: { verb: 'HELO', name: 'a' } }, false],
    ['ESMTP', {}, false],
    ['ESMTPS', { tls }, false],
    ['ESMTPA', { user: { username: 'u@example.com' } }, false],
    ['ESMTPSA', { tls, user: { username: 'u@example.com' } }, false],
    ['UTF8SMTP', {}, true],
    ['UTF8SMTPSA', { tls, user: { username: 'u@example.com' } }, true],
    ['LMTP', { listener: { name: 'l', mode: 'lmtp' }, hello: { verb: 'LHLO', name: 'a' } }, false],
    ['UTF8LMTPS', { listener: { name: 'l', mode: 'lmtp' }, hello: { verb: 'LHLO', name: 'a' }, tls }, true],
  ] as const satisfies readonly (readonly [string, Partial<Session>, boolean])[]) {
    test(`knows the protocol ${protocol}`, () => {
      assert.match(traced(session, { smtputf8 }), new RegExp(` with ${protocol} id `));
    });
  }

  test('writes an IPv6 address as a literal', () => {
    assert.match(traced({ remote: { address: '2001:db8::1', port: 1 } }), /\(\[IPv6:2001:db8::1\]\)/);
  });

  test('takes no name from the client that could be anything else', () => {
    for (const name of ['<script>', 'a(b);from=x', 'a b', 'a\r\nX: y', '', 'a'.repeat(256), 'ü.example']) {
      assert.match(traced({ hello: { verb: 'EHLO', name } }), /^Received: from invalid \(\[192\.0\.2\.1\]\)\r\n/);
    }
    assert.match(traced({ hello: { verb: 'EHLO', name: '[IPv6:::1]' } }), /^Received: from \[IPv6:::1\] /);
    assert.match(traced({ hello: undefined }), /^Received: from unknown /);
  });

  test('has no line of more than 998 octets', () => {
    const recipients = [
      recipientOf(`"${'"'.repeat(252).replaceAll('"', '\\"')}"@${`${'d'.repeat(63)}.`.repeat(3)}example`),
    ];
    for (const line of traced({ hello: { verb: 'EHLO', name: 'a'.repeat(255) } }, { recipients }).split('\r\n')) {
      assert.ok(line.length < 998);
    }
  });
});

describe('the Return-Path line', () => {
  test('has the reverse-path, or nothing between its brackets', () => {
    assert.equal(returnPathLine(parseAddress('"a b"@Example.com')).toString(), 'Return-Path: <"a b"@example.com>\r\n');
    assert.equal(returnPathLine(null).toString(), 'Return-Path: <>\r\n');
  });
});
