import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { createSecureContext, rootCertificates } from 'node:tls';
import { startError } from '../problem.js';

/** A private key and its certificate. */
export interface TlsMaterial {
  readonly key: string;
  readonly cert: string;
  /** Of the certificate, in milliseconds since 1970. */
  readonly validFrom: number;
  readonly validTo: number;
}

/** TLS settings of a listener. */
interface TlsSettings {
  readonly name: string;
  /** Begins the sentence of a start error; default the SMTP listener of that name. */
  readonly who?: string;
  readonly tls: 'none' | 'starttls' | 'implicit';
  /** Paths of PEM files, or their text. */
  readonly key?: string | undefined;
  readonly cert?: string | undefined;
}

/** Whether the listener uses the certificate of the server. */
export const usesServerCertificate = ({ tls, key, cert }: Omit<TlsSettings, 'name' | 'who'>): boolean =>
  tls !== 'none' && key === undefined && cert === undefined;

/**
 * Reads key and certificate of a listener; undefined without TLS. Throws a start error when one is unreadable or
 * no PEM, or when they do not match: there is no fallback.
 *
 * @param folder base of relative paths
 * @param ofServer for a listener that names neither key nor cert
 */
export function readTlsMaterial(
  listener: TlsSettings,
  folder: string,
  ofServer?: TlsMaterial,
): TlsMaterial | undefined {
  const { name, tls, who = `SMTP listener ${name}` } = listener;
  if (tls === 'none') return undefined;
  if (usesServerCertificate(listener)) return ofServer;
  return readPair(listener, who, folder);
}

/** Reads a pair that must be there; `who` begins the sentence of the start error. */
export function readPair({ key, cert }: Pick<TlsSettings, 'key' | 'cert'>, who: string, folder: string): TlsMaterial {
  if (key === undefined || cert === undefined) {
    throw startError(`${who}: key and cert belong together; name a PEM file for each, or for none.`);
  }
  return tlsMaterial(readPem(key, 'key', who, folder), readPem(cert, 'cert', who, folder), who);
}

/** Checks that the PEM texts belong together. Throws a start error. */
export function tlsMaterial(key: string, cert: string, who: string): TlsMaterial {
  const { validFrom, validTo } = checkPair(key, cert, who);
  return { key, cert, validFrom: Date.parse(validFrom), validTo: Date.parse(validTo) };
}

/** True for the text of a key or certificate, false for a path. */
export const isPem = (given: string): boolean => given.includes('-----BEGIN ');

function readPem(given: string, part: 'key' | 'cert', who: string, folder: string): string {
  if (isPem(given)) return given;
  const path = resolve(folder, given);
  try {
    const text = readFileSync(path, 'utf8');
    if (isPem(text)) return text;
  } catch (cause) {
    throw startError(`${who}: the ${part} file ${path} cannot be read.`, cause);
  }
  throw startError(`${who}: the ${part} file ${path} is not a PEM file.`);
}

function checkPair(key: string, cert: string, who: string): X509Certificate {
  const certificate = attempt(() => new X509Certificate(cert), `${who}: cert is not a certificate.`);
  const privateKey = attempt(() => createPrivateKey(key), `${who}: key is not a private key, or it is encrypted.`);
  if (!certificate.checkPrivateKey(privateKey)) {
    throw startError(`${who}: key and cert do not belong together.`);
  }
  attempt(() => createSecureContext({ key, cert, ca: [] }), `${who}: key and cert cannot be used for TLS.`);
  return certificate;
}

function attempt<T>(make: () => T, complaint: string): T {
  try {
    return make();
  } catch (cause) {
    throw startError(complaint, cause);
  }
}

/** Facts about a certificate and its chain, for health, metrics and pages. */
export interface CertificateFacts {
  /** Milliseconds since 1970. */
  readonly from: number;
  readonly to: number;
  /** DNS names and addresses. */
  readonly names: readonly string[];
  covers(hostname: string): boolean;
  /** `private`: complete, but the last issuer is none of the authorities in Node.js. */
  readonly chain: 'self-signed' | 'complete' | 'private' | 'broken';
  readonly rsaBits: number | undefined;
}

const maxCertificates = 20;

/** @param pem the certificate of the server first */
export function certificatesIn(pem: string): readonly X509Certificate[] {
  const texts = pem.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  return texts.slice(0, maxCertificates).map((text) => new X509Certificate(text));
}

/** @param pem the certificate of the server first. Throws when it contains none. */
export function certificateFacts(pem: string): CertificateFacts {
  const [own, ...issuers] = certificatesIn(pem);
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
