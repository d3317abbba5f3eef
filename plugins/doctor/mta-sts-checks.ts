import { advice, type Finding, fine, skipped, trouble } from '../../core/contracts/doctor-check.js';
import type { Dns } from '../../core/contracts/dns.js';
import { mtaStsRecord, stsHostRecord, zoneLine } from '../../core/dns/mail-zone.js';
import {
  allowsServer,
  StsPolicyOptions,
  type StsPolicySettings,
  stsPolicyText,
  stsServers,
} from '../../core/dns/mta-sts.js';
import { readServerCertificate } from '../../core/net/server-certificate.js';
import { certificateFacts, type CertificateFacts, readTlsMaterial } from '../../core/net/tls-material.js';
import { isStartError } from '../../core/problem.js';
import type { DoctorContext } from './doctor-context.js';

type Loaded = DoctorContext['configuration'];

/** The MTA-STS policy of a local domain: its record, its host, its servers (RFC 8461). */
export async function stsFindings(lookups: Dns, domain: string, loaded: Loaded): Promise<readonly Finding[]> {
  const name = `_mta-sts.${domain}`;
  const { status, records } = await lookups.lookup(name, 'TXT');
  if (status === 'failed') return [skipped(`The MTA-STS record ${name} could not be looked up.`)];
  const settings = StsPolicyOptions.safeParse(loaded.options.get('mta-sts')).data;
  const found = records.map((pieces) => pieces.join('').trim()).filter((text) => text.startsWith('v=STSv1'));
  if (settings === undefined && found.length === 0) return [skipped('MTA-STS is off: plugins.mta-sts is false.')];
  const wanted = settings && mtaStsRecord(domain, stsPolicyText(settings, loaded.hostname));
  const line = wanted && zoneLine(wanted);
  if (found.length === 0) return [advice(`There is no MTA-STS record ${name}.`, `Add the record ${line}`)];
  const [text = ''] = found;
  if (found.length > 1 || !/^v=STSv1\s*;\s*id=[a-z0-9]{1,32}\s*;?$/i.test(text)) {
    const only = line ?? `one record v=STSv1; id=… with up to 32 letters and digits`;
    return [trouble(`The MTA-STS record ${name} cannot be understood.`, `Let there be one: ${only}`)];
  }
  if (settings === undefined) return [fine(`The MTA-STS record ${name} is there.`)];
  const isCurrent = text.replace(/\s*;?$/, '').replace(/;\s*/, '; ') === wanted?.value;
  const record = isCurrent
    ? fine(`The MTA-STS record ${name} is there, with the id of the policy of this server.`)
    : advice(
        `The MTA-STS record ${name} has not the id of the policy of this server: others keep the one that they have.`,
        `Replace it by ${line}`,
      );
  return [
    record,
    ...(await hostFindings(lookups, domain, loaded)),
    ...(await serverFindings(lookups, domain, settings, loaded)),
  ];
}

async function hostFindings(lookups: Dns, domain: string, loaded: Loaded): Promise<readonly Finding[]> {
  const host = `mta-sts.${domain}`;
  const [four, six] = await Promise.all([lookups.lookup(host, 'A'), lookups.lookup(host, 'AAAA')]);
  if (four.status === 'failed' || six.status === 'failed') return [skipped(`${host} could not be looked up.`)];
  if (four.records.length + six.records.length === 0) {
    const record = zoneLine(stsHostRecord(domain, loaded.hostname));
    return [trouble(`${host} has no address: no server can fetch the MTA-STS policy.`, `Add the record ${record}`)];
  }
  const facts = await httpsFacts(loaded);
  if (facts === undefined) {
    return [
      skipped(`Whether https://${host} answers is not known: http.https is off, so something in front does TLS.`),
    ];
  }
  if (facts !== 'self-signed' && facts.covers(host)) return [fine(`The HTTPS listener has a certificate for ${host}.`)];
  return [
    trouble(
      `The HTTPS listener has no certificate for ${host}: no server can fetch the MTA-STS policy.`,
      `Add ${host} to plugins.acme.names, or to the certificate that http.https names.`,
    ),
  ];
}

/** Of the certificate that the HTTPS listener shows; undefined without that listener or where it cannot be read. */
async function httpsFacts({ settings, folder, data }: Loaded): Promise<CertificateFacts | 'self-signed' | undefined> {
  const { https } = settings.http;
  if (https === undefined) return undefined;
  try {
    const listener = { ...https, name: 'https', who: 'HTTPS', tls: 'implicit' as const };
    const material = readTlsMaterial(listener, folder, await readServerCertificate(data));
    return material === undefined ? 'self-signed' : certificateFacts(material.cert);
  } catch (error) {
    // Another check says so.
    if (isStartError(error)) return undefined;
    throw error;
  }
}

/** The policy must name every server of the domain: mail to others is refused by its senders. */
async function serverFindings(
  lookups: Dns,
  domain: string,
  settings: StsPolicySettings,
  { hostname }: Loaded,
): Promise<readonly Finding[]> {
  if (settings.mode === 'none') return [];
  const { records } = await lookups.lookup(domain, 'MX');
  const mx = stsServers(settings, hostname);
  const missing = records.map(({ exchange }) => exchange).filter((name) => name !== '' && !allowsServer({ mx }, name));
  if (missing.length === 0) return [];
  const list = missing.slice(0, 5).join(', ');
  const is = `The MTA-STS policy does not name ${list}, to which the MX records of ${domain} lead.`;
  const todo = 'Add them to plugins.mta-sts.mx, or remove the MX records; then publish the new id.';
  return [settings.mode === 'enforce' ? trouble(is, todo) : advice(is, todo)];
}
