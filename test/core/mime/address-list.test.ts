import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import fc from 'fast-check';
import { parseAddressList } from '../../../core/mime/address-list.js';

const pairs = (text: string) => parseAddressList(text).map(({ name, address }) => [name, address]);

suite('address lists for display', () => {
  const cases: readonly (readonly [string, readonly (readonly [string, string])[]])[] = [
    ['ann@example.org', [['', 'ann@example.org']]],
    ['Ann <ann@example.org>', [['Ann', 'ann@example.org']]],
    [
      '"Doe, Jane" <j@x>, b@y',
      [
        ['Doe, Jane', 'j@x'],
        ['', 'b@y'],
      ],
    ],
    ['"a \\"quoted\\" b" <j@x>', [['a "quoted" b', 'j@x']]],
    ['ann@example.org (Ann (the first))', [['Ann (the first)', 'ann@example.org']]],
    ['=?utf-8?Q?J=C3=BCrgen?= <j@x>', [['Jürgen', 'j@x']]],
    [
      'team: a@x, "B" <b@y>; , c@z',
      [
        ['', 'a@x'],
        ['B', 'b@y'],
        ['', 'c@z'],
      ],
    ],
    ['undisclosed-recipients:;', []],
    ['<>', []],
    ['"a b"@x.example', [['', '"a b"@x.example']]],
    ['Ann <"a > b"@x.example>', [['Ann', '"a > b"@x.example']]],
    ['"a\\"b,c"@x.example (Ann)', [['Ann', '"a\\"b,c"@x.example']]],
    ['Team <EU> <team@x.example>', [['Team', 'team@x.example']]],
    ['"boss@corp.example" <ann@x.example>', [['boss@corp.example', 'ann@x.example']]],
    [
      'ann@[IPv6:::1], <@a.example,@[IPv6:::2]:b@[192.0.2.1]>',
      [
        ['', 'ann@[IPv6:::1]'],
        ['', 'b@[192.0.2.1]'],
      ],
    ],
    // RFC 5322 appendix A.1.2 and A.1.3
    [
      'Mary Smith <mary@x.test>, jdoe@example.org, Who? <one@y.test>',
      [
        ['Mary Smith', 'mary@x.test'],
        ['', 'jdoe@example.org'],
        ['Who?', 'one@y.test'],
      ],
    ],
    [
      '<boss@nil.test>, "Giant; \\"Big\\" Box" <sysservices@example.net>',
      [
        ['', 'boss@nil.test'],
        ['Giant; "Big" Box', 'sysservices@example.net'],
      ],
    ],
    [
      'A Group:Ed Jones <c@a.test>,joe@where.test,John <jdoe@one.test>;',
      [
        ['Ed Jones', 'c@a.test'],
        ['', 'joe@where.test'],
        ['John', 'jdoe@one.test'],
      ],
    ],
    // A.5
    ['Pete(A nice \\) chap) <pete(his account)@silly.test(his host)>', [['Pete', 'pete@silly.test']]],
    [
      "A Group(Some people)     :Chris Jones <c@(Chris's host.)public.example>,         joe@example.org,  John <jdoe@one.test> (my dear friend); (the end of the group)",
      [
        ['Chris Jones', 'c@public.example'],
        ['', 'joe@example.org'],
        ['John', 'jdoe@one.test'],
      ],
    ],
    ['(Empty list)(start)Hidden recipients  :(nobody(that I know))  ;', []],
    // A.6.1 and A.6.3
    ['Joe Q. Public <john.q.public@example.com>', [['Joe Q. Public', 'john.q.public@example.com']]],
    [
      'Mary Smith <@node.test:mary@example.net>, , jdoe@test  . example',
      [
        ['Mary Smith', 'mary@example.net'],
        ['', 'jdoe@test.example'],
      ],
    ],
    ['John Doe <jdoe@machine(comment).  example>', [['John Doe', 'jdoe@machine.example']]],
    ['Ann', [['', 'Ann']]],
    ['Ann Example', [['Ann Example', '']]],
    ['Ann <ann@example.org', [['Ann', 'ann@example.org']]],
    [
      'Ann <ann@example.org> <ben@example.org>',
      [
        ['Ann', 'ann@example.org'],
        ['', 'ben@example.org'],
      ],
    ],
    ['"open <a@x>', [['', 'open <a@x>']]],
    ['', []],
    [',,;;', []],
  ];
  for (const [written, read] of cases) {
    test(`${JSON.stringify(written)} is ${JSON.stringify(read)}`, () => {
      const found = pairs(written);
      if (written.startsWith('"open')) assert.ok(found.length <= 1);
      else assert.deepEqual(found, read);
    });
  }

  test('100,000 addresses, and groups and comments of any depth, are read as far as the limit', () => {
    assert.equal(parseAddressList('a@b, '.repeat(100_000)).length, 10_000);
    const comment = `(${'c'.repeat(3000)})`;
    for (const text of [`<${comment}a@b.example>`, `<a@b${comment}.example>`, `a@b${comment}.example`]) {
      assert.equal(parseAddressList(text)[0]?.address.length, 2000);
    }
    assert.deepEqual(pairs(`${'g:'.repeat(5000)} a@b${';'.repeat(5000)}`), [['', 'a@b']]);
    assert.deepEqual(pairs(`${'('.repeat(100_000)}a@b`), []);
    assert.equal(pairs('<'.repeat(100_000)).length, 1);
    assert.equal(pairs('"'.repeat(99_999)).length, 0);
    for (const piece of ['<( > , ', '<(( ) > , ', '<, ', '<" (, ', '"a b"@x, <@', 'a@( ']) {
      const began = process.cpuUsage();
      parseAddressList(piece.repeat(100_000));
      assert.ok(process.cpuUsage(began).user < 5_000_000, piece);
    }
  });

  test('never throws, and every mailbox has a name or an address', () => {
    const piece = fc.constantFrom(
      'a',
      '@',
      '<',
      '>',
      '"',
      '\\',
      '(',
      ')',
      ',',
      ';',
      ':',
      ' ',
      '=?utf-8?Q?x?=',
      '\u202e',
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 40 }), (pieces) => {
        for (const { name, address } of parseAddressList(pieces.join(''))) assert.ok(name !== '' || address !== '');
      }),
    );
  });
});
