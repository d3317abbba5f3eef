import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { dkimVerify } from 'mailauth/lib/dkim/verify.js';
import { DkimSigner } from '../../../plugins/client-queue/delivery/dkim.js';
import { SmtpSink } from '../../support/smtp-sink.js';
import { temporaryFolder } from '../../support/temporary-folder.js';
import { outboundFixture } from './outbound-fixture.js';

const pem = { type: 'pkcs8', format: 'pem' } as const;
const spki = { type: 'spki', format: 'der' } as const;

/** A folder with keys of both kinds, and what the DNS would say of them. */
async function keys(t: Parameters<typeof temporaryFolder>[0]) {
  const folder = await temporaryFolder(t);
  const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const ed = generateKeyPairSync('ed25519');
  await writeFile(join(folder, 'rsa.pem'), rsa.privateKey.export(pem));
  await writeFile(join(folder, 'ed.pem'), ed.privateKey.export(pem));
  await writeFile(join(folder, 'none.pem'), 'nothing');
  const records = new Map([
    ['s1._domainkey.example.org', `v=DKIM1; k=rsa; p=${rsa.publicKey.export(spki).toString('base64')}`],
    [
      's2._domainkey.example.net',
      `v=DKIM1; k=ed25519; p=${ed.publicKey.export(spki).subarray(-32).toString('base64')}`,
    ],
  ]);
  const resolver = (name: string) => {
    const record = records.get(name);
    return record === undefined ? Promise.reject(new Error('no record')) : Promise.resolve([[record]]);
  };
  return { folder, resolver };
}

const dkim = {
  'example.org': { selector: 's1', key: 'rsa.pem' },
  'example.net': { selector: 's2', key: 'ed.pem' },
};

describe('mail of a domain that has a key', () => {
  for (const [domain, from] of [
    ['example.org', 'Anna <anna@example.org>'],
    ['example.net', 'ben@example.net'],
  ]) {
    test(`is signed for ${domain}, and the signature is good`, async (t) => {
      const { folder, resolver } = await keys(t);
      const sink = await SmtpSink.start(t);
      const fixture = await outboundFixture(t, { folder, options: { port: sink.port, dkim } });
      const entry = await fixture.delivered({ to: ['bob@sink.example'], text: `hello\r\nFrom: ${from}` });
      assert.equal(entry.state, 'delivered', entry.lastReply?.text);
      const text = sink.messages[0]?.text ?? Buffer.alloc(0);
      assert.match(String(text), /^DKIM-Signature: /);
      const { results } = await dkimVerify(text, { resolver });
      assert.deepEqual(
        results.map(({ signingDomain, status }) => [signingDomain, status.result]),
        [[domain, 'pass']],
      );
    });
  }

  test('is signed with each key of its domain', async (t) => {
    const { folder, resolver } = await keys(t);
    const sink = await SmtpSink.start(t);
    const both = { 'example.net': [dkim['example.net'], { selector: 's1', key: 'rsa.pem' }] };
    const fixture = await outboundFixture(t, { folder, options: { port: sink.port, dkim: both } });
    await fixture.delivered({ to: ['bob@sink.example'], text: 'hello\r\nFrom: ben@example.net' });
    const text = sink.messages[0]?.text ?? Buffer.alloc(0);
    assert.equal(String(text).match(/^DKIM-Signature: /gm)?.length, 2);
    const published = (name: string) =>
      resolver(name.replace('s1._domainkey.example.net', 's1._domainkey.example.org'));
    const { results } = await dkimVerify(text, { resolver: published });
    assert.deepEqual(results.map(({ selector, status }) => `${selector} ${status.result}`).toSorted(), [
      's1 pass',
      's2 pass',
    ]);
  });

  for (const [what, text] of [
    ['more fields', `X: 1\r\n`.repeat(2000)],
    ['a longer header', `X: ${'1'.repeat(990)}\r\n`.repeat(300)],
  ]) {
    test(`is not signed by its envelope with ${what} than are read`, async (t) => {
      const { folder } = await keys(t);
      const sink = await SmtpSink.start(t);
      const fixture = await outboundFixture(t, { folder, options: { port: sink.port, dkim } });
      const header = `hello\r\n${text}From: eve@other.example`;
      await fixture.delivered({ to: ['bob@sink.example'], sender: 'anna@example.org', text: header });
      assert.equal(String(sink.messages[0]?.text).slice(0, 10), 'Received: ');
    });
  }

  test('is not signed when a stranger has sent it, though its author is ours', async (t) => {
    const { folder } = await keys(t);
    const sink = await SmtpSink.start(t);
    const fixture = await outboundFixture(t, { folder, options: { port: sink.port, dkim } });
    const text = 'hello\r\nFrom: eve@other.example\r\nFrom: anna@example.org';
    await fixture.delivered({ to: ['bob@sink.example'], sender: 'anna@example.org', entry: { stranger: true }, text });
    assert.equal(String(sink.messages[0]?.text).slice(0, 10), 'Received: ');
  });

  test('goes as it is when it comes from elsewhere', async (t) => {
    const { folder } = await keys(t);
    const sink = await SmtpSink.start(t);
    const fixture = await outboundFixture(t, { folder, options: { port: sink.port, dkim } });
    await fixture.delivered({
      to: ['bob@sink.example'],
      sender: 'eve@other.example',
      text: 'hello\r\nFrom: eve@other.example',
    });
    assert.equal(String(sink.messages[0]?.text).slice(0, 10), 'Received: ');
  });
});

test('a key that cannot be used is refused with its file', async (t) => {
  const { folder } = await keys(t);
  const signer = (key: string) => () => new DkimSigner({ 'example.org': { selector: 's1', key } }, folder);
  assert.throws(signer('missing.pem'), /missing\.pem, cannot be read/);
  assert.throws(signer('none.pem'), /none\.pem, is no private key/);
});
