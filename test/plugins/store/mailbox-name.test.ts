import assert from 'node:assert/strict';
import { join, sep } from 'node:path';
import { test } from 'node:test';
import fc from 'fast-check';
import type { Domain, LocalPart } from '../../../core/mime/address.js';
import { isProblem } from '../../../core/problem.js';
import {
  folderOfLocal,
  localOfFolder,
  mailboxFolder,
  mailboxNameOf,
  mailboxNameOfUser,
  parseMailboxName,
} from '../../../plugins/store/maildir/mailbox-name.js';

const bad = [
  '',
  '.',
  '..',
  '...',
  '%2e%2e',
  '..%2f',
  '%252e%252e',
  '%c0%ae',
  '..\\',
  '/etc',
  'a/b',
  'C:',
  '~x',
  ' ',
  'a ',
  'a.',
  '.a',
  'a..b',
  'a\0',
  'a\r\nb',
  'a\u001b',
  'a\u0085',
  'a\u202eb',
  'a\u200bb',
  'e\u0301',
  'é',
  '\ud800',
  '*',
  '[a]',
  'x'.repeat(256),
  'x'.repeat(8192),
];

test('a request cannot name a mailbox by anything but plain names', () => {
  for (const text of bad) {
    for (const named of [
      { domain: text, user: 'ann' },
      { domain: 'example.org', user: text },
    ]) {
      assert.throws(
        () => parseMailboxName(named),
        (error) => isProblem(error) && error.problem === 'bad-request',
        text,
      );
    }
  }
  assert.throws(() => parseMailboxName({ domain: '-a.org', user: 'ann' }), isProblem);
  assert.throws(() => parseMailboxName({ domain: 'a_b.org', user: 'ann' }), isProblem);
  assert.throws(() => parseMailboxName({ domain: 'a.org', user: 'x'.repeat(65) }), isProblem);
});

test('a mailbox is a folder of its user below a folder of its domain, the domain in lower case', () => {
  const name = parseMailboxName({ domain: 'Mail.XN--Bcher-KVA.example', user: 'Ann.B+c_d=e-f' });
  assert.equal(mailboxFolder('/m', name), '/m/mail.xn--bcher-kva.example/Ann.B+c_d=e-f');
  assert.deepEqual(mailboxNameOfUser('ann@example.org'), parseMailboxName({ domain: 'example.org', user: 'ann' }));
});

test('unusual local parts get folder names that are safe', () => {
  const folderOf = (local: string): string => folderOfLocal(local as LocalPart);
  assert.equal(folderOf('..'), '%2E.');
  assert.equal(folderOf('.hidden'), '%2Ehidden');
  assert.equal(folderOf('a/../../etc'), 'a%2F..%2F..%2Fetc');
  assert.equal(folderOf('ü'), '%C3%BC');
  assert.equal(folderOf('50%'), '50%25');
  assert.equal(mailboxFolder('/m', mailboxNameOfUser('"a b\\"@"@example.org')), '/m/example.org/a%20b%22%40');
});

test('every local part has one folder name, and every such folder name its local part', () => {
  const domain = 'example.org' as Domain;
  const locals = fc
    .string({ unit: 'binary', minLength: 1, maxLength: 20 })
    .filter((text) => !/\p{Surrogate}/u.test(text)) as fc.Arbitrary<LocalPart>;
  fc.assert(
    fc.property(locals, (local) => {
      const folder = folderOfLocal(local);
      assert.equal(localOfFolder(folder), local);
      const path = mailboxFolder('/root', mailboxNameOf({ local, domain }));
      assert.equal(path, join('/root', domain, folder));
      assert.equal(path.split(sep).length, 4);
      assert.match(folder, /^(?!\.)[\x21-\x7e]+$/);
    }),
    { examples: [['.'], ['..'], ['/'], ['%2E' as LocalPart], ['a.'], ['\0']].map(([text]) => [text as LocalPart]) },
  );
});

test('folders that are not named as we name them are no mailboxes', () => {
  for (const folder of ['', '.', '..', '.x', '%2e', '%41', '%', '%zz', '%FF', 'a b', 'dovecot index', '%C3']) {
    assert.equal(localOfFolder(folder), undefined, folder);
  }
});

test('an address literal, or half a character, has no mailbox', () => {
  const local = 'ann' as LocalPart;
  const domain = 'example.org' as Domain;
  assert.throws(() => mailboxNameOf({ local, domain: '[127.0.0.1]' as Domain }), isProblem);
  assert.throws(() => mailboxNameOf({ local: '\ud800' as LocalPart, domain }), isProblem);
  assert.throws(() => mailboxNameOf({ local: '' as LocalPart, domain }), isProblem);
  assert.throws(() => mailboxNameOf({ local: '\0'.repeat(100) as LocalPart, domain }), isProblem);
});
