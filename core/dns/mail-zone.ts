import { createHash, createPrivateKey, createPublicKey } from 'node:crypto';
import { isIPv6 } from 'node:net';

/** A DNS record. Names are absolute, without a trailing dot. */
export interface ZoneRecord {
  readonly name: string;
  readonly type: 'A' | 'AAAA' | 'CNAME' | 'MX' | 'TXT';
  /** A TXT record as one text; an MX record as `10 mail.example.org`. */
  readonly value: string;
  /** A few words: what it is for. */
  readonly purpose: string;
}

export interface MailZoneInput {
  readonly domain: string;
  /** Name of the server that takes and sends the mail of the domain. */
  readonly hostname: string;
  /** Public addresses of the server; empty when unknown. */
  readonly addresses: readonly string[];
  readonly dkim: readonly DkimPublication[];
  /** Text of the MTA-STS policy that this server serves; undefined when it serves none. */
  readonly stsPolicy: string | undefined;
}

/** A key that signs, and what its record says. */
export interface DkimPublication {
  readonly selector: string;
  /** As `dkimText` makes it. */
  readonly text: string;
}

export const mxRecord = (domain: string, hostname: string): ZoneRecord => ({
  name: domain,
  type: 'MX',
  value: `10 ${hostname}`,
  purpose: 'mail for the domain goes to this server',
});

export const spfRecord = (domain: string): ZoneRecord => ({
  name: domain,
  type: 'TXT',
  value: 'v=spf1 mx -all',
  purpose: 'SPF: only the servers above send mail of the domain',
});

export const dmarcRecord = (domain: string): ZoneRecord => ({
  name: `_dmarc.${domain}`,
  type: 'TXT',
  value: `v=DMARC1; p=none; rua=mailto:postmaster@${domain}`,
  purpose: 'DMARC: reports come to postmaster; when they show no mistake, say p=reject',
});

export const tlsReportRecord = (domain: string): ZoneRecord => ({
  name: `_smtp._tls.${domain}`,
  type: 'TXT',
  value: `v=TLSRPTv1; rua=mailto:postmaster@${domain}`,
  purpose: 'TLS-RPT: other servers report failures of TLS to postmaster',
});

/**
 * The record that tells other servers of the policy; its id changes with the policy alone (RFC 8461 §3.1).
 *
 * @param text of the policy
 */
export const mtaStsRecord = (domain: string, text: string): ZoneRecord => ({
  name: `_mta-sts.${domain}`,
  type: 'TXT',
  value: `v=STSv1; id=${createHash('sha256').update(text).digest('hex').slice(0, 16)}`,
  purpose: `MTA-STS: https://mta-sts.${domain}/.well-known/mta-sts.txt has a policy`,
});

/** The host of the policy; its certificate must have this name (RFC 8461 §3.3). */
export const stsHostRecord = (domain: string, hostname: string): ZoneRecord => ({
  name: `mta-sts.${domain}`,
  type: 'CNAME',
  value: hostname,
  purpose: 'MTA-STS: this server has the policy, under https with a certificate for that name',
});

export const dkimRecord = (domain: string, { selector, text }: DkimPublication): ZoneRecord => ({
  name: `${selector}._domainkey.${domain}`,
  type: 'TXT',
  value: text,
  purpose: `DKIM: the ${/k=(\w+)/.exec(text)?.[1] ?? ''} key that signs`,
});

/** All records that the mail of a domain needs. */
export function mailZone({ domain, hostname, addresses, dkim, stsPolicy }: MailZoneInput): readonly ZoneRecord[] {
  return [
    mxRecord(domain, hostname),
    ...addresses.map((value) => ({
      name: hostname,
      type: isIPv6(value) ? ('AAAA' as const) : ('A' as const),
      value,
      purpose: 'address of this server',
    })),
    spfRecord(domain),
    ...dkim.map((publication) => dkimRecord(domain, publication)),
    dmarcRecord(domain),
    tlsReportRecord(domain),
    ...(stsPolicy === undefined ? [] : [mtaStsRecord(domain, stsPolicy), stsHostRecord(domain, hostname)]),
  ];
}

/**
 * Text of the TXT record of a key (RFC 6376 §3.6.1); of Ed25519 the bare 32 bytes (RFC 8463 §4.2).
 *
 * @param pem private key
 * @throws an error when it is no private key in PEM
 */
export function dkimText(pem: string): string {
  const key = createPublicKey(createPrivateKey(pem));
  const isEd25519 = key.asymmetricKeyType === 'ed25519';
  const bytes = isEd25519
    ? Buffer.from(key.export({ format: 'jwk' }).x ?? '', 'base64url')
    : key.export({ type: 'spki', format: 'der' });
  return `v=DKIM1; k=${isEd25519 ? 'ed25519' : 'rsa'}; p=${bytes.toString('base64')}`;
}

/** One line of a zone file (RFC 1035 §5.1). A long text is split into strings of at most 255 octets. */
export function zoneLine({ name, type, value }: Pick<ZoneRecord, 'name' | 'type' | 'value'>): string {
  return `${name}. IN ${type} ${zoneValue(type, value)}`;
}

function zoneValue(type: ZoneRecord['type'], value: string): string {
  if (type === 'MX' || type === 'CNAME') return `${value}.`;
  if (type !== 'TXT') return value;
  const strings = (value.match(/.{1,255}/g) ?? []).map((text) => `"${text.replace(/["\\]/g, '\\$&')}"`);
  return strings.length === 1 ? (strings[0] ?? '') : `( ${strings.join(' ')} )`;
}
