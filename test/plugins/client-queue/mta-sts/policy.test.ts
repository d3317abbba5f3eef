import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { allowsServer } from '../../../../core/dns/mta-sts.js';
import { parsePolicy, policyId } from '../../../../plugins/client-queue/mta-sts/policy.js';

const whole = 'version: STSv1\r\nmode: enforce\r\nmx: mx1.example.net\r\nmx: *.Example.org\r\nmax_age: 86400\r\n';

describe('the record of a policy', () => {
  for (const [title, records, id] of [
    ['as it should be', ['v=STSv1; id=20260101T000000;'], '20260101T000000'],
    ['without a semicolon at its end, with a field that nobody knows', ['v=STSv1;x=y;id=a1'], 'a1'],
    ['beside records of others', ['v=spf1 -all', 'v=STSv1; id=a1;', 'STSv1'], 'a1'],
    ['that comes twice', ['v=STSv1; id=a1;', 'v=STSv1; id=a1;'], undefined],
    ['without an id', ['v=STSv1;'], undefined],
    ['with an id that is none', ['v=STSv1; id=a-1;'], undefined],
    ['with an id that is too long', [`v=STSv1; id=${'a'.repeat(33)};`], undefined],
    ['of another version', ['v=STSv10; id=a1;', 'V=stsv1; id=a1'], undefined],
    ['that does not begin with its version', [' v=STSv1; id=a1;'], undefined],
    ['that is not there', [], undefined],
  ] as const) {
    test(`${title}: ${id ?? 'none'}`, () => assert.equal(policyId(records), id));
  }
});

describe('a policy file', () => {
  test('says how mail is to come', () => {
    const expected = { mode: 'enforce', mx: ['mx1.example.net', '*.example.org'], maxAge: 86_400 };
    assert.deepEqual(parsePolicy(whole), expected);
    assert.deepEqual(parsePolicy(whole.replaceAll('\r\n', '\n').replaceAll(': ', ':')), expected);
    assert.deepEqual(parsePolicy(`${whole}mode: none\r\nmax_age: 1\r\nfuture: yes\r\n\r\nno colon\r\n`), expected);
  });

  test('with a server that is no name goes without that one', () => {
    assert.deepEqual(parsePolicy(whole.replace('mx1.example.net', 'mx1.example.net, mx2.example.net'))?.mx, [
      '*.example.org',
    ]);
  });

  test('holds long enough to be fetched again before it ends', () => {
    assert.equal(parsePolicy(whole.replace('86400', '0'))?.maxAge, 900);
  });

  for (const [title, line] of [
    ['blanks and a carriage return', `mx:${' '.repeat(60_000)}\rx`],
    ['blanks and a line separator', `mx${' '.repeat(60_000)}:\u2028`],
    ['a long name', `mx: ${'a-'.repeat(30_000)}!`],
    ['a name of many labels', `mx: ${'a.'.repeat(30_000)}`],
    ['a key without an end', 'a'.repeat(64_000)],
    ['many names as long as a line may be', `mx: ${'a-'.repeat(490)}!\n`.repeat(60)],
    ['many names of as many labels', `mx: ${'a.'.repeat(490)}!\n`.repeat(60)],
  ] as const) {
    test(`with ${title} does not block others`, { timeout: 20_000 }, () =>
      assert.equal(parsePolicy(`${line}\n${whole}`)?.mode, 'enforce'),
    );
  }

  test('of mode none needs no server, and one holds for a year at most', () => {
    const none = parsePolicy('version: STSv1\nmode: none\nmax_age: 9999999999\n');
    assert.deepEqual(none, { mode: 'none', mx: [], maxAge: 31_557_600 });
  });

  for (const [title, text] of [
    ['empty', ''],
    ['a page', '<!doctype html><title>Not found</title>'],
    ['of another version', whole.replace('STSv1', 'STSv2')],
    ['without a version', whole.replace('version: STSv1\r\n', '')],
    ['of an unknown mode', whole.replace('enforce', 'Enforce')],
    ['without servers', whole.replace(/mx: .*\r\n/g, '')],
    ['with a wildcard in the middle', whole.replace('mx1.example.net', 'mx.*.example.net').replace('*.Ex', '.ex')],
    ['with everything allowed', whole.replace('mx1.example.net', '*').replace('*.Ex', '.ex')],
    ['without an age', whole.replace(/max_age.*\r\n/, '')],
    ['with an age below zero', whole.replace('86400', '-1')],
    ['with an age that is no number', whole.replace('86400', '1e3')],
    [
      'with more servers than anybody has',
      whole + Array.from({ length: 201 }, (_, n) => `mx: a${n}.example.net\n`).join(''),
    ],
  ] as const) {
    test(`${title} is none`, () => assert.equal(parsePolicy(text), undefined));
  }
});

describe('a server', () => {
  const policy = { mx: ['mx1.example.net', '*.example.org'] };
  for (const [host, allowed] of [
    ['mx1.example.net', true],
    ['MX1.Example.NET.', true],
    ['mx2.example.net', false],
    ['a.example.org', true],
    ['a.b.example.org', false],
    ['example.org', false],
    ['xexample.org', false],
    ['192.0.2.1', false],
    ['', false],
  ] as const) {
    test(`${host || 'without a name'} is ${allowed ? '' : 'not '}allowed`, () =>
      assert.equal(allowsServer(policy, host), allowed));
  }
});
