import { generateKeyPairSync } from 'node:crypto';
import { join } from 'node:path';
import { createSecureContext, type SecureContext } from 'node:tls';
import type { ServerCertificateService } from '../contracts/server-certificate.js';
import { writeFileAtomic } from '../disk/atomic.js';
import { unlessMissing } from '../disk/fault.js';
import { readRegularText } from '../disk/file-layer.js';
import { tlsMaterial, type TlsMaterial } from './tls-material.js';
import { makeCertificate } from './x509.js';

/** Key and chain in one file, so that a crash cannot separate them. */
const fileOf = (data: string): string => join(data, 'certificate.pem');

const selfSignedMs = 397 * 86_400_000;
const who = 'The certificate of the server';

/**
 * The certificate in the data folder; undefined when there is none.
 *
 * @throws start error for one that cannot be used
 */
export async function readServerCertificate(data: string): Promise<TlsMaterial | undefined> {
  const text = await unlessMissing(readRegularText(fileOf(data)));
  if (text === undefined) return undefined;
  const end = text.indexOf('-----BEGIN CERTIFICATE-----');
  return tlsMaterial(text.slice(0, Math.max(0, end)), text.slice(Math.max(0, end)), `${who}, ${fileOf(data)}`);
}

/** The certificate of listeners that name none: from the data folder, else self-signed, made at each start. */
export class ServerCertificate implements ServerCertificateService {
  readonly #data: string;
  readonly #watchers: ((material: TlsMaterial) => void)[] = [];
  /** By DNS name. */
  readonly #challenges = new Map<string, SecureContext>();
  #material: TlsMaterial;
  #isIssued: boolean;

  private constructor(data: string, material: TlsMaterial, isIssued: boolean) {
    this.#data = data;
    this.#material = material;
    this.#isIssued = isIssued;
  }

  static async open(data: string, { hostname, now }: { readonly hostname: string; readonly now: number }) {
    const read = await readServerCertificate(data);
    return new ServerCertificate(data, read ?? selfSigned(hostname, now), read !== undefined);
  }

  get material(): TlsMaterial {
    return this.#material;
  }

  /** False for the self-signed one. */
  get isIssued(): boolean {
    return this.#isIssued;
  }

  get issued(): string | undefined {
    return this.#isIssued ? this.#material.cert : undefined;
  }

  /** Calls the watcher after each change. */
  watch(watcher: (material: TlsMaterial) => void): void {
    this.#watchers.push(watcher);
  }

  async install(key: string, cert: string): Promise<void> {
    const material = tlsMaterial(key, cert, who);
    await writeFileAtomic(fileOf(this.#data), `${key.trim()}\n${cert.trim()}\n`);
    this.#material = material;
    this.#isIssued = true;
    for (const watcher of this.#watchers) watcher(material);
  }

  answerChallenge(name: string, pair: { readonly key: string; readonly cert: string }): () => void {
    const context = createSecureContext(pair);
    this.#challenges.set(name, context);
    return () => {
      if (this.#challenges.get(name) === context) this.#challenges.delete(name);
    };
  }

  /** For a handshake with the protocol `acme-tls/1`; undefined when no challenge of that name is open. */
  challengeFor(name: string): SecureContext | undefined {
    return this.#challenges.get(name.toLowerCase());
  }
}

function selfSigned(hostname: string, now: number): TlsMaterial {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const key = privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
  const cert = makeCertificate({ names: [hostname], key: privateKey, from: now - 3_600_000, to: now + selfSignedMs });
  return tlsMaterial(key, cert, who);
}
