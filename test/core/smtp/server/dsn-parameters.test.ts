import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { parsePathCommand } from '../../../../core/smtp/protocol/command.js';
import {
  isMailParameters,
  isRcptParameters,
  originalAddress,
  readMailParameters,
  readRcptParameters,
} from '../../../../core/smtp/protocol/parameters.js';

const parametersOf = (text: string): ReadonlyMap<string, string | null> =>
  parsePathCommand(`TO:<a@b.example> ${text}`, 'TO:')?.parameters ?? new Map();

const withoutUtf8 = (parameters: ReadonlyMap<string, string | null>) =>
  readRcptParameters(parameters, { smtputf8: false, dsn: true });

describe('what a client wants to hear of a recipient', () => {
  for (const [text, expected] of [
    ['', {}],
    ['NOTIFY=NEVER', { notify: ['never'] }],
    ['notify=success,FAILURE,delay', { notify: ['success', 'failure', 'delay'] }],
    ['ORCPT=rfc822;Ann+2Bx@example.org', { originalRecipient: 'rfc822;Ann+2Bx@example.org' }],
    ['NOTIFY=FAILURE ORCPT=utf-8;x', { notify: ['failure'], originalRecipient: 'utf-8;x' }],
  ] as const) {
    test(`${JSON.stringify(text)} is read`, () => assert.deepEqual(withoutUtf8(parametersOf(text)), expected));
  }

  for (const text of [
    'NOTIFY',
    'NOTIFY=',
    'NOTIFY=NEVER,SUCCESS',
    'NOTIFY=SUCCESS,SUCCESS',
    'NOTIFY=SOMETIMES',
    'ORCPT=rfc822',
    'ORCPT=;x',
    'ORCPT=rfc822;a+0D+0AX-Evil:1',
    'ORCPT=rfc822;a+zz',
    `ORCPT=rfc822;${'a'.repeat(500)}`,
  ]) {
    test(`${text.slice(0, 40)} is malformed`, () => {
      const parameters = new Map([
        [text.split('=')[0] ?? '', text.includes('=') ? text.slice(text.indexOf('=') + 1) : null],
      ]);
      const read = withoutUtf8(parameters);
      assert.ok(!isRcptParameters(read) && read.code === 501);
    });
  }

  describe('an original recipient in UTF-8 as it is (RFC 6533 §3)', () => {
    const withUtf8 = (text: string) => readRcptParameters(parametersOf(text), { smtputf8: true, dsn: true });

    for (const [text, kept] of [
      ['utf-8;bën@例え.example', 'utf-8;b\\x{EB}n@\\x{4F8B}\\x{3048}.example'],
      ['UTF-8;😀+2Bx@b.example', 'UTF-8;\\x{1F600}+2Bx@b.example'],
      ['utf-8;\\x{EB}ë@b.example', 'utf-8;\\x{EB}\\x{EB}@b.example'],
    ] as const) {
      test(`${text} is kept in the form that goes everywhere`, () => {
        const read = withUtf8(`ORCPT=${text}`);
        assert.deepEqual(read, { originalRecipient: kept });
        assert.deepEqual(withoutUtf8(parametersOf(`ORCPT=${kept}`)), read);
        assert.equal(originalAddress(kept), text.replace('\\x{EB}', 'ë').replace('+2B', '+'));
      });
    }

    test('is refused where MAIL had no SMTPUTF8', () => {
      const read = withoutUtf8(parametersOf('ORCPT=utf-8;bën@b.example'));
      assert.ok(!isRcptParameters(read) && read.code === 501);
    });

    for (const value of [
      'rfc822;bën@b.example',
      'utf-8;bën+zz@b.example',
      'utf-8;bën+0D+0AX-Evil:1',
      'utf-8;bën\u0085@b.example',
      'utf-8;b\u202en@b.example',
      'utf-8;b\u2028n@b.example',
      'utf-8;b\u200bn@b.example',
      'utf-8;ë\u3000@b.example',
      'utf-8;ë\ud800@b.example',
      'ütf-8;b@b.example',
      `utf-8;${'ë'.repeat(90)}@b.example`,
      `utf-8;${'例'.repeat(100_000)}`,
    ]) {
      test(`${JSON.stringify(value.slice(0, 40))} is malformed`, () => {
        const read = readRcptParameters(new Map([['ORCPT', value]]), { smtputf8: true, dsn: true });
        assert.ok(!isRcptParameters(read) && read.code === 501);
      });
    }
  });

  test('what is not offered is not known', () => {
    const read = withoutUtf8(parametersOf('HOLDFOR=5'));
    assert.ok(!isRcptParameters(read) && read.code === 555);
  });
});

describe('what a client wants to be told with', () => {
  const read = (text: string) => readMailParameters(parametersOf(text), { messageBytes: 1000, auth: false, dsn: true });

  test('RET and ENVID are read', () => {
    const both = read('RET=hdrs ENVID=QQ+2B314159');
    assert.ok(isMailParameters(both));
    assert.deepEqual(both.dsn, { ret: 'hdrs', envelopeId: 'QQ+314159' });
    const without = read('BODY=8BITMIME');
    assert.ok(isMailParameters(without) && without.dsn === undefined);
  });

  for (const text of ['RET=SOME', 'RET', 'ENVID=a+0D', 'ENVID=a=b', `ENVID=${'x'.repeat(101)}`]) {
    test(`${text.slice(0, 40)} is malformed`, () => {
      const parameters = new Map([
        [text.split('=')[0] ?? '', text.includes('=') ? text.slice(text.indexOf('=') + 1) : null],
      ]);
      const made = readMailParameters(parameters, { messageBytes: 1000, auth: false, dsn: true });
      assert.ok(!isMailParameters(made) && made.code === 501);
    });
  }
});
