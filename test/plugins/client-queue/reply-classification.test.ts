import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { explainReply, ReplyClassification } from '../../../plugins/client-queue/delivery/reply-classification.js';

const short = (code: number, text: string, step: Parameters<typeof explainReply>[3] = 'rcpt'): string => {
  const [, status = null, rest = text] = /^([245]\.\d+\.\d+) (.*)$/.exec(text) ?? [];
  const { action, category } = explainReply(code, status, rest, step);
  return `${action} ${category}`;
};

describe('the first digit decides', () => {
  const cases: readonly (readonly [number, string, string])[] = [
    [250, '2.1.5 fine', 'deliver other'],
    [450, 'Mailbox busy', 'defer other'],
    [550, 'No', 'bounce other'],
    [354, 'go on', 'defer other'],
    [999, 'what?', 'defer other'],
    [0, 'garbage', 'defer other'],
    [99, 'short', 'defer other'],
    [600, 'unknown class', 'defer other'],
    [Number.NaN, 'no number', 'defer other'],
  ];
  for (const [code, text, expected] of cases) {
    test(`${code} ${text}: ${expected}`, () => assert.equal(short(code, text), expected));
  }

  test('552 to RCPT is 452, unless it says that the mailbox or the message is too large', () => {
    assert.equal(short(552, 'Too many recipients'), 'defer capacity');
    assert.equal(short(552, '5.5.3 Too many'), 'defer protocol');
    assert.equal(short(552, '5.2.2 Mailbox full'), 'bounce capacity');
    assert.equal(short(552, '5.3.4 Message too big', 'mail'), 'bounce capacity');
  });

  test('a refusal before MAIL is permanent at most in the greeting, and never for a refused sign-in', () => {
    assert.equal(short(554, 'No mail here', 'greeting').split(' ')[0], 'bounce');
    assert.equal(short(535, '5.7.8 Wrong password', 'auth').split(' ')[0], 'defer');
    assert.equal(short(502, 'No TLS', 'starttls').split(' ')[0], 'defer');
  });
});

describe('rules say why', () => {
  const cases: readonly (readonly [number, string, string])[] = [
    [550, '5.1.1 The email account that you tried to reach does not exist', 'recipient'],
    [550, 'User unknown', 'recipient'],
    [450, '4.2.0 Greylisted, see http://postgrey.example', 'greylist'],
    [451, 'Graylisting in action, please retry', 'greylist'],
    [421, '4.7.28 Our system has detected an unusual rate of mail', 'rate'],
    [450, 'too many connections from your IP', 'rate'],
    [554, 'Service unavailable; Client host [192.0.2.1] blocked using zen.spamhaus.org', 'blacklist'],
    [550, '5.7.26 This mail is unauthenticated: SPF and DKIM did not pass', 'policy'],
    [554, '5.7.1 Message rejected as spam', 'spam'],
    [452, '4.2.2 The recipient inbox is full', 'capacity'],
    [452, '4.3.1 Insufficient system storage', 'capacity'],
    [554, '5.4.6 Too many hops', 'network'],
    [421, 'Service not available', 'network'],
    [550, '5.7.1 Relaying denied', 'policy'],
    [501, '5.5.4 Syntax error in parameters', 'protocol'],
  ];
  for (const [code, text, category] of cases) {
    test(`${code} ${text}: ${category}`, () => assert.equal(short(code, text).split(' ')[1], category));
  }

  test('greylisting sets a short pause, a permanent refusal none', () => {
    assert.equal(explainReply(450, '4.2.0', 'Greylisted', 'rcpt').retryAfter, 300);
    assert.equal(explainReply(550, '5.2.2', 'Mailbox full', 'rcpt').retryAfter, null);
  });

  test('no rule of the server turns a no into a try or a try into a no', () => {
    for (const text of [
      'greylisted',
      'spam',
      'user unknown',
      'mailbox full',
      'rate limit',
      'relaying denied',
      'virus',
    ]) {
      assert.equal(explainReply(451, null, text, 'data').action, 'defer', text);
      assert.equal(explainReply(551, null, text, 'data').action, 'bounce', text);
    }
  });
});

describe('rules of an operator', () => {
  test('come first, and may say something else than the first digit', () => {
    const rules = new ReplyClassification([
      { name: 'ours', pattern: 'come back on monday', category: 'policy', action: 'defer', retryAfter: 60 },
    ]);
    const explained = rules.explain(550, '5.0.0', 'Come back on Monday', 'rcpt');
    assert.deepEqual(
      [explained.action, explained.category, explained.rule, explained.retryAfter],
      ['defer', 'policy', 'ours', 60],
    );
    assert.equal(rules.explain(550, '5.0.0', 'Never', 'rcpt').action, 'bounce');
  });

  test('a pattern that cannot be read is refused', () => {
    assert.throws(() => new ReplyClassification([{ name: 'x', pattern: '(', category: 'other' }]), {
      problem: 'invalid',
    });
  });

  test('patterns that take other engines for ever take none here', () => {
    const rules = new ReplyClassification([{ name: 'x', pattern: '(a+)+$', category: 'other' }]);
    assert.equal(rules.explain(450, null, `${'a'.repeat(50_000)}!`, 'data').action, 'defer');
  });
});
