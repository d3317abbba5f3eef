import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { parseCorrespondent, parseCorrespondents, writeCorrespondent } from '../../../plugins/store/mime/compose.js';

const read = (text: string) => parseCorrespondents(text, 1000).map(({ name, address }) => [name, address.address]);

suite('people to write to', () => {
  test('addresses with and without names, separated by commas', () => {
    assert.deepEqual(read('a@b.example, Ann <ann@example.org>,, "Doe, Jo" <jo@example.org>, "x, y"@example.org,'), [
      ['', 'a@b.example'],
      ['Ann', 'ann@example.org'],
      ['Doe, Jo', 'jo@example.org'],
      ['', '"x, y"@example.org'],
    ]);
    assert.deepEqual(read(''), []);
  });

  test('what is written for an editor is read as the same people', () => {
    for (const name of ['', 'Ann', 'Doe, "Jo" \\', 'a@b <c>', 'Änne', 'x;y:z']) {
      const person = { name, address: 'ann@example.org' };
      const { name: readName, address } = parseCorrespondent(writeCorrespondent(person));
      assert.deepEqual({ name: readName, address: address.address }, person);
    }
  });

  const refused = [
    'ann',
    'ann@',
    'Ann ann@example.org',
    'Ann <ann@example.org> x',
    'Ann <ann@example.org',
    'ann@example.org>',
    'team: a@b.example;',
    'team: a@b.example, c@d.example;',
    'a@b.example; c@d.example',
    'a@b.example\r\nBcc: c@d.example',
    'Ann\n <ann@example.org>',
    'Ann\0 <ann@example.org>',
    '"Ann\u2028" <ann@example.org>',
    '\ud800 <ann@example.org>',
    '"a@x.example"@y.example@z.example',
    `${'n'.repeat(300)} <ann@example.org>`,
  ];
  for (const text of refused) {
    test(`refused, not mended: ${JSON.stringify(text.slice(0, 50))}`, () => {
      assert.throws(() => read(text), { problem: 'invalid' });
    });
  }

  test('too many are refused, deep nesting costs nothing', () => {
    assert.throws(() => read('a@b.example,'.repeat(1001)), { problem: 'invalid' });
    assert.throws(() => read('g:'.repeat(5000)), { problem: 'invalid' });
    assert.throws(() => parseCorrespondent('a@b.example, c@d.example'), { problem: 'invalid' });
  });
});
