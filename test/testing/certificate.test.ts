import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { test } from 'node:test';
import { createSecureContext } from 'node:tls';
import { selfSigned } from '../kit/certificate.js';

test('a certificate can be used whatever the length of its name', () => {
  for (let length = 1; length <= 60; length += 1) {
    const name = `${'a'.repeat(length)}.example`;
    // The length of a signature differs from one to the next.
    for (let round = 0; round < 5; round += 1) {
      const pair = selfSigned(name);
      createSecureContext(pair);
      assert.equal(new X509Certificate(pair.cert).checkHost(name), name);
    }
  }
});
