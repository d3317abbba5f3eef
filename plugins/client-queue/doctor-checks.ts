import { createPrivateKey, createPublicKey } from 'node:crypto';
import { readdir, readFile, stat } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { z } from 'zod';
import {
  advice,
  fine,
  skipped,
  trouble,
  type DoctorCheck,
  type DoctorInput,
  type Finding,
} from '../../core/contracts/doctor-check.js';
import { counted } from '../../core/counted.js';
import { faultCode, isMissing } from '../../core/disk/fault.js';
import { isDnsFailure } from '../../core/dns/failure.js';
import { SystemResolver } from '../../core/dns/system-resolver.js';
import type { ClientQueueSettings } from './options.js';

type Input = DoctorInput<ClientQueueSettings>;

const oldAfterMs = 86_400_000;

const Statistics = z.object({
  byState: z.record(z.string(), z.number()),
  open: z.number(),
  oldest: z.union([z.string(), z.number()]).nullable(),
});

/** What waits, what nobody takes care of, and what could not be understood. */
export const queueCheck: DoctorCheck<ClientQueueSettings> = {
  group: 'Mail',
  name: 'queue',
  run: async (input) => [...(await waiting(input)), ...(await quarantined(input.configuration.data))],
};

async function waiting({ owner, clock }: Input): Promise<readonly Finding[]> {
  if (owner === undefined) return [skipped('What waits in the queue is known to a running server only.')];
  const { status, body } = await owner('GET', '/client/queue/statistics');
  const statistics = Statistics.safeParse(body).data;
  if (status !== 200 || statistics === undefined) return [skipped(`The queue cannot be asked (${status}).`)];
  const { byState, open, oldest } = statistics;
  const held = byState['held'] ?? 0;
  const since = oldest === null ? clock.now() : new Date(oldest).getTime();
  const findings: Finding[] = [];
  if (held > 0) {
    findings.push(
      advice(
        `${counted(held, 'message is held and goes nowhere by itself', 'messages are held and go nowhere by themselves')}.`,
        'See /client/queue/list?state=held.',
      ),
    );
  }
  if (clock.now() - since > oldAfterMs) {
    const is = `The oldest message waits since ${new Date(since).toISOString()}.`;
    findings.push(advice(is, 'See /client/queue/statistics for where it should go, and what its server says.'));
  }
  return findings.length > 0
    ? findings
    : [fine(`${counted(open, 'message is', 'messages are')} in the queue, none for longer than a day.`)];
}

async function quarantined(data: string): Promise<readonly Finding[]> {
  const folder = join(data, 'queue', 'quarantine');
  const names = await readdir(folder).catch((error: unknown) => {
    if (isMissing(error)) return [];
    throw error;
  });
  const count = names.filter((name) => !name.endsWith('.reason')).length;
  if (count === 0) return [];
  const is = `${counted(count, 'file')} of the queue could not be understood, to be found in ${folder}.`;
  return [advice(is, 'Each has a file .reason beside it; look at them, then remove them.')];
}

/** A name server that hangs shall not hang the look. */
const longestLookMs = 4000;

/** Whether the name servers answer that the queue has to itself; the others are looked at for the whole server. */
export const resolverCheck: DoctorCheck<ClientQueueSettings> = {
  group: 'DNS',
  name: 'queue-resolver',
  run: async (input) =>
    Promise.all((input.options.resolver.servers ?? []).map((server) => serverFinding(server, input))),
};

async function serverFinding(server: string, { options, configuration, signal }: Input): Promise<Finding> {
  const name = [...configuration.domains, configuration.hostname].find((one) => one.includes('.'));
  if (name === undefined) return skipped(`The name server ${server} is not asked: no domain here is in the DNS.`);
  const { timeoutMs } = options.resolver;
  const resolver = new SystemResolver({ servers: [server], timeoutMs, tries: 1, totalMs: longestLookMs });
  try {
    await resolver.resolveMx(name, { signal });
  } catch (error) {
    const kind = isDnsFailure(error) ? error.kind : 'servfail';
    if (kind !== 'nxdomain' && kind !== 'nodata') {
      const how = kind === 'timeout' ? 'in time' : 'with an answer';
      const is = `The name server ${server}, which the queue asks where mail goes, does not answer ${how} when it is asked for ${name}.`;
      return trouble(
        is,
        'Mend plugins.client-queue.resolver, or leave it out: dns.servers counts then, or the system.',
      );
    }
  }
  return fine(`The name server ${server}, which the queue asks where mail goes, answers.`);
}

/** Whether what is signed with can be verified by whoever gets it. */
export const dkimCheck: DoctorCheck<ClientQueueSettings> = {
  group: 'DNS',
  name: 'dkim',
  async run(input) {
    const keys = Object.entries(input.options.dkim);
    const unsigned = input.configuration.domains.filter(
      (domain) => domain.includes('.') && !keys.some(([signed]) => signed.toLowerCase() === domain),
    );
    const findings = await Promise.all(keys.map(([domain, key]) => keyFindings(input, domain, key)));
    return [...findings.flat(), ...(unsigned.length > 0 ? [unsignedFinding(unsigned)] : [])];
  },
};

function unsignedFinding(domains: readonly string[]): Finding {
  const list = domains.slice(0, 5).join(', ');
  const is = `Mail from ${list} is not signed (DKIM); large providers want it to be.`;
  return advice(is, 'If it is sent from here: make a key, publish it, and name it in plugins.client-queue.dkim.');
}

async function keyFindings(
  { configuration, resolver, signal }: Input,
  domain: string,
  { selector, key }: ClientQueueSettings['dkim'][string],
): Promise<readonly Finding[]> {
  const path = resolve(configuration.folder, key);
  const record = `${selector}._domainkey.${domain}`;
  let published: readonly string[];
  let expected: string;
  try {
    expected = publicKeyOf(await readFile(path, 'utf8'));
  } catch (error) {
    const why = faultCode(error) ?? 'it is no private key in PEM';
    return [trouble(`The DKIM key of ${domain}, ${path}, cannot be read: ${why}.`, 'Mend plugins.client-queue.dkim.')];
  }
  const { mode } = await stat(path);
  const hidden = (mode & 0o007) === 0;
  const file = hidden
    ? []
    : [trouble(`Everybody on this machine may read the DKIM key ${path}.`, `chmod o-rwx ${path}`)];
  try {
    published = (await resolver.resolveTxt(record, { signal })).records;
  } catch (error) {
    const kind = isDnsFailure(error) ? error.kind : 'servfail';
    if (kind !== 'nxdomain' && kind !== 'nodata') return [...file, skipped(`${record} could not be looked up.`)];
    published = [];
  }
  return [...file, recordFinding(domain, record, published, expected)];
}

function recordFinding(domain: string, record: string, published: readonly string[], expected: string): Finding {
  const type = Buffer.from(expected, 'base64').length === 32 ? 'ed25519' : 'rsa';
  const todo = `Publish as TXT of ${record}: v=DKIM1; k=${type}; p=${expected}`;
  const keys = published.map(
    (text) => /(?:^|;)\s*p\s*=\s*([A-Za-z0-9+/=\s]*)/.exec(text)?.[1]?.replace(/\s+/g, '') ?? '',
  );
  if (published.length === 0)
    return trouble(`The DKIM key of ${domain} is not published: there is no ${record}.`, todo);
  if (keys.includes(expected)) return fine(`The DKIM key of ${domain} is the one that ${record} publishes.`);
  return trouble(`${record} publishes another DKIM key than the one that signs: signatures fail.`, todo);
}

/** As RFC 6376 §3.6.1 has it in `p=`; of Ed25519 the bare 32 bytes (RFC 8463 §4.2). */
function publicKeyOf(pem: string): string {
  const key = createPublicKey(createPrivateKey(pem));
  if (key.asymmetricKeyType !== 'ed25519') return key.export({ type: 'spki', format: 'der' }).toString('base64');
  return Buffer.from(key.export({ format: 'jwk' }).x ?? '', 'base64url').toString('base64');
}
