import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { type Address, parseAddress, parseDomain } from '../../../core/mime/address.js';
import { isProblem } from '../../../core/problem.js';

const longest = 'l'.repeat(252);
const label63 = 'd'.repeat(63);
const domain255 = `${label63}.${label63}.${label63}.${label63}`;

const taken: readonly (readonly [text: string, address: string, local?: string])[] = [
  ['user@example.com', 'user@example.com'],
  ['User.Name@EXAMPLE.Com', 'User.Name@example.com'],
  ['user@localhost', 'user@localhost'],
  ["!#$%&'*+/=?^_`{|}~-@example.com", "!#$%&'*+/=?^_`{|}~-@example.com"],
  ['user%elsewhere.example@example.com', 'user%elsewhere.example@example.com'],
  ['host!user@example.com', 'host!user@example.com'],
  ['|/bin/sh@example.com', '|/bin/sh@example.com'],
  [`${longest}@example.com`, `${longest}@example.com`],
  [`user@${domain255}`, `user@${domain255}`],
  ['"plain"@example.com', 'plain@example.com', 'plain'],
  ['"a b"@example.com', '"a b"@example.com', 'a b'],
  ['"a@b"@example.com', '"a@b"@example.com', 'a@b'],
  ['"a>b"@example.com', '"a>b"@example.com', 'a>b'],
  ['"../x"@example.com', '"../x"@example.com', '../x'],
  ['".a"@example.com', '".a"@example.com', '.a'],
  ['"a..b"@example.com', '"a..b"@example.com', 'a..b'],
  ['"\\a\\"\\\\"@example.com', '"a\\"\\\\"@example.com', 'a"\\'],
  ['""@example.com', '""@example.com', ''],
  ['user@[192.0.2.1]', 'user@[192.0.2.1]'],
  ['user@[IPv6:2001:DB8:0:0::1]', 'user@[IPv6:2001:db8::1]'],
  ['user@[ipv6:::1]', 'user@[IPv6:::1]'],
  ['user@bücher.example', 'user@xn--bcher-kva.example'],
  ['user@BÜCHER.example', 'user@xn--bcher-kva.example'],
  ['user@XN--bcher-KVA.example', 'user@xn--bcher-kva.example'],
  ['user@faß.example', 'user@xn--fa-hia.example'],
  ['jörg@example.com', 'jörg@example.com'],
  ['jo\u0308rg@example.com', 'jo\u0308rg@example.com'],
  ['"jörg müller"@example.com', '"jörg müller"@example.com', 'jörg müller'],
];

const refused: readonly (readonly [why: string, text: string])[] = [
  ['nothing', ''],
  ['no @', 'user'],
  ['no domain', 'user@'],
  ['no local part', '@example.com'],
  ['two @', 'a@b@example.com'],
  ['angle brackets', '<user@example.com>'],
  ['a name', 'User <user@example.com>'],
  ['a comment', 'user(home)@example.com'],
  ['a blank', 'us er@example.com'],
  ['a blank in front', ' user@example.com'],
  ['a dot in front', '.user@example.com'],
  ['a dot at the end', 'user.@example.com'],
  ['two dots', 'us..er@example.com'],
  ['a path', '../user@example.com'],
  ['an open quote', '"user@example.com'],
  ['text behind the quote', '"user"x@example.com'],
  ['an escape at the end', '"user\\"@example.com'],
  ['a comma', 'a,b@example.com'],
  ['a second command', 'a@b>\r\nRCPT TO:<evil@example.com'],
  ['NUL', 'a\0b@example.com'],
  ['a tab in quotes', '"a\tb"@example.com'],
  ['DEL', 'a\x7fb@example.com'],
  ['a C1 control', 'a\x85b@example.com'],
  ['a right-to-left override', 'a\u202eb@example.com'],
  ['a right-to-left mark', 'a\u200fb@example.com'],
  ['a zero width space', 'a\u200bb@example.com'],
  ['a soft hyphen', 'a\u00adb@example.com'],
  ['a variation selector', 'a\ufe0fb@example.com'],
  ['a no-break space', '"a\u00a0b"@example.com'],
  ['a line separator', 'a\u2028b@example.com'],
  ['a lone surrogate', 'a\ud800b@example.com'],
  ['what was not UTF-8', 'a\ufffdb@example.com'],
  ['a local part of 253 octets', `${longest}l@example.com`],
  ['a local part of 127 letters of two octets', `${'ü'.repeat(127)}@example.com`],
  ['a domain of 256 octets', `user@${domain255}d`],
  ['a label of 64', `user@${label63}d.example`],
  ['a trailing dot', 'user@example.com.'],
  ['a leading dot', 'user@.example.com'],
  ['an empty label', 'user@example..com'],
  ['a hyphen in front', 'user@-example.com'],
  ['a hyphen at the end', 'user@example-.com'],
  ['an underscore', 'user@ex_ample.com'],
  ['a port', 'user@example.com:25'],
  ['a slash', 'user@example.com/x'],
  ['an escape that would be decoded', 'user@ex%41mple.com'],
  ['a bare IPv4 address', 'user@192.0.2.1'],
  ['a short IPv4 address', 'user@127.1'],
  ['a hexadecimal IPv4 address', 'user@0x7f000001'],
  ['full-width letters', 'user@ｅxample.com'],
  ['an ideographic full stop', 'user@example\u3002com'],
  ['an A-label of nothing', 'user@xn--a.example'],
  ['an A-label of what is ASCII anyway', 'user@xn--abc-.example'],
  ['a literal without brackets', 'user@IPv6:::1'],
  ['an open literal', 'user@[192.0.2.1'],
  ['a literal of no address', 'user@[192.0.2.256]'],
  ['IPv6 without its tag', 'user@[2001:db8::1]'],
  ['IPv6 with a zone', 'user@[IPv6:fe80::1%eth0]'],
  ['a general literal', 'user@[tag:content]'],
];

/** The parsed address, or undefined when it is refused as invalid; fails for any other error. */
function parsed(text: string): Address | undefined {
  try {
    return parseAddress(text);
  } catch (error) {
    assert.ok(isProblem(error), String(error));
    assert.equal(error.problem, 'invalid');
    return undefined;
  }
}

describe('an address', () => {
  for (const [text, address, local = address.slice(0, address.lastIndexOf('@'))] of taken) {
    test(`${text.length > 80 ? `${text.slice(0, 70)}…` : text} is taken`, () => {
      const made = parseAddress(text);
      assert.equal(made.address, address);
      assert.equal(made.local, local);
      assert.equal(made.domain, address.slice(address.lastIndexOf('@') + 1));
    });
  }

  for (const [why, text] of refused) {
    test(`with ${why} is refused`, () => {
      assert.equal(parsed(text), undefined);
    });
  }

  test('needs SMTPUTF8 for its local part only, for a domain has an ASCII form', () => {
    assert.equal(parseAddress('jörg@example.com').international, true);
    assert.equal(parseAddress('user@bücher.example').international, false);
  });

  test('is refused without repeating what was given', () => {
    assert.throws(
      () => parseAddress('<script>@example.com'),
      (error) => isProblem(error) && !error.message.includes('script'),
    );
  });

  test('in its canonical form is itself again', () => {
    const atom = fc.string({ unit: 'grapheme', minLength: 1, maxLength: 20 });
    const quoted = fc.string({ maxLength: 40 }).map((text) => `"${text.replace(/["\\]/g, '\\$&')}"`);
    const domain = fc.oneof(
      fc.domain(),
      fc.ipV4().map((ip) => `[${ip}]`),
      fc.ipV6().map((ip) => `[IPv6:${ip}]`),
    );
    let accepted = 0;
    fc.assert(
      fc.property(fc.oneof(atom, quoted), domain, (local, name) => {
        const once = parsed(`${local}@${name}`);
        if (once === undefined) return;
        accepted += 1;
        assert.deepEqual(parseAddress(once.address), once);
      }),
      { numRuns: 2000 },
    );
    assert.ok(accepted > 500, `only ${accepted} were addresses`);
  });

  test('of any text at all is an address or a problem', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 300 }), (text) => {
        const made = parsed(text) ?? parsed(`${text}@example.com`) ?? parsed(`a@${text}`);
        if (made !== undefined) assert.doesNotMatch(made.address, /[\p{Cc}\p{Cf}\p{Cs}]/u);
      }),
      { numRuns: 5000 },
    );
  });

  test('that is a megabyte of what makes parsers slow is refused unread', () => {
    for (const part of ['"', '\\"', 'a.', '@', '[', 'ü', '\u0308', 'xn--']) {
      assert.equal(parsed(part.repeat(1_000_000)), undefined);
      assert.equal(parsed(`"${part.repeat(1_000_000)}"@example.com`), undefined);
    }
  });
});

describe('a domain', () => {
  test('comes out in lower case A-labels', () => {
    assert.equal(parseDomain('Bücher.EXAMPLE'), 'xn--bcher-kva.example');
  });

  test('is no address literal', () => {
    assert.throws(() => parseDomain('[192.0.2.1]'), isProblem);
  });
});
