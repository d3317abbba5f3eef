import assert from 'node:assert/strict';
import { buffer } from 'node:stream/consumers';
import { describe, test } from 'node:test';
import { simpleParser } from 'mailparser';
import { encodedMessage, type EncodingGoal, planEncoding } from '../../../core/mime/transfer-encoding.js';

const crlf = (text: string): Buffer => Buffer.from(text.replaceAll('\n', '\r\n'));

function* pieces(bytes: Buffer, length: number): Generator<Buffer> {
  for (let at = 0; at < bytes.length; at += length) yield bytes.subarray(at, at + length);
}

/** The message as encoded; the same however it was cut. */
async function encode(bytes: Buffer, goal: EncodingGoal): Promise<Buffer> {
  const outputs: Buffer[] = [];
  for (const length of [bytes.length, 1, 7, 70_001]) {
    const plan = await planEncoding(pieces(bytes, length), goal);
    assert.equal(plan.outcome, 'encode', 'reason' in plan ? plan.reason : '');
    if (plan.outcome === 'encode') outputs.push(await buffer(encodedMessage(pieces(bytes, length), plan)));
  }
  const [output = Buffer.alloc(0), ...others] = outputs;
  for (const other of others) assert.equal(other.toString('latin1'), output.toString('latin1'));
  return output;
}

const maxLine = (bytes: Buffer): number =>
  Math.max(
    ...bytes
      .toString('latin1')
      .split('\r\n')
      .map(({ length }) => length),
  );
const isSevenBit = (bytes: Buffer): boolean => bytes.every((byte) => byte < 128);

/** What a reader shows of it, attached messages included. */
async function readable(bytes: Buffer): Promise<object> {
  const { subject, text, html, attachments } = await simpleParser(bytes, { skipImageLinks: true });
  return {
    subject,
    text,
    html,
    attachments: await Promise.all(
      attachments.map(async ({ content, contentType, filename }) => ({
        content: contentType === 'message/rfc822' ? await readable(content) : content.toString('latin1'),
        contentType,
        filename,
      })),
    ),
  };
}

const plain =
  'Subject: s\nMIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 8bit\n\n';
const mixed = `From: a@example.org
Subject: s
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="out er"
Content-Transfer-Encoding: 8bit

preamble with ü
--out er
Content-Type: multipart/alternative; boundary=in

--in
Content-Type: text/plain; charset=utf-8
Content-Transfer-Encoding: 8bit

Grüße = trailing blank \nline
--in
Content-Type: text/html; charset=utf-8

<p>${'grün '.repeat(400)}</p>
--in--

--out er
Content-Type: text/plain; name=a.txt
Content-Disposition: attachment; filename=a.txt

only ascii
--out er
Content-Type: application/octet-stream; name=b
Content-Disposition: attachment; filename=b
Content-Transfer-Encoding: binary

${'äöüßéèê'.repeat(40)}
--out er
Content-Type: message/rfc822

Subject: inner
MIME-Version: 1.0
Content-Type: text/plain; charset=utf-8
Content-Transfer-Encoding: 8bit

inner tüxt
--out er--
epilogue ü
`;

describe('8-bit mail for a server that takes 7 bits', () => {
  for (const [name, text] of Object.entries({
    'one part': `${plain}Grüße = \n\n.dot\nFrom x\n\ttab\t\nlast`,
    'mostly beyond ASCII': `${plain}${'äöü\n'.repeat(200)}`,
    'nested parts': mixed,
    'a very long line': `${plain}${'x'.repeat(150_000)}ü${'y'.repeat(70_000)}\nend\n`,
  })) {
    test(`reads the same: ${name}`, async () => {
      const bytes = crlf(text);
      const output = await encode(bytes, '7bit');
      assert.ok(isSevenBit(output));
      assert.ok(maxLine(output) <= 78, String(maxLine(output)));
      assert.doesNotMatch(output.toString(), /transfer-encoding: (?:8bit|binary)/i);
      assert.deepEqual(await readable(output), await readable(bytes));
    });
  }

  test('leaves the parts as they are that have 7 bits, and encodes as is shortest', async () => {
    const output = (await encode(crlf(mixed), '7bit')).toString();
    assert.match(output, /filename=a\.txt\r\n\r\nonly ascii\r\n--out er/);
    assert.match(
      output,
      /Content-Transfer-Encoding: quoted-printable\r\n\r\nGr=C3=BC=C3=9Fe =3D trailing blank=20\r\nline\r\n/,
    );
    assert.match(output, /filename=b\r\nContent-Transfer-Encoding: base64\r\n\r\n/);
    assert.match(
      output,
      /Subject: inner\r\n.*\r\n.*\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\ninner t=C3=BCxt\r\n--out er--/,
    );
  });

  test('says what text without a type is', async () => {
    const output = String(await encode(crlf('Subject: s\n\nGrüße, sagt wer nichts von MIME weiß\n'), '7bit'));
    assert.match(
      output,
      /^Subject: s\r\nMIME-Version: 1\.0\r\nContent-Type: text\/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\nGr=C3/,
    );
    const latin = String(await encode(Buffer.from('Subject: s\r\n\r\nabcdefghijklmn \xfc\r\n', 'latin1'), '7bit'));
    assert.match(latin, /charset=unknown-8bit\r\n.*\r\n\r\nabcdefghijklmn =FC\r\n$/);
  });

  for (const [name, text] of Object.entries({
    'a signed part': `Content-Type: multipart/signed; boundary=b\n\n--b\n\nü\n--b\n\nsignature\n--b--\n`,
    'a part inside of a signed one':
      'Content-Type: multipart/signed; boundary=b\n\n--b\nContent-Type: multipart/mixed; boundary=c\n\n--c\n\nü\n--c--\n--b\n\ns\n--b--\n',
    'its header': 'Subject: ü\n\nx\n',
    'a header of a part': 'Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Description: ü\n\nx\n--b--\n',
    'base64 that is none': 'Content-Transfer-Encoding: base64\n\nü\n',
    'an unknown encoding': 'Content-Transfer-Encoding: x-uuencode\n\nü\n',
    'a delivery report': 'Content-Type: message/delivery-status\n\nü\n',
    'too many parts': `Content-Type: multipart/mixed; boundary=b\n\n${'--b\n\n'.repeat(10_001)}ü\n`,
    'too deep parts': `${Array.from({ length: 102 }, (_, n) => `Content-Type: multipart/mixed; boundary=b${n}\n\n--b${n}\n`).join('')}\nü\n`,
  })) {
    test(`cannot be had of ${name}`, async () => {
      assert.equal((await planEncoding([crlf(text)], '7bit')).outcome, 'impossible');
    });
  }

  test('changes nothing of 7-bit mail', async () => {
    assert.equal((await planEncoding([crlf(`${plain}x`.repeat(20))], '7bit')).outcome, 'as-it-is');
  });
});

describe('mail with lines over 998 octets', () => {
  const long = 'word '.repeat(400).trim();

  test('has its parts encoded and its header fields folded, and reads the same', async () => {
    const base64 = Buffer.from('some bytes '.repeat(300)).toString('base64');
    const bytes = crlf(
      `Subject: ${long}\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n${'p'.repeat(999)}\n--b\n\n${long}\n--b\nContent-Type: text/plain; charset=utf-8\n\nshört\n--b\nContent-Transfer-Encoding: quoted-printable\n\n${'=3D=20'.repeat(400)}\n--b\nContent-Type: image/png; name=p\nContent-Transfer-Encoding: base64\n\n${base64}\n--b--\n`,
    );
    const output = await encode(bytes, 'short-lines');
    assert.ok(maxLine(output) <= 998, String(maxLine(output)));
    assert.match(String(output), /\r\nshört\r\n/);
    assert.deepEqual(await readable(output), await readable(bytes));
  });

  test('may have lines of 998 octets', async () => {
    const fits = crlf(`Subject: s\n\n${'x'.repeat(998)}\n`);
    assert.equal((await planEncoding([fits], 'short-lines')).outcome, 'as-it-is');
    assert.equal((await planEncoding([crlf(`Subject: s\n\n${'x'.repeat(999)}`)], 'short-lines')).outcome, 'encode');
  });

  for (const [name, text] of Object.entries({
    'a header line without a blank': `X-Long: ${'x'.repeat(999)}\n\nx\n`,
    'a signed part': `Content-Type: multipart/signed; boundary=b\n\n--b\n\n${long}\n--b--\n`,
  })) {
    test(`cannot be mended: ${name}`, async () => {
      assert.equal((await planEncoding([crlf(text)], 'short-lines')).outcome, 'impossible');
    });
  }
});
