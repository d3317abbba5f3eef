import { statSync } from 'node:fs';
import { resolve } from 'node:path';
import { advice, fine, skipped, trouble, type Finding } from '../../core/contracts/doctor-check.js';
import { pluralize } from '../../core/text/format.js';
import { certificateFacts, type CertificateFacts, isPem, readTlsMaterial } from '../../core/net/tls-material.js';
import { readServerCertificate } from '../../core/net/server-certificate.js';
import { isStartError } from '../../core/problem.js';
import type { CoreCheck, DoctorContext } from './doctor-context.js';

const dayMs = 86_400_000;
/** Let's Encrypt renews in the last 30 of 90 days; half of that without a renewal is suspicious. */
const soonDays = 14;
const urgentDays = 3;

export const tlsChecks: readonly CoreCheck[] = [{ group: 'TLS', name: 'certificates', run: certificates }];

type TlsListener = Parameters<typeof readTlsMaterial>[0];

async function certificates({ configuration, clock }: DoctorContext): Promise<readonly Finding[]> {
  const { https } = configuration.settings.http;
  const listeners: readonly TlsListener[] = [
    ...configuration.settings.smtp.listeners.filter(({ tls }) => tls !== 'none'),
    ...(https === undefined ? [] : [{ ...https, name: 'https', who: 'HTTPS', tls: 'implicit' as const }]),
  ];
  if (listeners.length === 0) return [skipped('No listener speaks TLS.')];
  const { folder, hostname, data } = configuration;
  const ofServer = await readServerCertificate(data);
  return listeners.flatMap((listener) => {
    try {
      const material = readTlsMaterial(listener, folder, ofServer);
      if (material === undefined) return [selfSigned(listener)];
      const facts = certificateFacts(material.cert);
      return [
        validity(listener, facts, clock.now()),
        names(listener, facts, hostname),
        chain(listener, facts),
        ...strength(listener, facts),
        ...keyFile(listener, folder),
      ];
    } catch (error) {
      if (!isStartError(error)) throw error;
      return [trouble(error.message, 'Name readable PEM files that belong together as key and cert.')];
    }
  });
}

function selfSigned({ name }: TlsListener): Finding {
  return advice(
    `The listener ${name} uses a certificate that the server has signed itself: clients that look at it refuse it.`,
    'Set plugins.acme.names to get one, or name key and cert. See docs/tls.md.',
  );
}

function validity({ name }: TlsListener, { from, to }: CertificateFacts, now: number): Finding {
  const until = new Date(to).toISOString().slice(0, 10);
  const todo = 'Renew it; what renews it by itself may have stopped. Then reload the server.';
  if (now < from)
    return trouble(
      `The certificate of the listener ${name} is not valid yet.`,
      'Set the clock, or use another certificate.',
    );
  if (now > to) return trouble(`The certificate of the listener ${name} expired on ${until}.`, todo);
  const days = Math.floor((to - now) / dayMs);
  const is = `The certificate of the listener ${name} expires in ${pluralize(days, 'day')}, on ${until}.`;
  if (days < urgentDays) return trouble(is, todo);
  return days < soonDays ? advice(is, todo) : fine(`The certificate of the listener ${name} is valid until ${until}.`);
}

function names({ name }: TlsListener, facts: CertificateFacts, hostname: string): Finding {
  if (facts.covers(hostname)) return fine(`The certificate of the listener ${name} is for ${hostname}.`);
  const list = facts.names.slice(0, 5).join(', ') || 'no name';
  return advice(
    `The certificate of the listener ${name} is for ${list}, not for ${hostname} (hostname).`,
    `Clients that are told another name may go on using it; else get one for ${hostname}.`,
  );
}

function chain({ name }: TlsListener, { chain }: CertificateFacts): Finding {
  if (chain === 'self-signed') {
    const is = `The certificate of the listener ${name} is self-signed: clients that look at it refuse it.`;
    return advice(is, 'Mail between servers works with it; for users get one of a public authority.');
  }
  if (chain === 'complete') return fine(`The chain of the listener ${name} is complete.`);
  if (chain === 'private') {
    const is = `The chain of the listener ${name} ends at an authority that this machine does not know.`;
    return advice(is, 'If it is your own, let your clients know it; else append its missing certificates to cert.');
  }
  const is = `The chain of the listener ${name} is broken: a certificate is not signed by the one behind it.`;
  return trouble(is, 'Put the certificate of the server first in cert, then each of its issuers (fullchain.pem).');
}

function strength({ name }: TlsListener, { rsaBits }: CertificateFacts): readonly Finding[] {
  if (rsaBits === undefined || rsaBits >= 2048) return [];
  return [
    advice(`The key of the listener ${name} has ${rsaBits} bits only.`, 'Make one of 2048 bits or more, or P-256.'),
  ];
}

function keyFile({ name, key }: TlsListener, folder: string): readonly Finding[] {
  if (key === undefined || isPem(key)) return [];
  const path = resolve(folder, key);
  const { mode } = statSync(path);
  if ((mode & 0o007) === 0) return [fine(`The key of the listener ${name} is hidden from other users.`)];
  return [
    trouble(`Everybody on this machine may read the key of the listener ${name}, ${path}.`, `chmod o-rwx ${path}`),
  ];
}
