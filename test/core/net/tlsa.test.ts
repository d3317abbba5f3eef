import assert from 'node:assert/strict';
import { createHash, generateKeyPairSync, type KeyObject, X509Certificate } from 'node:crypto';
import { describe, test } from 'node:test';
import { daneFault, tlsaText, type TlsaRecord, usableTlsa } from '../../../core/net/tlsa.js';
import { makeCertificate } from '../../../core/net/x509.js';
import { selfSigned } from '../../support/certificate.js';

const hour = 3_600_000;
const now = Date.now();
const life = { from: now - hour, to: now + hour };
const newKey = () => generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;

const rootKey = newKey();
const root = new X509Certificate(makeCertificate({ names: ['test root'], key: rootKey, ...life, authority: true }));
const issuedBy = (name: string, key: KeyObject, more: object = {}) =>
  new X509Certificate(
    makeCertificate({ names: ['mx.example.net'], key: newKey(), ...life, issuer: { name, key }, ...more }),
  );

/** The record that describes a certificate. */
function recordOf(certificate: X509Certificate, usage: number, selector = 1, matching = 1): TlsaRecord {
  const bytes = selector === 0 ? certificate.raw : certificate.publicKey.export({ type: 'spki', format: 'der' });
  const digest = ['', 'sha256', 'sha512'][matching] ?? '';
  const data = matching === 0 ? bytes.toString('hex') : createHash(digest).update(bytes).digest('hex');
  return { usage, selector, matching, data };
}

const faultOf = (
  chain: readonly X509Certificate[],
  records: readonly TlsaRecord[],
  names: readonly string[] = ['mx.example.net'],
  at = now,
) => daneFault(chain, { base: 'mx.example.net', names, records }, at)?.code;

describe('usable TLSA records', () => {
  const [certificate] = [new X509Certificate(selfSigned().cert)];
  const right = recordOf(certificate, 3);
  test('are of DANE-TA and DANE-EE, with known selectors and digests of the right length', () => {
    const good = [right, recordOf(certificate, 2, 0, 2), recordOf(certificate, 3, 0, 0)];
    const bad = [
      { ...right, usage: 0 },
      { ...right, usage: 1 },
      { ...right, usage: 4 },
      { ...right, selector: 2 },
      { ...right, matching: 3 },
      { ...right, matching: 2 },
      { ...right, data: right.data.slice(2) },
      { ...right, data: '' },
      { ...right, matching: 0, data: '' },
    ];
    assert.deepEqual(usableTlsa({ records: [...bad, ...good] }), good);
    assert.equal(tlsaText(right), `3 1 1 ${right.data}`);
  });
});

describe('a certificate of the server (DANE-EE)', () => {
  const own = new X509Certificate(selfSigned('somebody.else').cert);
  for (const selector of [0, 1]) {
    for (const matching of [0, 1, 2]) {
      test(`matches by selector ${selector} and matching type ${matching}, whatever its name and dates`, () => {
        const record = recordOf(own, 3, selector, matching);
        assert.equal(faultOf([own], [record], ['mx.example.net'], now + 100 * hour), undefined);
        const other = new X509Certificate(selfSigned('somebody.else').cert);
        assert.equal(faultOf([other], [record]), 'DANE_NO_MATCH');
      });
    }
  }

  test('may match the second of two records, while its key changes', () => {
    const next = new X509Certificate(selfSigned().cert);
    assert.equal(faultOf([own], [recordOf(next, 3), recordOf(own, 3)]), undefined);
  });

  test('does not match a record that is unusable, nor one of an authority', () => {
    assert.equal(faultOf([own], [recordOf(own, 1), recordOf(own, 2)]), 'DANE_NO_MATCH');
    assert.equal(faultOf([], [recordOf(own, 3)]), 'DANE_NO_MATCH');
  });
});

describe('an issuer of the certificate (DANE-TA)', () => {
  const own = issuedBy('test root', rootKey);
  for (const [selector, matching] of [
    [0, 1],
    [1, 2],
    [0, 0],
  ] as const) {
    test(`matches by selector ${selector} and matching type ${matching}`, () => {
      assert.equal(faultOf([own, root], [recordOf(root, 2, selector, matching)]), undefined);
    });
  }

  test('matches above another issuer', () => {
    const key = newKey();
    const middle = new X509Certificate(
      makeCertificate({
        names: ['middle'],
        key,
        ...life,
        authority: true,
        issuer: { name: 'test root', key: rootKey },
      }),
    );
    const below = issuedBy('middle', key);
    assert.equal(faultOf([below, middle, root], [recordOf(root, 2)]), undefined);
    assert.equal(faultOf([below, middle], [recordOf(middle, 2)]), undefined);
    assert.equal(faultOf([below, root], [recordOf(root, 2)]), 'DANE_NO_MATCH');
  });

  test('wants one of the names in the certificate', () => {
    assert.equal(faultOf([own, root], [recordOf(root, 2)], ['mx2.example.net']), 'ERR_TLS_CERT_ALTNAME_INVALID');
    assert.equal(faultOf([own, root], [recordOf(root, 2)], ['other.example', 'mx.example.net']), undefined);
  });

  test('wants certificates that are in date', () => {
    const past = issuedBy('test root', rootKey, { from: now - 2 * hour, to: now - hour });
    assert.equal(faultOf([past, root], [recordOf(root, 2)]), 'CERT_HAS_EXPIRED');
    assert.equal(faultOf([own, root], [recordOf(root, 2)], ['mx.example.net'], now - 10 * hour), 'CERT_HAS_EXPIRED');
  });

  test('must have signed it, and be an authority', () => {
    const forged = issuedBy('test root', newKey());
    assert.equal(faultOf([forged, root], [recordOf(root, 2)]), 'DANE_NO_MATCH');
    const key = newKey();
    const plain = new X509Certificate(makeCertificate({ names: ['plain'], key, ...life }));
    assert.equal(faultOf([issuedBy('plain', key), plain], [recordOf(plain, 2)]), 'DANE_NO_MATCH');
  });
});
