import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isSecretName, MASK, redact, redactText } from '../../../core/log/redact.js';
import { plantedSecrets } from './planted-secrets.js';

for (const { plain, fields, text } of plantedSecrets) {
  test(`the secret ${JSON.stringify(plain).slice(0, 30)} is masked`, () => {
    const shown = JSON.stringify(redact(text === undefined ? fields : { ...fields, msg: text }));
    assert.ok(!shown.includes(plain), shown);
    assert.ok(shown.includes(MASK));
  });
}

test('other text stays as it is', () => {
  const value = {
    msg: 'accepted <anna@example.org> from http://127.0.0.1:8080/store/example.org/anna?q=a@b basic facts',
    tokenCount: 3,
    publicKey: 'abc',
    passwordSet: true,
    password: null,
    compass: 'north',
    monkey: 'banana',
    stages: ['auth', 'rcptTo'],
    size: 12,
  };
  assert.deepEqual(redact(value), value);
});

test('secret names are found in every spelling', () => {
  for (const name of [
    'smtpPassword',
    'AWS_KEY_ID',
    'x-api-key',
    'http.accounts.0.passwordHash',
    'KEY',
    'Set-Cookie',
    'SSL_KEY_PASSPHRASE',
  ])
    assert.ok(isSecretName(name), name);
  for (const name of ['keyboard', 'smtp.limits.authFailures', 'passed', 'tokenCount', 'PATH', 'tokens_per_seconds'])
    assert.ok(!isSecretName(name), name);
});

test('a URL inside a URL is masked, and host and port are not', () => {
  assert.equal(
    redactText('http://127.0.0.1:8080/go?to=postgres://u:pw@db/x and http://[::1]:8080/users/a@b'),
    `http://127.0.0.1:8080/go?to=postgres://${MASK}@db/x and http://[::1]:8080/users/a@b`,
  );
  assert.equal(redactText('smtp://anna@mail.example'), `smtp://${MASK}@mail.example`);
});

test('hostile text is redacted in linear time', () => {
  const long = [
    'a://',
    'Basic ',
    'AUTH PLAIN ',
    '-----BEGIN A-----',
    'eyJaaaaaaaa.',
    'password=',
    '"password":"',
    'a://b:',
  ];
  for (const piece of long) assert.ok(redactText(piece.repeat(20_000 / piece.length)).length <= 40_000);
});

test('a circular value is cut', () => {
  const nested: Record<string, unknown> = {};
  nested['again'] = nested;
  assert.match(JSON.stringify(redact(nested)), /too deep/);
});
