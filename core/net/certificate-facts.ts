import { X509Certificate } from 'node:crypto';
import { rootCertificates } from 'node:tls';

/** What is told of a certificate with its chain. */
export interface CertificateFacts {
  /** Milliseconds since 1970. */
  readonly from: number;
  readonly to: number;
  /** DNS names and addresses. */
  readonly names: readonly string[];
  covers(hostname: string): boolean;
  /** `private`: whole as far as it goes, and its last issuer is none of the authorities that Node.js knows. */
  readonly chain: 'self-signed' | 'complete' | 'private' | 'broken';
  readonly rsaBits: number | undefined;
}

const mostCertificates = 20;

/** @param pem the certificate of the server first. Throws when there is none in it. */
export function certificateFacts(pem: string): CertificateFacts {
  const texts = pem.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  const [own, ...issuers] = texts.slice(0, mostCertificates).map((text) => new X509Certificate(text));
  if (own === undefined) throw new Error('there is no certificate in it');
  return {
    from: Date.parse(own.validFrom),
    to: Date.parse(own.validTo),
    names: (own.subjectAltName ?? '').split(', ').flatMap((name) => /^(?:DNS|IP Address):(.+)$/.exec(name)?.[1] ?? []),
    covers: (hostname) => own.checkHost(hostname) !== undefined,
    chain: chainOf(own, issuers),
    rsaBits: own.publicKey.asymmetricKeyType === 'rsa' ? own.publicKey.asymmetricKeyDetails?.modulusLength : undefined,
  };
}

function chainOf(own: X509Certificate, issuers: readonly X509Certificate[]): CertificateFacts['chain'] {
  if (isSelfSigned(own)) return 'self-signed';
  let last = own;
  for (const issuer of issuers) {
    if (!isIssuedBy(last, issuer)) return 'broken';
    last = issuer;
  }
  if (roots().some((root) => root.fingerprint256 === last.fingerprint256 || isIssuedBy(last, root))) return 'complete';
  return 'private';
}

const isSelfSigned = (certificate: X509Certificate): boolean => isIssuedBy(certificate, certificate);

const isIssuedBy = (certificate: X509Certificate, issuer: X509Certificate): boolean =>
  certificate.checkIssued(issuer) && certificate.verify(issuer.publicKey);

function roots(): readonly X509Certificate[] {
  return rootCertificates.map((text) => new X509Certificate(text));
}
