import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ProxyOptions } from '../../../../plugins/upstream/proxy/options.js';
import { type Candidate, RuleBook } from '../../../../plugins/upstream/proxy/rule.js';

const hosts = ['192.0.2.25'];
const bookOf = (...rules: readonly object[]): RuleBook =>
  new RuleBook(ProxyOptions.parse({ rules: rules.map((rule) => ({ hosts, ...rule })) }));

const candidate = (more: Partial<Candidate> = {}): Candidate => ({
  ip: '10.1.2.3',
  ehlo: 'mx.client.example',
  mail: 'anna@example.org',
  rcpt: 'ben@partner.example',
  direction: 'in',
  ...more,
});

const takenBy = (book: RuleBook, more: Partial<Candidate> = {}): string | undefined => book.find(candidate(more))?.name;

/** Where the options are wrong, and why. */
function complaints(...rules: readonly object[]): readonly string[] {
  const { error } = ProxyOptions.safeParse({ rules: rules.map((rule) => ({ hosts, ...rule })) });
  return error?.issues.map(({ path, message }) => `${path.join('.')}: ${message}`) ?? [];
}

describe('a rule', () => {
  test('wants all its conditions, each of them of the whole text', () => {
    const book = bookOf({
      ip: '10.0.0.0/8',
      ehlo: '.*\\.client\\.example',
      mail: 'anna@.*',
      rcpt: '.*@partner\\.example',
    });
    assert.equal(takenBy(book), 'rule-1');
    for (const other of [
      { ip: '11.1.2.3' },
      { ehlo: 'mx.client.example.org' },
      { mail: 'susanna@example.org' },
      { mail: '' },
      { rcpt: 'ben@partner.example.org' },
      { rcpt: 'ben@notpartner.example' },
    ]) {
      assert.equal(takenBy(book, other), undefined, JSON.stringify(other));
    }
  });

  test('does not care for case', () => {
    assert.equal(takenBy(bookOf({ rcpt: '.*@Partner\\.example' }), { rcpt: 'BEN@partner.example' }), 'rule-1');
  });

  test('knows addresses, networks and patterns of addresses', () => {
    const cases = [
      ['10.1.2.3', '10.1.2.3', true],
      ['10.1.2.3', '10.1.2.30', false],
      ['10.1.0.0/16', '::ffff:10.1.2.3', true],
      ['2001:db8::/32', '2001:DB8:0:0::1', true],
      ['2001:db8::/32', '10.1.2.3', false],
      ['10\\.1\\..*', '10.1.2.3', true],
      ['10\\.1\\..*', '110.1.2.3', false],
      ['(::1|127\\..*)', '0:0:0:0:0:0:0:1', true],
    ] as const;
    for (const [ip, address, matches] of cases) {
      assert.equal(takenBy(bookOf({ ip }), { ip: address }), matches ? 'rule-1' : undefined, `${ip} ${address}`);
    }
  });

  test('can want the null reverse-path, and a direction', () => {
    assert.equal(takenBy(bookOf({ mail: ''.padEnd(1, '$') }), { mail: '' }), 'rule-1');
    assert.equal(takenBy(bookOf({ direction: 'out' })), undefined);
    assert.equal(takenBy(bookOf({ direction: 'out' }), { direction: 'out' }), 'rule-1');
  });

  test('that matches first applies, and a test explains why the others did not', () => {
    const book = bookOf({ name: 'one', rcpt: 'nobody@.*', ip: '192.0.2.0/24' }, { name: 'two', mail: 'anna@.*' }, {});
    assert.deepEqual(book.test(candidate()), {
      rule: 'two',
      steps: [
        {
          rule: 'one',
          matches: false,
          why: [
            'ip is 10.1.2.3, and the rule wants 192.0.2.0/24.',
            'rcpt is ben@partner.example, and the rule wants nobody@.*.',
          ],
        },
        { rule: 'two', matches: true, why: [] },
      ],
    });
    assert.equal(book.test(candidate({ mail: '' })).rule, 'rule-3');
    assert.equal(book.byName('rule-3')?.takesEverything, true);
  });

  test('agrees with its test, whatever is asked', () => {
    const book = bookOf({ rcpt: 'a.*' }, { mail: '.*b' }, { ip: '10.0.0.0/8', direction: 'out' });
    for (const rcpt of ['a', 'b']) {
      for (const mail of ['', 'b', 'c']) {
        for (const direction of ['in', 'out'] as const) {
          const asked = candidate({ rcpt, mail, direction });
          assert.equal(book.test(asked).rule, book.find(asked)?.name ?? null);
        }
      }
    }
  });
});

test('H29 hostile patterns take time in proportion to the text, or are refused', () => {
  const book = bookOf(
    { name: 'a', rcpt: '^(a+)+$' },
    { name: 'b', rcpt: '(.*@){3}x' },
    { name: 'c', rcpt: '(a|a|aa)*b' },
  );
  const began = process.cpuUsage();
  for (const rcpt of [`${'a'.repeat(100_000)}!`, '@'.repeat(3000), 'a'.repeat(100_000)]) takenBy(book, { rcpt });
  const { user } = process.cpuUsage(began);
  assert.ok(user < 5_000_000, `${user} µs of processor time for what would take for ever`);
  assert.deepEqual(complaints({ rcpt: '((a{100}){100}){100}' }).length, 1);
  assert.deepEqual(complaints({ rcpt: 'x'.repeat(1001) }).length > 0, true);
});

describe('options', () => {
  test('that are wrong are named with their place', () => {
    assert.match(complaints({}, { rcpt: '(?=look)' })[0] ?? '', /^rules\.1\.rcpt: The pattern cannot be read/);
    assert.match(complaints({ mail: '(' })[0] ?? '', /^rules\.0\.mail: The pattern cannot be read: missing closing \)/);
    assert.match(complaints({ ehlo: '(a)\\1' })[0] ?? '', /^rules\.0\.ehlo: /);
    assert.match(complaints({ ip: '10.1.2.3/8' })[0] ?? '', /^rules\.0\.ip: .*bits behind/);
    assert.match(complaints({ ip: '10.1.2.256' })[0] ?? '', /^rules\.0\.ip: /);
    assert.match(complaints({ hosts: [] })[0] ?? '', /^rules\.0\.hosts: /);
    assert.match(complaints({ hosts: ['a b'] })[0] ?? '', /^rules\.0\.hosts\.0: /);
    assert.match(complaints({ hosts: ['mx.example:99999'] })[0] ?? '', /^rules\.0\.hosts\.0: /);
    assert.match(complaints({ tls: 'maybe' })[0] ?? '', /^rules\.0\.tls: /);
    assert.match(complaints({ prot: 'smtp' })[0] ?? '', /^rules\.0: /);
  });

  test('have one rule of a name', () => {
    assert.deepEqual(complaints({ name: 'a' }, { name: 'a' }), ['rules.1.name: another rule is called a']);
    assert.deepEqual(complaints({ name: 'rule-2' }, {}), ['rules.1.name: another rule is called rule-2']);
  });

  test('know all ways to write a host', () => {
    const written = ['mx.example', 'mx.example:2525', '192.0.2.1', '192.0.2.1:25', '[2001:db8::1]:25', '[::1]'];
    assert.deepEqual(complaints({ hosts: written }), []);
  });
});
