import { generateKeyPairSync } from 'node:crypto';
import { systemClock } from '../../core/clock.js';
import { makeCertificate } from '../../core/net/x509.js';

/** PEM texts of a key and of its certificate. */
export interface KeyPair {
  readonly key: string;
  readonly cert: string;
}

/** A key and a self-signed certificate for `name` (RFC 5280), valid for an hour around now. */
export function selfSigned(name = 'localhost'): KeyPair {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const hour = 3_600_000;
  const now = systemClock.now();
  return {
    key: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
    cert: makeCertificate({ names: [name], key: privateKey, from: now - hour, to: now + hour }),
  };
}
