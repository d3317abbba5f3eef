import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { drive } from 'postern/testing';
import { footer } from './index.js';

const options = { text: 'Grüße & mehr,\nexample.org' };
const html = '<p>Grüße &#38; mehr,<br>\r\nexample.org</p>';

/**
 * What arrives of a message that a user sends: its fields of MIME, and its body.
 * @param {import('node:test').TestContext} t
 * @param {string | Buffer} eml
 */
async function arrived(t, eml, sender = /** @type {object} */ ({ user: 'anna@example.org', tls: true })) {
  const site = await drive(footer, { test: t, options });
  assert.equal((await site.data({ from: 'anna@example.org', ...sender, eml })).code, 250);
  const [{ headers, eml: text } = { headers: [], eml: '' }] = site.delivered;
  const body = text.slice(text.indexOf('\r\n\r\n') + 4);
  /** @type {(name: string) => (string | undefined)[]} */
  const field = (name) => headers.filter(([one]) => one.toLowerCase() === name).map(([, value]) => value);
  return { body, type: field('content-type'), encoding: field('content-transfer-encoding'), field };
}

const head = 'From: anna@example.org\r\nSubject: x\r\n';
const plain = (/** @type {string} */ base64) => Buffer.from(base64, 'base64').toString();
const asLatin1 = (/** @type {string} */ text) => Buffer.from(text, 'latin1');
/** The part of a body whose header begins with that type, without its header. */
const partOf = (/** @type {string} */ body, /** @type {string} */ type) =>
  body
    .split(/\r\n--[a-z]+(?:--)?\r\n/)
    .find((part) => part.includes(`Content-Type: ${type}`) && part.includes('base64'))
    ?.split('\r\n\r\n')[1] ?? '';

test('a mail without any MIME gets the footer, and says how it is written now', async (t) => {
  const { body, type, encoding, field } = await arrived(t, `${head}\r\nHello!\r\n`);
  assert.equal(plain(body), 'Hello!\r\n\r\nGrüße & mehr,\r\nexample.org\r\n');
  assert.deepEqual([type, encoding, field('mime-version')], [['text/plain; charset=utf-8'], ['base64'], ['1.0']]);
  assert.ok(body.split('\r\n').every((line) => line.length <= 76));
});

test('any charset and encoding is read, and other parameters stay', async (t) => {
  const latin1 = 'MIME-Version: 1.0\r\nContent-Type: text/plain; charset=iso-8859-1; format=flowed\r\n';
  const eml = asLatin1(`${head}${latin1}Content-Transfer-Encoding: 8bit\r\n\r\nTschüß\r\n`);
  const first = await arrived(t, eml);
  assert.match(plain(first.body), /^Tschüß\r\n\r\nGrüße/);
  assert.deepEqual(first.type, ['text/plain; charset=utf-8; format=flowed']);
  const second = await arrived(
    t,
    `${head}${latin1}Content-Transfer-Encoding: Quoted-Printable\r\n\r\nTsch=FC=\r\n=DF\r\n`,
  );
  assert.match(plain(second.body), /^Tschüß\r\n\r\nGrüße/);
  const base64 = Buffer.from('Tschüß').toString('base64');
  const utf8 = `Content-Type: text/plain; charset="UTF-8"\r\nContent-Transfer-Encoding: base64\r\n\r\n${base64}\r\n`;
  assert.match(plain((await arrived(t, head + utf8)).body), /^Tschüß\r\n\r\nGrüße/);
});

test('HTML gets it before the end of its body', async (t) => {
  const eml = `${head}Content-Type: text/html\r\n\r\n<html><body>Hi</BODY></html>\r\n`;
  assert.equal(plain((await arrived(t, eml)).body), `<html><body>Hi${html}\r\n</BODY></html>\r\n`);
});

test('of several parts the first text and the first HTML get it; attachments and forwarded mail do not', async (t) => {
  const attached = [
    '--a\r\nContent-Type: text/plain\r\nContent-Disposition: attachment; filename=a.txt\r\n\r\nattached',
    '--a\r\nContent-Type: text/html\r\n\r\n<p>second</p>',
    '--a\r\nContent-Type: message/rfc822\r\n\r\nSubject: y\r\nContent-Type: text/plain\r\n\r\nforwarded',
    `--a\r\nContent-Type: application/octet-stream\r\n\r\n${randomBytes(100).toString('hex')}`,
    '--a--\r\nepilogue\r\n',
  ].join('\r\n');
  const body = [
    'preamble',
    '--a\r\nContent-Type: multipart/alternative; boundary=b\r\n',
    '--b\r\nContent-Type: text/plain\r\n\r\nfirst',
    '--b\r\nContent-Type: text/html\r\n\r\n<p>first</p>',
    `--b--\r\n${attached}`,
  ].join('\r\n');
  const eml = `${head}Content-Type: multipart/mixed;\r\n boundary="a"\r\n\r\n${body}`;
  const { body: changed, type } = await arrived(t, eml);
  assert.deepEqual(type, ['multipart/mixed; boundary="a"']);
  assert.equal(plain(partOf(changed, 'text/plain')), 'first\r\n\r\nGrüße & mehr,\r\nexample.org\r\n');
  assert.equal(plain(partOf(changed, 'text/html')), `<p>first</p>${html}\r\n`);
  assert.ok(changed.startsWith('preamble\r\n--a\r\nContent-Type: multipart/alternative; boundary=b\r\n\r\n--b\r\n'));
  assert.ok(changed.endsWith(`\r\n--b--\r\n${attached}`));
});

const bytes = randomBytes(60).toString('base64');
const signedPart = `Content-Type: multipart/signed; boundary=s\r\n\r\n--s\r\n\r\nsigned \r\n--s\r\nContent-Type: application/pgp-signature\r\n\r\n${bytes}\r\n--s--\r\n`;
const untouched = {
  signed: signedPart,
  encrypted: `Content-Type: multipart/encrypted; boundary=s\r\n\r\n--s\r\nContent-Type: text/plain\r\n\r\nVersion: 1\r\n--s--\r\n`,
  'S/MIME': `Content-Type: application/pkcs7-mime; smime-type=enveloped-data\r\nContent-Transfer-Encoding: base64\r\n\r\n${bytes}\r\n`,
  'PGP in the text': `Content-Type: text/plain\r\n\r\n-----BEGIN PGP SIGNED MESSAGE-----\r\n\r\nhello\r\n`,
  'signed within another': `Content-Type: multipart/mixed; boundary=m\r\n\r\n--m\r\n${signedPart}--m--\r\n`,
  'PGP in a part': `Content-Type: multipart/mixed; boundary=m\r\n\r\n--m\r\n\r\n-----BEGIN PGP MESSAGE-----\r\n--m--\r\n`,
  'signed by DKIM': `DKIM-Signature: v=1; d=example.com\r\n\r\nHello!\r\n`,
  'a picture': `Content-Type: image/png\r\nContent-Transfer-Encoding: base64\r\n\r\n${bytes}\r\n`,
  'an unknown charset': `Content-Type: text/plain; charset=x-klingon\r\n\r\nHello!\r\n`,
  'a charset that is not true': `Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n=FF=FE\r\n`,
  'no parts at all': `Content-Type: multipart/mixed; boundary=m\r\n\r\nHello!\r\n`,
  'a boundary without a name': `Content-Type: multipart/mixed\r\n\r\nHello!\r\n`,
  'a long text': `Content-Type: text/plain\r\n\r\n${'long \r\n'.repeat(200_000)}`,
  'a long text among others': `Content-Type: multipart/mixed; boundary=m\r\n\r\n--m\r\n\r\n${'long \r\n'.repeat(200_000)}\r\n--m--\r\n`,
};
for (const [what, mime] of Object.entries(untouched)) {
  test(`a mail stays byte by byte: ${what}`, async (t) => {
    const { body } = await arrived(t, head + mime);
    assert.equal(body, mime.slice(mime.indexOf('\r\n\r\n') + 4));
  });
}

test('mail that comes in is left alone', async (t) => {
  assert.equal((await arrived(t, `${head}\r\nHello!\r\n`, { from: 'eve@example.com' })).body, 'Hello!\r\n');
});
