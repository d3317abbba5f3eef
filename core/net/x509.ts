import { createHash, createPublicKey, type KeyObject, sign } from 'node:crypto';

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
const yes = der(0x01, Buffer.from([0xff]));

/** UTCTime, up to 2049 (RFC 5280 §4.1.2.5). */
const time = (ms: number) => text(0x17, `${new Date(ms).toISOString().slice(2, 19).replace(/[-:T]/g, '')}Z`);

const oids = {
  ecdsaWithSha256: '2a8648ce3d040302',
  commonName: '550403',
  subjectAltName: '551d11',
  basicConstraints: '551d13',
  extensionRequest: '2a864886f70d01090e',
  acmeIdentifier: '2b0601050507011f',
} as const;

const algorithm = sequence(objectId(oids.ecdsaWithSha256));

const nameOf = (commonName: string) => sequence(der(0x31, sequence(objectId(oids.commonName), text(0x0c, commonName))));

const extension = (oid: string, value: Buffer, critical: boolean) =>
  sequence(objectId(oid), ...(critical ? [yes] : []), der(0x04, value));

const alternativeNames = (names: readonly string[]) =>
  extension(oids.subjectAltName, sequence(...names.map((name) => text(0x82, name))), false);

const signed = (content: Buffer, key: KeyObject) =>
  sequence(content, algorithm, der(0x03, Buffer.from([0]), sign('sha256', content, key)));

function pemOf(label: string, bytes: Buffer): string {
  return `-----BEGIN ${label}-----\n${bytes.toString('base64').replace(/.{1,64}/g, '$&\n')}-----END ${label}-----\n`;
}

export interface CertificateInput {
  /** DNS names; the first is the subject too. */
  readonly names: readonly [string, ...(readonly string[])];
  /** A public key, or a private key for its public half. */
  readonly key: KeyObject;
  /** Milliseconds since 1970. */
  readonly from: number;
  readonly to: number;
  /** Self-signed if absent: `key` is private then. The key is on P-256. */
  readonly issuer?: { readonly name: string; readonly key: KeyObject };
  /** For a certificate that issues others. */
  readonly authority?: boolean;
  /** SHA-256 of a key authorization: the certificate answers a TLS-ALPN-01 challenge (RFC 8737 §3). */
  readonly challenge?: Buffer;
}

/** A certificate (RFC 5280) as PEM, signed with ECDSA on P-256. */
export function makeCertificate({ names, key, from, to, authority, challenge, ...input }: CertificateInput): string {
  const issuer = input.issuer ?? { name: names[0], key };
  const publicKey = (key.type === 'private' ? createPublicKey(key) : key).export({ type: 'spki', format: 'der' });
  const serial = createHash('sha256').update(publicKey).update(String(from)).digest().subarray(0, 15);
  const extensions = [
    alternativeNames(names),
    ...(authority === true ? [extension(oids.basicConstraints, sequence(yes), true)] : []),
    ...(challenge === undefined ? [] : [extension(oids.acmeIdentifier, der(0x04, challenge), true)]),
  ];
  const content = sequence(
    der(0xa0, der(0x02, Buffer.from([2]))),
    der(0x02, Buffer.from([1]), serial),
    algorithm,
    nameOf(issuer.name),
    sequence(time(from), time(to)),
    nameOf(names[0]),
    publicKey,
    der(0xa3, sequence(...extensions)),
  );
  return pemOf('CERTIFICATE', signed(content, issuer.key));
}

/** A certificate request (RFC 2986) for DNS names, as DER; the private key is on P-256. */
export function certificateRequest(names: readonly string[], key: KeyObject): Buffer {
  const wanted = sequence(objectId(oids.extensionRequest), der(0x31, sequence(alternativeNames(names))));
  const content = sequence(
    der(0x02, Buffer.from([0])),
    sequence(),
    createPublicKey(key).export({ type: 'spki', format: 'der' }),
    der(0xa0, wanted),
  );
  return signed(content, key);
}
