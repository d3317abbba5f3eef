import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { describe, test } from 'node:test';
import { dkimText, mailZone, mtaStsRecord, zoneLine } from '../../../core/dns/mail-zone.js';

const pem = { type: 'pkcs8', format: 'pem' } as const;

describe('the records of a mail domain', () => {
  test('name the server, its addresses, who sends, who signs and where reports go', () => {
    const records = mailZone({
      domain: 'example.org',
      hostname: 'mail.example.net',
      addresses: ['192.0.2.1', '2001:db8::1'],
      dkim: [{ selector: 's1', text: 'v=DKIM1; k=ed25519; p=AAAA' }],
      stsPolicy: 'version: STSv1',
    });
    assert.deepEqual(
      records.map(zoneLine).filter((line) => !line.startsWith('_mta-sts.')),
      [
        'example.org. IN MX 10 mail.example.net.',
        'mail.example.net. IN A 192.0.2.1',
        'mail.example.net. IN AAAA 2001:db8::1',
        'example.org. IN TXT "v=spf1 mx -all"',
        's1._domainkey.example.org. IN TXT "v=DKIM1; k=ed25519; p=AAAA"',
        '_dmarc.example.org. IN TXT "v=DMARC1; p=none; rua=mailto:postmaster@example.org"',
        '_smtp._tls.example.org. IN TXT "v=TLSRPTv1; rua=mailto:postmaster@example.org"',
        'mta-sts.example.org. IN CNAME mail.example.net.',
      ],
    );
  });

  test('have an id of the MTA-STS policy that changes with the policy alone', () => {
    const id = (domain: string, policy: string) => /; id=(\w+)$/.exec(mtaStsRecord(domain, policy).value)?.[1];
    assert.match(id('example.org', 'mx: a') ?? '', /^[a-z0-9]{1,32}$/);
    assert.equal(id('example.org', 'mx: a'), id('example.net', 'mx: a'));
    assert.notEqual(id('example.org', 'mx: a'), id('example.org', 'mx: b'));
  });

  test('have none for MTA-STS where this server has no policy', () => {
    const records = mailZone({
      domain: 'example.org',
      hostname: 'mail.example.org',
      addresses: [],
      dkim: [],
      stsPolicy: undefined,
    });
    assert.ok(records.every(({ name }) => !name.includes('mta-sts')));
  });

  test('are split where a string would have more than 255 octets, and quoted', () => {
    const long = 'x'.repeat(300);
    assert.equal(
      zoneLine({ name: 'a', type: 'TXT', value: long }),
      `a. IN TXT ( "${long.slice(0, 255)}" "${long.slice(255)}" )`,
    );
    assert.equal(zoneLine({ name: 'a', type: 'TXT', value: 'say "a\\b"' }), 'a. IN TXT "say \\"a\\\\b\\""');
  });

  test('have the bare bytes of an Ed25519 key, and the whole structure of an RSA key', () => {
    const ed = generateKeyPairSync('ed25519');
    const bytes = ed.publicKey.export({ type: 'spki', format: 'der' }).subarray(-32).toString('base64');
    assert.equal(dkimText(ed.privateKey.export(pem).toString()), `v=DKIM1; k=ed25519; p=${bytes}`);
    const rsa = generateKeyPairSync('rsa', { modulusLength: 1024 });
    const der = rsa.publicKey.export({ type: 'spki', format: 'der' }).toString('base64');
    assert.equal(dkimText(rsa.privateKey.export(pem).toString()), `v=DKIM1; k=rsa; p=${der}`);
    assert.throws(() => dkimText(rsa.publicKey.export({ type: 'spki', format: 'pem' }).toString()));
  });
});
