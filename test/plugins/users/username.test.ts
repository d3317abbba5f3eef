import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { canonicalUsername, isAlias, isUsername, newAliases, newUsername } from '../../../plugins/users/user.js';
import { isProblemNamed } from './users-site.js';

const domains = ['example.org', 'example.net'];

describe('a user name', () => {
  it('is kept in lower case, and without a domain means the first one', () => {
    assert.equal(newUsername('Anna.B@Example.NET', domains), 'anna.b@example.net');
    assert.equal(newUsername('anna', domains), 'anna@example.org');
    assert.equal(canonicalUsername('', domains), '@example.org');
  });

  it('folds ASCII only: other letters never become ASCII', () => {
    assert.equal(canonicalUsername('\u212Aim@example.org', domains), '\u212Aim@example.org');
    assert.throws(() => newUsername('\u212Aim', domains), isProblemNamed('invalid'));
  });

  it('has a local part that is a safe folder name', () => {
    for (const local of ['a', 'a.b', 'a_b=c-d', 'anna+lists', '0', 'x'.repeat(64)]) {
      assert.equal(newUsername(`${local}@example.org`, domains), `${local}@example.org`);
    }
    const unsafe = [
      '',
      '.',
      '..',
      '.a',
      'a.',
      'a..b',
      'a/b',
      '../a',
      'a\\b',
      'a\0',
      'a b',
      'a@b',
      '"a"',
      'a%b',
      'a!b',
      '~a',
      'ä',
      'a\n',
    ];
    for (const local of [...unsafe, 'x'.repeat(65)]) {
      assert.throws(
        () => newUsername(`${local}@example.org`, domains),
        isProblemNamed('invalid'),
        JSON.stringify(local),
      );
    }
  });

  it('must be in a domain of this server', () => {
    for (const domain of ['example.com', 'sub.example.org', 'example.org.', '', '[127.0.0.1]', 'example.org\n']) {
      assert.throws(() => newUsername(`anna@${domain}`, domains), isProblemNamed('invalid'), domain);
    }
  });

  it('is recognised in a file only in the form in which we write it', () => {
    assert.equal(isUsername('anna@example.org'), true);
    for (const name of [
      'Anna@example.org',
      'anna@Example.org',
      'anna',
      'anna@',
      '@example.org',
      'anna@1.2.3.4',
      'anna@ä.org',
    ]) {
      assert.equal(isUsername(name), false, name);
    }
  });
});

describe('aliases', () => {
  it('are canonical, each once, in the domain of their user when they name none', () => {
    assert.deepEqual(
      newAliases(['Info@Example.org', 'info@example.org', 'sales', 'anna@example.net'], 'anna@example.net', domains),
      ['info@example.org', 'sales@example.net'],
    );
  });

  it('may have what a folder may not, but nothing that asks to pass the message on', () => {
    assert.equal(isAlias("o'neil/x@example.org"), true);
    for (const alias of [
      'a%b@example.org',
      'b!a@example.org',
      '"a b"@example.org',
      'a@b@example.org',
      'ä@example.org',
    ]) {
      assert.equal(isAlias(alias), false, alias);
      assert.throws(() => newAliases([alias], 'anna@example.org', domains), isProblemNamed('invalid'), alias);
    }
  });

  it('must be in a domain of this server', () => {
    assert.throws(() => newAliases(['anna@example.com'], 'anna@example.org', domains), isProblemNamed('invalid'));
  });
});
