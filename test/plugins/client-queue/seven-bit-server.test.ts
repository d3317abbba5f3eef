import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { dkimVerify } from 'mailauth/lib/dkim/verify.js';
import { simpleParser } from 'mailparser';
import { SmtpSink } from '../../support/smtp-sink.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { outboundFixture, outcomes } from './outbound-fixture.js';

const crlf = (text: string): Buffer => Buffer.from(text.replaceAll('\n', '\r\n'));
const head = 'From: anna@example.org\nSubject: s\nMIME-Version: 1.0\n';
const letter = (text: string) =>
  crlf(`${head}Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 8bit\n\n${text}`);

describe('8-bit mail to a server without 8BITMIME', () => {
  // The second is a file, which is sent as a stream.
  for (const [size, text] of [
    ['a small', 'Grüße\n'],
    ['a large', 'Grüße, a line of some length\n'.repeat(60_000)],
  ] as const) {
    test(`is encoded, then signed: ${size} message`, async (t) => {
      const folder = await temporaryFolder(t);
      const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
      await writeFile(join(folder, 'key.pem'), privateKey.export({ type: 'pkcs8', format: 'pem' }));
      const record = `v=DKIM1; k=rsa; p=${publicKey.export({ type: 'spki', format: 'der' }).toString('base64')}`;
      const dkim = { 'example.org': { selector: 's1', key: 'key.pem' } };
      const sink = await SmtpSink.start(t, { capabilities: ['PIPELINING', 'SIZE 100000000'] });
      const fixture = await outboundFixture(t, { folder, options: { port: sink.port, dkim } });
      const entry = await fixture.delivered({ to: ['bob@sink.example'], message: letter(text) });
      assert.deepEqual(outcomes(entry), ['bob@sink.example delivered 250 2.0.0']);
      const [sunk] = sink.messages;
      assert.ok(sunk !== undefined);
      assert.ok(sunk.text.every((byte) => byte < 128));
      assert.doesNotMatch(sunk.envelope.join(), /BODY=/);
      const { results } = await dkimVerify(sunk.text, { resolver: () => Promise.resolve([[record]]) });
      assert.deepEqual(
        results.map(({ status }) => status.result),
        ['pass'],
      );
      assert.equal((await simpleParser(sunk.text)).text?.trim(), text.trim());
    });
  }

  test('goes as it is to a server that offers it', async (t) => {
    const sink = await SmtpSink.start(t);
    const fixture = await outboundFixture(t, { options: { port: sink.port } });
    await fixture.delivered({ to: ['bob@sink.example'], message: letter('Grüße\n') });
    assert.ok(sink.messages[0]?.text.includes(letter('Grüße\n')));
  });

  test('bounces where a signature would break', async (t) => {
    const sink = await SmtpSink.start(t, { capabilities: ['PIPELINING'] });
    const fixture = await outboundFixture(t, { options: { port: sink.port } });
    const type = 'Content-Type: multipart/signed; protocol="application/pgp-signature"; boundary=b\n';
    const message = crlf(`${head}${type}\n--b\n\nGrüße\n--b\nContent-Type: application/pgp-signature\n\nx\n--b--\n`);
    const entry = await fixture.delivered({ to: ['bob@sink.example'], message });
    assert.deepEqual(outcomes(entry), ['bob@sink.example bounced 554 5.6.3']);
    assert.equal(sink.messages.length, 0);
  });
});
