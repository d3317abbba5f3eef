import { createHash, type X509Certificate } from 'node:crypto';
import { advice, type Finding, fine, skipped, trouble } from '../../core/contracts/doctor-check.js';
import { isDnsFailure } from '../../core/dns/resolver.js';
import { ValidatingResolver } from '../../core/dns/validating-resolver.js';
import { readServerCertificate } from '../../core/net/server-certificate.js';
import { certificatesIn, readTlsMaterial } from '../../core/net/tls-material.js';
import { daneFault, tlsaText, usableTlsa } from '../../core/net/tlsa.js';
import { isStartError } from '../../core/problem.js';
import { pluralize } from '../../core/text/format.js';
import { type DoctorContext, relayServers } from './doctor-context.js';

const maxMs = 4000;

/**
 * TLSA records of this server against its certificate: servers that obey them (DANE) send nothing when they do not
 * match. Looked up with the name servers that only the queue asks, which may validate; without them there is no finding.
 */
export async function tlsaFindings({ configuration, clock, signal }: DoctorContext): Promise<readonly Finding[]> {
  const { hostname, domains } = configuration;
  const servers = relayServers(configuration);
  if (servers === undefined) return [];
  const name = `_25._tcp.${hostname}`;
  try {
    const resolver = new ValidatingResolver({ servers, timeoutMs: 1500, tries: 1, totalMs: maxMs });
    const { records, secure } = await resolver.resolveTlsa(name, { signal });
    if (secure !== true) {
      return [
        advice(
          `The TLSA records ${name} are not validated (DNSSEC), so other servers ignore them.`,
          `Sign the zone, or remove them; or plugins.client-queue.resolver.servers do not validate.`,
        ),
      ];
    }
    const dane = { base: hostname, names: [hostname, ...domains], records };
    if (usableTlsa(dane).length === 0) {
      return [
        advice(
          `None of the TLSA records ${name} can be used for mail (RFC 7672).`,
          'Publish one that begins with 3 1 1.',
        ),
      ];
    }
    const chains = await certificateChains(configuration);
    const faults = chains.flatMap((chain) => daneFault(chain, dane, clock.now()) ?? []);
    const [fault] = faults;
    if (fault !== undefined) {
      return [
        trouble(
          `The TLSA records ${name} do not fit the certificate of this server: ${fault.message}. Servers that obey them send nothing here.`,
          `Publish: ${name}. IN TLSA ${chains.map(keyRecord).join(', ')}`,
        ),
      ];
    }
    if (chains.length === 0)
      return [skipped(`The TLSA records ${name} are there; no listener here has a certificate.`)];
    return [fine(`${pluralize(records.length, 'TLSA record')} ${name}: the certificate of this server matches.`)];
  } catch (error) {
    if (!isDnsFailure(error)) throw error;
    if (error.kind === 'nxdomain' || error.kind === 'nodata') return [];
    return [
      trouble(
        `The TLSA records ${name} cannot be looked up (${error.kind}): servers that obey such records send nothing here.`,
        'Look at the signatures of the zone (DNSSEC), and at the name servers of plugins.client-queue.resolver.',
      ),
    ];
  }
}

/** The record of a key, which a renewal of the certificate may keep. */
function keyRecord([own]: readonly X509Certificate[]): string {
  const key = own?.publicKey.export({ type: 'spki', format: 'der' }) ?? '';
  return tlsaText({ usage: 3, selector: 1, matching: 1, data: createHash('sha256').update(key).digest('hex') });
}

/** Of the listeners that take mail from other servers. Another check tells of those that cannot be read. */
async function certificateChains({
  settings,
  folder,
  data,
}: DoctorContext['configuration']): Promise<readonly (readonly X509Certificate[])[]> {
  const ofServer = await readServerCertificate(data);
  return settings.smtp.listeners
    .filter(({ mode, tls }) => mode === 'mx' && tls === 'starttls')
    .flatMap((listener) => {
      try {
        const material = readTlsMaterial(listener, folder, ofServer);
        return material === undefined ? [] : [certificatesIn(material.cert)];
      } catch (error) {
        if (isStartError(error)) return [];
        throw error;
      }
    });
}
