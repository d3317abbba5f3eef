import { readdir, readFile, stat } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { pino } from 'pino';
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
import { pluralize } from '../../core/text/format.js';
import { faultCode, isMissing } from '../../core/disk/fault.js';
import { dkimRecord, dkimText, zoneLine } from '../../core/dns/mail-zone.js';
import { isDnsFailure } from '../../core/dns/resolver.js';
import { isPrivateAddress } from '../../core/dns/private-address.js';
import { SystemResolver } from '../../core/dns/system-resolver.js';
import { nameServerOf, ValidatingResolver } from '../../core/dns/validating-resolver.js';
import { isStartError } from '../../core/problem.js';
import { fileDocument } from '../../core/disk/document.js';
import { openDestinationControls } from './delivery/destination-controls.js';
import { lookAtStoppedQueue } from './queue/open-relay-queue.js';
import type { ClientQueueSettings, DkimKeySettings } from './options.js';

type Input = DoctorInput<ClientQueueSettings>;

const oldAfterMs = 86_400_000;

const Statistics = z.object({
  byState: z.record(z.string(), z.number()),
  open: z.number(),
  damaged: z.number().optional(),
  oldest: z.union([z.string(), z.number()]).nullable(),
});

/** What waits, what nobody takes care of, and what could not be understood. */
export const queueCheck: DoctorCheck<ClientQueueSettings> = {
  group: 'Mail',
  name: 'queue',
  run: async (input) => [
    ...(await waiting(input)),
    ...(await setAside(input.configuration.data)),
    ...(await controls(input)),
  ],
};

/** What the next start will find; nothing is changed. */
async function stopped(data: string, clock: Input['clock']): Promise<readonly Finding[]> {
  const folder = join(data, 'queue');
  const found = await stat(join(folder, 'journal')).catch(() => undefined);
  if (found?.isDirectory() !== true) return [skipped('There is no queue yet.')];
  const { damage, open, damaged } = await lookAtStoppedQueue(folder, clock, pino({ level: 'silent' }));
  const findings = damage.map((is) => trouble(`The queue is damaged. ${is}`, damageAdvice));
  if (damaged > 0) findings.push(damagedFinding(damaged));
  return findings.length > 0 ? findings : [fine(`${pluralize(open, 'message is', 'messages are')} in the queue.`)];
}

const damageAdvice =
  'Start the server: messages without an entry go to quarantine. Then: postern queue recover --dry-run';

function damagedFinding(count: number): Finding {
  const is = `${pluralize(count, 'message is', 'messages are')} held because of damage, or because the server ended while sending.`;
  return trouble(is, 'See /client/queue/list?state=held; delete what cannot be repaired, retry the rest.');
}

async function waiting({ owner, clock, configuration }: Input): Promise<readonly Finding[]> {
  if (owner === undefined) return stopped(configuration.data, clock);
  const { status, body } = await owner('GET', '/client/queue/statistics');
  const statistics = Statistics.safeParse(body).data;
  if (status !== 200 || statistics === undefined) return [skipped(`The queue cannot be asked (${status}).`)];
  const { byState, open, oldest, damaged } = statistics;
  const held = byState['held'] ?? 0;
  const since = oldest === null ? clock.now() : new Date(oldest).getTime();
  const findings: Finding[] = [];
  if ((damaged ?? 0) > 0) findings.push(damagedFinding(damaged ?? 0));
  if (held > 0) {
    findings.push(
      advice(
        `${pluralize(held, 'message is held and goes nowhere by itself', 'messages are held and go nowhere by themselves')}.`,
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
    : [fine(`${pluralize(open, 'message is', 'messages are')} in the queue, none for longer than a day.`)];
}

async function setAside(data: string): Promise<readonly Finding[]> {
  const quarantine = join(data, 'queue', 'quarantine');
  const aside = join(data, 'queue', 'journal', 'aside');
  const findings: Finding[] = [];
  const files = (await namesIn(quarantine)).filter((name) => !name.endsWith('.reason')).length;
  if (files > 0) {
    const is = `${pluralize(files, 'file of the queue lies', 'files of the queue lie')} in quarantine: ${quarantine}.`;
    findings.push(
      trouble(is, 'Each has a file .reason beside it. To queue messages again: postern queue recover --dry-run'),
    );
  }
  const notes = (await namesIn(aside)).length;
  if (notes > 0) {
    const is = `The journal of the queue was damaged: ${pluralize(notes, 'file lies', 'files lie')} in ${aside}.`;
    findings.push(trouble(is, `Look there: notes say what is lost. Then: rm ${aside}/*`));
  }
  return findings;
}

async function namesIn(folder: string): Promise<readonly string[]> {
  const names = await readdir(folder).catch((error: unknown) => {
    if (isMissing(error)) return [];
    throw error;
  });
  return names.filter((name) => !name.startsWith('.'));
}

/** One that is broken stops the start. */
async function controls({ configuration, clock }: Input): Promise<readonly Finding[]> {
  try {
    await openDestinationControls(fileDocument(join(configuration.data, 'destinations.json')), clock);
    return [];
  } catch (error) {
    if (!isStartError(error)) throw error;
    return [trouble(error.message, 'Repair it, or move it away: nothing is suspended then.')];
  }
}

/** A name server that hangs shall not hang the look. */
const maxLookMs = 4000;

/** Whether the name servers answer that the queue has to itself; the others are looked at for the whole server. */
export const resolverCheck: DoctorCheck<ClientQueueSettings> = {
  group: 'DNS',
  name: 'queue-resolver',
  run: async (input) =>
    Promise.all((input.options.resolver.servers ?? []).map((server) => serverFinding(server, input))),
};

async function serverFinding(server: string, input: Input): Promise<Finding> {
  const { options, configuration, signal } = input;
  const name = [...configuration.domains, configuration.hostname].find((one) => one.includes('.'));
  if (name === undefined) return skipped(`The name server ${server} is not asked: no domain here is in the DNS.`);
  const { timeoutMs } = options.resolver;
  const resolver = new SystemResolver({ servers: [server], timeoutMs, tries: 1, totalMs: maxLookMs });
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
  const answers = fine(`The name server ${server}, which the queue asks where mail goes, answers.`);
  return options.dane ? validationFinding(server, input) : answers;
}

/** DANE believes what the server says about signatures (DNSSEC). */
async function validationFinding(server: string, { options, signal }: Input): Promise<Finding> {
  const { timeoutMs } = options.resolver;
  const resolver = new ValidatingResolver({ servers: [server], timeoutMs, tries: 1, totalMs: maxLookMs });
  const validates = await resolver.validates({ signal }).catch(() => false);
  if (!validates) {
    return trouble(
      `The name server ${server} does not validate (DNSSEC): its answer about the root is not marked (AD), so TLSA records have no effect.`,
      'Name one that validates, such as unbound on this machine, or set plugins.client-queue.dane to false.',
    );
  }
  const is = `The name server ${server}, which the queue asks where mail goes, answers and validates (DNSSEC).`;
  if (isPrivateAddress(nameServerOf(server).host)) return fine(is);
  return advice(
    `${is} It is reached over the Internet, where others may change its answers.`,
    'DANE is safe with one on this machine, or behind a tunnel.',
  );
}

/** Whether what is signed with can be verified by whoever gets it. */
export const dkimCheck: DoctorCheck<ClientQueueSettings> = {
  group: 'DNS',
  name: 'dkim',
  async run(input) {
    const keys = Object.entries(input.options.dkim).flatMap(([domain, ofDomain]) =>
      [ofDomain].flat().map((key) => [domain.toLowerCase(), key] as const),
    );
    const unsigned = input.configuration.domains.filter(
      (domain) => domain.includes('.') && !keys.some(([signed]) => signed === domain),
    );
    const findings = await Promise.all(keys.map(([domain, key]) => keyFindings(input, domain, key)));
    return [...findings.flat(), ...(unsigned.length > 0 ? [unsignedFinding(unsigned)] : [])];
  },
};

function unsignedFinding(domains: readonly string[]): Finding {
  const list = domains.slice(0, 5).join(', ');
  const is = `Mail from ${list} is not signed (DKIM); large providers want it to be.`;
  return advice(is, 'If it is sent from here: postern dkim create DOMAIN makes keys and says what to publish.');
}

async function keyFindings(
  { configuration, resolver, signal }: Input,
  domain: string,
  { selector, key }: DkimKeySettings,
): Promise<readonly Finding[]> {
  const path = resolve(configuration.folder, key);
  const record = `${selector}._domainkey.${domain}`;
  let published: readonly string[];
  let expected: string;
  try {
    expected = dkimText(await readFile(path, 'utf8'));
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
  return [...file, recordFinding(domain, selector, published, expected)];
}

function recordFinding(domain: string, selector: string, published: readonly string[], expected: string): Finding {
  const record = dkimRecord(domain, { selector, text: expected });
  const { name } = record;
  const todo = `Publish: ${zoneLine(record)}`;
  if (published.length === 0) return trouble(`The DKIM key of ${domain} is not published: there is no ${name}.`, todo);
  if (published.some((text) => keyIn(text) === keyIn(expected)))
    return fine(`The DKIM key of ${domain} is the one that ${name} publishes.`);
  return trouble(`${name} publishes another DKIM key than the one that signs: signatures fail.`, todo);
}

/** `p=` of a record, without blanks. */
const keyIn = (text: string): string =>
  /(?:^|;)\s*p\s*=\s*([A-Za-z0-9+/=\s]*)/.exec(text)?.[1]?.replace(/\s+/g, '') ?? '';
