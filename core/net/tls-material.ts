import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { createSecureContext } from 'node:tls';
import { startError } from '../problem.js';
import type { ListenerSettings } from '../smtp/server/listener-options.js';

/** A private key and the certificate that goes with it. */
export interface TlsMaterial {
  readonly key: string;
  readonly cert: string;
}

/**
 * Reads key and certificate of a listener; undefined when it has no TLS. Throws a start error when one is missing, cannot be
 * read, is no PEM, or the two do not belong together: there is no certificate to fall back on.
 *
 * @param folder what relative paths are relative to
 */
export function readTlsMaterial(listener: ListenerSettings, folder: string): TlsMaterial | undefined {
  const { name, tls } = listener;
  if (tls === 'none') return undefined;
  if (listener.key === undefined || listener.cert === undefined) {
    throw startError(`SMTP listener ${name}: tls "${tls}" needs key and cert; name a PEM file for each.`);
  }
  const key = readPem(listener.key, 'key', name, folder);
  const cert = readPem(listener.cert, 'cert', name, folder);
  checkPair(key, cert, name);
  return { key, cert };
}

/** The text of a key or a certificate, not the path of its file. */
export const isPem = (given: string): boolean => given.includes('-----BEGIN ');

function readPem(given: string, part: 'key' | 'cert', name: string, folder: string): string {
  if (isPem(given)) return given;
  const path = resolve(folder, given);
  try {
    const text = readFileSync(path, 'utf8');
    if (isPem(text)) return text;
  } catch (cause) {
    throw startError(`SMTP listener ${name}: the ${part} file ${path} cannot be read.`, cause);
  }
  throw startError(`SMTP listener ${name}: the ${part} file ${path} is not a PEM file.`);
}

function checkPair(key: string, cert: string, name: string): void {
  const certificate = attempt(() => new X509Certificate(cert), `SMTP listener ${name}: cert is not a certificate.`);
  const privateKey = attempt(
    () => createPrivateKey(key),
    `SMTP listener ${name}: key is not a private key, or it is encrypted.`,
  );
  if (!certificate.checkPrivateKey(privateKey)) {
    throw startError(`SMTP listener ${name}: key and cert do not belong together.`);
  }
  attempt(() => createSecureContext({ key, cert }), `SMTP listener ${name}: key and cert cannot be used for TLS.`);
}

function attempt<T>(make: () => T, complaint: string): T {
  try {
    return make();
  } catch (cause) {
    throw startError(complaint, cause);
  }
}
