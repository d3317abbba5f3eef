import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { parsePathCommand } from '../../../core/smtp/command.js';
import { isMailParameters, readMailParameters } from '../../../core/smtp/mail-parameters.js';
import { isRcptParameters, readRcptParameters } from '../../../core/smtp/rcpt-parameters.js';

const parametersOf = (text: string): ReadonlyMap<string, string | null> =>
  parsePathCommand(`TO:<a@b.example> ${text}`, 'TO:')?.parameters ?? new Map();

describe('what a client wants to hear of a recipient', () => {
  for (const [text, expected] of [
    ['', {}],
    ['NOTIFY=NEVER', { notify: ['never'] }],
    ['notify=success,FAILURE,delay', { notify: ['success', 'failure', 'delay'] }],
    ['ORCPT=rfc822;Ann+2Bx@example.org', { originalRecipient: 'rfc822;Ann+2Bx@example.org' }],
    ['NOTIFY=FAILURE ORCPT=utf-8;x', { notify: ['failure'], originalRecipient: 'utf-8;x' }],
  ] as const) {
    test(`${JSON.stringify(text)} is read`, () => assert.deepEqual(readRcptParameters(parametersOf(text)), expected));
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
      const read = readRcptParameters(parameters);
      assert.ok(!isRcptParameters(read) && read.code === 501);
    });
  }

  test('what is not offered is not known', () => {
    const read = readRcptParameters(parametersOf('HOLDFOR=5'));
    assert.ok(!isRcptParameters(read) && read.code === 555);
  });
});

describe('what a client wants to be told with', () => {
  const read = (text: string) => readMailParameters(parametersOf(text), { messageBytes: 1000, auth: false });

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
      const made = readMailParameters(parameters, { messageBytes: 1000, auth: false });
      assert.ok(!isMailParameters(made) && made.code === 501);
    });
  }
});
