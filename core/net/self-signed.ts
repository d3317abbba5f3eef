import { createPublicKey, generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import { systemClock } from '../clock.js';

/** PEM texts of a key and of its certificate. */
export interface KeyPair {
  readonly key: string;
  readonly cert: string;
}

/** One DER element (X.690): tag, length, content. */
function der(tag: number, ...content: readonly Buffer[]): Buffer {
  const body = Buffer.concat(content);
  const { length } = body;
  const size = length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...size]), body]);
}

const sequence = (...content: readonly Buffer[]) => der(0x30, ...content);
const objectId = (hex: string) => der(0x06, Buffer.from(hex, 'hex'));
const text = (tag: number, value: string) => der(tag, Buffer.from(value));
const time = (date: Date) => text(0x17, `${date.toISOString().slice(2, 19).replace(/[-:T]/g, '')}Z`);

const ecdsaWithSha256 = sequence(objectId('2a8648ce3d040302'));
const subjectAltName = objectId('551d11');
const commonName = objectId('550403');

const hourMs = 3_600_000;

interface SelfSignedOptions {
  /** On the curve P-256; a new one if absent. */
  readonly privateKey?: KeyObject;
  /** From an hour ago; an hour if absent. */
  readonly validDays?: number;
}

/** A key and a self-signed certificate for `name` (RFC 5280). */
export function selfSigned(name = 'localhost', { validDays = 1 / 24, ...given }: SelfSignedOptions = {}): KeyPair {
  const privateKey = given.privateKey ?? generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
  const subject = sequence(der(0x31, sequence(commonName, text(0x0c, name))));
  const now = systemClock.now();
  const from = new Date(now - hourMs);
  const until = new Date(now + validDays * 24 * hourMs);
  const certificate = sequence(
    der(0xa0, der(0x02, Buffer.from([2]))),
    der(0x02, Buffer.from([1])),
    ecdsaWithSha256,
    subject,
    sequence(time(from), time(until)),
    subject,
    createPublicKey(privateKey).export({ type: 'spki', format: 'der' }),
    der(0xa3, sequence(sequence(subjectAltName, der(0x04, sequence(text(0x82, name)))))),
  );
  const signature = der(0x03, Buffer.from([0]), sign('sha256', certificate, privateKey));
  return {
    key: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
    cert: pem(sequence(certificate, ecdsaWithSha256, signature)),
  };
}

const pem = (bytes: Buffer) =>
  `-----BEGIN CERTIFICATE-----\n${bytes.toString('base64').replace(/.{1,64}/g, '$&\n')}-----END CERTIFICATE-----\n`;
