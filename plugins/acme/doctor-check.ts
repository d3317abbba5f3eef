import { advice, type DoctorCheck, fine, skipped, trouble } from '../../core/contracts/doctor-check.js';
import { readServerCertificate } from '../../core/net/server-certificate.js';
import { certificateFacts } from '../../core/net/tls-material.js';
import type { AcmeSettings } from './options.js';

/** The certificate that ACME should have obtained. */
export const namesCheck: DoctorCheck<AcmeSettings> = {
  group: 'TLS',
  name: 'acme',
  async run({ options: { names, challenge }, configuration: { data }, clock }) {
    if (names.length === 0) return [skipped('ACME is off: plugins.acme.names is empty.')];
    const material = await readServerCertificate(data);
    const port = challenge === 'http-01' ? 'port 80 to the HTTP listener' : 'port 443 to the HTTPS listener';
    const todo = `See /acme and the log. The authority must reach ${port} under each name.`;
    if (material === undefined) return [trouble('ACME has not obtained a certificate yet.', todo)];
    const facts = certificateFacts(material.cert);
    const missing = names.filter((name) => !facts.covers(name));
    if (missing.length > 0) return [trouble(`The certificate from ACME lacks ${missing.join(', ')}.`, todo)];
    const left = facts.to - clock.now();
    if (left < (facts.to - facts.from) / 4) {
      return [advice(`The certificate from ACME should have been renewed: it is valid until ${day(facts.to)}.`, todo)];
    }
    return [fine(`The certificate from ACME is for every name, and valid until ${day(facts.to)}.`)];
  },
};

const day = (ms: number): string => new Date(ms).toISOString().slice(0, 10);
