import assert from 'node:assert/strict';
import fc from 'fast-check';
import type { SmtpFixture } from '../hostile/smtp-fixture.js';
import type { SmtpClient } from '../support/smtp-client.js';
import type { FuzzTarget } from './target.js';
import { cut, cuts } from './wire-text.js';

const words = [
  'EHLO',
  'HELO',
  'LHLO',
  'MAIL',
  'RCPT',
  'RSET',
  'NOOP',
  'VRFY',
  'HELP',
  'EXPN',
  'AUTH',
  'STARTTLS',
  'QUIT',
  'BDAT',
  'XCLIENT',
  'PROXY',
  'GET',
  'WIZ',
  'DATA',
  'mail',
  'rCpT',
  '',
  'FROM:',
  'TO:',
  'PLAIN',
  'LOGIN',
  '*',
  '=',
  'AGEA',
  '<>',
  '<',
  '>',
  '<a@sender.example>',
  '<postmaster@localhost>',
  '<postmaster>',
  '<"a b"@localhost>',
  '@',
  ':',
  ',',
  '<@a,@b:c@d>',
  'SIZE=1',
  'SIZE=99999999999999999999',
  'BODY=8BITMIME',
  'SMTPUTF8',
  'client.example',
  '[127.0.0.1]',
  '[IPv6:::1]',
  ' ',
  '  ',
  '\t',
  '\r',
  '\0',
  '\x7f',
  '\xff',
  '\xc3\xa4',
  '%s',
  '../',
  'x'.repeat(300),
  'x'.repeat(4100),
];
const good = [
  'EHLO client.example',
  'MAIL FROM:<a@sender.example>',
  'MAIL FROM:<> SIZE=100',
  'RCPT TO:<postmaster@localhost>',
  'RCPT TO:<nobody@localhost>',
  'RSET',
  'NOOP',
  'VRFY x',
  'HELP',
  'AUTH LOGIN',
  'AUTH PLAIN',
  'AUTH PLAIN AGEA',
  '*',
];

/** A line of the grammar, one with a piece changed, or words in any order; never a line end within it. */
const line = fc.oneof(
  { weight: 5, arbitrary: fc.constantFrom(...good) },
  { weight: 3, arbitrary: fc.array(fc.constantFrom(...words), { maxLength: 6 }).map((parts) => parts.join(' ')) },
  {
    weight: 3,
    arbitrary: fc
      .tuple(fc.constantFrom(...good), fc.nat(1000), fc.nat(4), fc.constantFrom(...words))
      .map(([text, place, length, word]) => {
        const at = Math.floor((place * text.length) / 1000);
        return `${text.slice(0, at)}${word}${text.slice(at + length)}`;
      }),
  },
  {
    weight: 1,
    arbitrary: fc.string({ unit: fc.nat(255).map((n) => String.fromCharCode(n === 10 ? 32 : n)), maxLength: 40 }),
  },
);

/** Chunks with octets that look like commands; the CRLF behind each line belongs to them. */
const chunks = ['BDAT 6\r\nNOOP', 'BDAT 14\r\nQUIT\r\nRSET\r\n', 'BDAT 3\r\n\0', 'bdat 0'];
const lastChunks = ['BDAT 6 LAST\r\nQUIT', 'BDAT 0 LAST'];

const dialogue = (chunk: readonly string[]): fc.Arbitrary<readonly string[]> =>
  fc
    .array(fc.oneof({ weight: 9, arbitrary: line }, { weight: 1, arbitrary: fc.constantFrom(...chunk) }), {
      minLength: 1,
      maxLength: 25,
    })
    .map((lines) => {
      // What follows DATA is no command; messages have a target of their own.
      const data = lines.findIndex((text) => /^data *$/i.test(text));
      return ['EHLO fuzz.example', ...(data < 0 ? lines : lines.slice(0, data + 1))];
    });

/** The next reply's code, or null when the server has ended the session instead. */
async function nextCode(client: SmtpClient): Promise<number | null> {
  try {
    return (await client.readReply()).code;
  } catch (error) {
    if (client.ended) return null;
    throw error;
  }
}

/** Codes of the answers until all are there or the session has ended. */
async function codesOf(client: SmtpClient, count: number, say: (index: number) => void): Promise<readonly number[]> {
  const codes: number[] = [];
  for (let index = 0; index < count; index += 1) {
    say(index);
    const code = await nextCode(client);
    if (code === null) break;
    codes.push(code);
  }
  return codes;
}

/**
 * Each line has exactly one answer, in order; the session ends only behind a 221, a 421 or a malformed BDAT; and the same
 * lines in one stream, cut anywhere, get the same answers.
 */
export function dialogueTarget(fixture: () => SmtpFixture, listener: 'mx' | 'submission' | 'lmtp'): FuzzTarget {
  const open = async (): Promise<SmtpClient> => {
    const client = await fixture().connect(listener);
    await client.readReply();
    return client;
  };
  const oneByOne = async (lines: readonly string[]): Promise<readonly number[]> => {
    const client = await open();
    const codes = await codesOf(client, lines.length, (index) =>
      client.write(Buffer.from(`${lines[index] ?? ''}\r\n`, 'latin1')),
    );
    const last = codes.at(-1) ?? 0;
    if (codes.length < lines.length) {
      const isMalformed = /^\s*bdat/i.test(lines[codes.length - 1] ?? '') && [500, 501].includes(last);
      assert.ok([221, 421].includes(last) || isMalformed, `the session ended behind ${last}`);
    } else if (![221, 421].includes(last)) {
      client.write(last === 354 ? '.\r\n' : '*\r\n');
      const code = await nextCode(client);
      if (last === 354) assert.equal(code, 250);
    }
    assert.equal(client.unread, '', 'an answer too many');
    client.close();
    return codes;
  };
  return {
    name: `dialogue-${listener}`,
    // Passwords of submission take their time.
    quickRuns: listener === 'submission' ? 3 : 25,
    // Over LMTP the last chunk of a message has a reply for each recipient.
    property: fc.asyncProperty(
      dialogue(listener === 'lmtp' ? chunks : [...chunks, ...lastChunks]),
      cuts,
      async (lines, places) => {
        const expected = await oneByOne(lines);
        const client = await open();
        const wire = lines.map((text) => `${text}\r\n`).join('');
        for (const segment of cut(wire, places)) {
          client.write(Buffer.from(segment, 'latin1'));
          await new Promise((resolve) => setImmediate(resolve));
        }
        const codes = await codesOf(client, expected.length, () => undefined);
        assert.deepEqual(codes, expected);
        client.close();
      },
    ),
  };
}
