import { createHash, type X509Certificate } from 'node:crypto';

/** A TLSA record (RFC 6698 §2.1). */
export interface TlsaRecord {
  /** 2: trust anchor (DANE-TA), 3: certificate of the server (DANE-EE). */
  readonly usage: number;
  /** 0: the whole certificate, 1: its public key. */
  readonly selector: number;
  /** 0: the data itself, 1: its SHA-256, 2: its SHA-512. */
  readonly matching: number;
  /** Lower case hex. */
  readonly data: string;
}

/** What the TLSA records of a mail server demand (RFC 7672). */
export interface Dane {
  /** Name below which the records are (the TLSA base domain); sent as SNI. */
  readonly base: string;
  /** Names of which the certificate must have one, when an authority matches. */
  readonly names: readonly string[];
  /** All that are published, at least one. */
  readonly records: readonly TlsaRecord[];
}

const digests: Readonly<Record<number, { readonly name: string; readonly hexLength: number }>> = {
  1: { name: 'sha256', hexLength: 64 },
  2: { name: 'sha512', hexLength: 128 },
};

/** The records that authenticate a mail server; those for public authorities (usage 0 and 1) do not (RFC 7672 §3.1.3). */
export function usableTlsa({ records }: Pick<Dane, 'records'>): readonly TlsaRecord[] {
  return records.filter(({ usage, selector, matching, data }) => {
    const isKnown = (usage === 2 || usage === 3) && (selector === 0 || selector === 1);
    const isWhole = matching === 0 ? data.length > 0 : data.length === digests[matching]?.hexLength;
    return isKnown && isWhole;
  });
}

/** As in a zone file: `3 1 1 8cb0…`. */
export const tlsaText = ({ usage, selector, matching, data }: TlsaRecord): string =>
  `${usage} ${selector} ${matching} ${data}`;

/** Whether the record is about that certificate, whatever its usage. */
function matchesTlsa({ selector, matching, data }: TlsaRecord, certificate: X509Certificate): boolean {
  const selected = selector === 0 ? certificate.raw : certificate.publicKey.export({ type: 'spki', format: 'der' });
  const digest = digests[matching]?.name;
  return data === (digest === undefined ? selected.toString('hex') : createHash(digest).update(selected).digest('hex'));
}

/** Why a certificate is refused; the codes are those of TLS errors where there is one. */
export class DaneFault extends Error {
  readonly code: 'DANE_NO_MATCH' | 'ERR_TLS_CERT_ALTNAME_INVALID' | 'CERT_HAS_EXPIRED';

  constructor(code: DaneFault['code'], message: string) {
    super(message);
    this.name = 'DaneFault';
    this.code = code;
  }
}

/** Issuers of a server certificate that are looked at. */
const maxIssuers = 10;
/** Name constraints (RFC 5280 §4.2.1.10), which are not evaluated here. */
const nameConstraints = Buffer.from('0603551d1e', 'hex');

/**
 * Undefined when one of the usable records matches the certificates of a server (RFC 7672 §3.1): its own, whatever
 * names and dates it has, or an issuer, and then the chain to it must be valid and the certificate for one of the names.
 *
 * @param chain as the server sent it, its own certificate first, each followed by its issuer
 */
export function daneFault(chain: readonly X509Certificate[], dane: Dane, now: number): DaneFault | undefined {
  const usable = usableTlsa(dane);
  const [own] = chain;
  const noMatch = new DaneFault('DANE_NO_MATCH', 'The certificate matches none of the TLSA records');
  if (own === undefined) return noMatch;
  if (usable.some((record) => record.usage === 3 && matchesTlsa(record, own))) return undefined;
  const anchors = usable.filter(({ usage }) => usage === 2);
  for (const [index, issuer] of chain.slice(1, maxIssuers + 1).entries()) {
    const issued = chain[index] ?? own;
    if (!hasIssued(issuer, issued)) return noMatch;
    if (anchors.some((record) => matchesTlsa(record, issuer))) {
      return pathFault(chain.slice(0, index + 2), dane.names, now);
    }
  }
  return noMatch;
}

const hasIssued = (issuer: X509Certificate, issued: X509Certificate): boolean =>
  issuer.ca && !issuer.raw.includes(nameConstraints) && issued.checkIssued(issuer) && issued.verify(issuer.publicKey);

function pathFault(path: readonly X509Certificate[], names: readonly string[], now: number): DaneFault | undefined {
  const isValid = path.every(({ validFrom, validTo }) => Date.parse(validFrom) <= now && now <= Date.parse(validTo));
  if (!isValid) {
    return new DaneFault('CERT_HAS_EXPIRED', 'A TLSA record names the issuer of the certificate, which is out of date');
  }
  if (names.some((name) => path[0]?.checkHost(name, { subject: 'default', partialWildcards: false }) !== undefined)) {
    return undefined;
  }
  const text = `A TLSA record names the issuer of the certificate, which is not for ${names[0] ?? 'the server'}`;
  return new DaneFault('ERR_TLS_CERT_ALTNAME_INVALID', text);
}
