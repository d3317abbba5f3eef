import { systemTimers } from '../../core/clock.js';
import type { Dns } from '../../core/contracts/dns.js';
import { advice, type Finding, fine, skipped, trouble } from '../../core/contracts/doctor-check.js';
import { ownAddresses } from '../../core/dns/mail-routes.js';
import { dmarcRecord, mxRecord, spfRecord, tlsReportRecord, zoneLine } from '../../core/dns/mail-zone.js';
import { DnsLookups } from '../../core/dns/plugin-dns.js';
import { isPrivateAddress } from '../../core/dns/private-address.js';
import { isLoopbackHost } from '../../core/http/request-checks.js';
import { normalAddress } from '../../core/net/ip-address.js';
import type { CoreCheck, DoctorContext } from './doctor-context.js';
import { stsFindings } from './mta-sts-checks.js';
import { tlsaFindings } from './tlsa-checks.js';

const answerMs = 5000;
const maxDomains = 30;
const maxAddresses = 4;
/** RFC 6761, RFC 6762, RFC 8375, and common private names. */
const localNames =
  /(?:^|\.)(?:localhost|local|localdomain|internal|intranet|lan|home\.arpa|corp|home|test|example|invalid)$/i;

export const dnsChecks: readonly CoreCheck[] = [{ group: 'DNS', name: 'dns', run: dns }];

/** A name that public DNS may have. */
const isPublicName = (name: string): boolean => name.includes('.') && !localNames.test(name);

async function dns(context: DoctorContext): Promise<readonly Finding[]> {
  const { configuration, resolver } = context;
  const outside = configuration.settings.smtp.listeners.some(
    ({ host, fd, socket }) => fd !== undefined || socket !== undefined || !isLoopbackHost(host),
  );
  if (!outside)
    return [skipped('Every SMTP listener is for this machine only: records that lead mail here are not looked at.')];
  const { hostname } = configuration;
  const domains = configuration.domains.filter(isPublicName).slice(0, maxDomains);
  const lookups: Dns = new DnsLookups({ resolver, timers: systemTimers, maxMs: answerMs });
  const name = [...domains, hostname].find(isPublicName);
  const broken = await resolverFinding(lookups, name, configuration.settings.dns.servers);
  if (broken?.state === 'problem') return [broken];
  const addresses = isPublicName(hostname) ? await addressesOf(lookups, hostname) : [];
  const here = { hostname, addresses: [...addresses, ...ownAddresses().map(normalAddress)], sends: addresses };
  const parts = await Promise.all([
    isPublicName(hostname) ? hostFindings(lookups, hostname, addresses) : [noName(hostname)],
    isPublicName(hostname) ? tlsaFindings(context) : [],
    ...domains.map((domain) => domainFindings(lookups, domain, here, configuration)),
  ]);
  return [...(broken === undefined ? [] : [broken]), ...parts.flat()];
}

const noName = (hostname: string): Finding =>
  trouble(
    `${hostname} (hostname) is no name that other servers could look up: some refuse a server that greets with it.`,
    'Set hostname to the full name of this machine in the DNS, such as mail.example.org.',
  );

/** Without an answer to the first query, others are not sent. */
async function resolverFinding(
  lookups: Dns,
  name: string | undefined,
  servers: readonly string[],
): Promise<Finding | undefined> {
  if (name === undefined) return undefined;
  const [mx, address] = await Promise.all([lookups.lookup(name, 'MX'), lookups.lookup(name, 'A')]);
  const failed = [mx, address].filter(({ status }) => status === 'failed');
  if (failed.length < 2) return fine('The name servers answer.');
  const how = failed.some((answer) => answer.status === 'failed' && answer.reason === 'timeout')
    ? 'do not answer in time'
    : 'fail';
  const place = servers.length === 0 ? '/etc/resolv.conf' : `dns.servers (${servers.join(', ')})`;
  return trouble(
    `The name servers ${how} when they are asked for ${name}.`,
    `Look at ${place}, and whether this machine may send to port 53. Mail to other servers waits meanwhile.`,
  );
}

async function addressesOf(lookups: Dns, name: string): Promise<readonly string[]> {
  const [four, six] = await Promise.all([lookups.lookup(name, 'A'), lookups.lookup(name, 'AAAA')]);
  return [...four.records, ...six.records].map(normalAddress);
}

async function hostFindings(lookups: Dns, hostname: string, addresses: readonly string[]): Promise<readonly Finding[]> {
  if (addresses.length === 0) {
    const is = `${hostname} (hostname) has no address in the DNS.`;
    return [trouble(is, `Add an A or AAAA record for ${hostname} with the public address of this machine.`)];
  }
  const own = ownAddresses().map(normalAddress);
  const mine = addresses.some((address) => own.includes(address));
  const list = addresses.slice(0, maxAddresses).join(', ');
  const host = mine
    ? fine(`${hostname} (hostname) has the address ${list}, which is of this machine.`)
    : advice(
        `${hostname} (hostname) has the address ${list}, and no interface here has it.`,
        'Behind a router that translates addresses that is as it should be; else mend the record.',
      );
  const open = addresses.filter((address) => !isPrivateAddress(address)).slice(0, maxAddresses);
  return [host, ...(await Promise.all(open.map((address) => reverse(lookups, hostname, address))))];
}

/** Large providers accept mail only from addresses with a matching reverse name. */
async function reverse(lookups: Dns, hostname: string, address: string): Promise<Finding> {
  const todo = `Ask whoever gave you ${address} to let its PTR record say ${hostname}.`;
  const { status, records } = await lookups.lookup(address, 'PTR');
  if (status === 'failed') return skipped(`Who ${address} is could not be looked up.`);
  const names = records.map((name) => name.toLowerCase().replace(/\.$/, ''));
  if (names.includes(hostname.toLowerCase())) return fine(`${address} is called ${hostname}, and back.`);
  if (names.length === 0) {
    return trouble(`${address} has no name (PTR record): many servers refuse mail from it.`, todo);
  }
  return advice(`${address} is called ${names.slice(0, 3).join(', ')}, not ${hostname}.`, todo);
}

const maxExchanges = 10;

/** This server in public DNS. */
interface Here {
  readonly hostname: string;
  /** Names and addresses that lead to this server. */
  readonly addresses: readonly string[];
  /** Addresses from which it sends mail. */
  readonly sends: readonly string[];
}

/** Records of a local domain: where its mail goes, and who may send it. */
async function domainFindings(
  lookups: Dns,
  domain: string,
  here: Here,
  configuration: DoctorContext['configuration'],
): Promise<readonly Finding[]> {
  const { status } = await lookups.lookup(domain, 'MX');
  if (status === 'nxdomain') {
    const is = `The domain ${domain} does not exist in the DNS: nobody can send mail to it.`;
    return [trouble(is, `Register it, and add the record ${mxLine(domain, here)}`)];
  }
  const findings = await Promise.all([
    exchange(lookups, domain, here),
    spf(lookups, domain, here),
    dmarc(lookups, domain),
    tlsReports(lookups, domain),
  ]);
  return [...findings, ...(await stsFindings(lookups, domain, configuration))];
}

const mxLine = (domain: string, { hostname }: Here): string => zoneLine(mxRecord(domain, hostname));

async function exchange(lookups: Dns, domain: string, here: Here): Promise<Finding> {
  const { status, records } = await lookups.lookup(domain, 'MX');
  const record = mxLine(domain, here);
  if (status === 'failed') return skipped(`Where mail for ${domain} goes could not be looked up.`);
  const names = records.map((one) => one.exchange.toLowerCase());
  if (names.length === 1 && names[0] === '') {
    return trouble(`${domain} says that it takes no mail (null MX, RFC 7505).`, `Replace that record by ${record}`);
  }
  if (names.length === 0) return implicit(lookups, domain, here, record);
  const leads = await Promise.all(names.slice(0, maxExchanges).map((name) => leadsHere(lookups, name, here)));
  const list = names.slice(0, 5).join(', ');
  if (leads.some(Boolean)) return fine(`Mail for ${domain} comes here (MX ${list}).`);
  return advice(
    `Mail for ${domain} goes to ${list} (MX), and that is not this server.`,
    `If those hand it on to here, all is well; if it should come here, add the record ${record}`,
  );
}

/** RFC 5321 §5.1: without an MX record, the address record of the domain is used. */
async function implicit(lookups: Dns, domain: string, here: Here, record: string): Promise<Finding> {
  const todo = `Add the record ${record}`;
  if (await leadsHere(lookups, domain, here)) {
    return advice(`${domain} has no MX record; its address leads here, which is enough for most.`, todo);
  }
  return trouble(`${domain} has no MX record, and its address does not lead here.`, todo);
}

async function leadsHere(lookups: Dns, name: string, { hostname, addresses }: Here): Promise<boolean> {
  if (name === hostname.toLowerCase()) return true;
  const [four, six] = await Promise.all([lookups.lookup(name, 'A'), lookups.lookup(name, 'AAAA')]);
  return [...four.records, ...six.records].some((address) => addresses.includes(normalAddress(address)));
}

async function spf(lookups: Dns, domain: string, { hostname, sends }: Here): Promise<Finding> {
  const todo = `If this server alone sends its mail, add the record ${zoneLine(spfRecord(domain))}`;
  const { status, records } = await lookups.lookup(domain, 'TXT');
  if (status === 'failed') return skipped(`The SPF record of ${domain} could not be looked up.`);
  const found = textsOf(records).filter((text) => /^v=spf1(?: |$)/i.test(text));
  if (found.length === 0) return advice(`${domain} has no SPF record: others may send in its name unnoticed.`, todo);
  if (found.length > 1) {
    return trouble(
      `${domain} has ${found.length} SPF records, which is an error (RFC 7208 §3.2).`,
      'Make one of them.',
    );
  }
  const open = sends.filter((address) => !isPrivateAddress(address));
  const refused = await refusedAddresses(lookups, domain, hostname, open);
  if (refused.length === 0) return fine(`The SPF record of ${domain} lets this server send.`);
  const list = refused.map(({ ip, result }) => `${ip} (${result})`).join(', ');
  return trouble(
    `The SPF record of ${domain} does not name this server: ${list}.`,
    `Add the address, or a:${hostname}, to the record; else mail that is sent from here may be refused.`,
  );
}

async function refusedAddresses(lookups: Dns, domain: string, hostname: string, addresses: readonly string[]) {
  if (addresses.length === 0) return [];
  const { spf: verify } = await import('mailauth/lib/spf/index.js');
  const results = await Promise.all(
    addresses.map(async (ip) => {
      const checked = await verify({
        ip,
        sender: `postmaster@${domain}`,
        helo: hostname,
        mta: hostname,
        // Only A, AAAA, MX, TXT and PTR, whose answers have the form of Node's resolver.
        resolver: lookups.resolve as (name: string, type: string) => Promise<string[] | string[][]>,
      });
      return { ip, result: checked.status.result };
    }),
  );
  return results.filter(({ result }) => result !== 'pass');
}

async function dmarc(lookups: Dns, domain: string): Promise<Finding> {
  const { status, records } = await lookups.lookup(`_dmarc.${domain}`, 'TXT');
  if (status === 'failed') return skipped(`The DMARC record of ${domain} could not be looked up.`);
  const found = textsOf(records).filter((text) => /^v=DMARC1\s*(?:;|$)/i.test(text));
  const policy = /;\s*p\s*=\s*(none|quarantine|reject)\b/i.exec(found[0] ?? '')?.[1]?.toLowerCase();
  if (found.length === 1 && policy !== undefined) return fine(`${domain} has a DMARC record (policy ${policy}).`);
  const todo = `Add the record ${zoneLine(dmarcRecord(domain))}`;
  if (found.length === 0) return advice(`${domain} has no DMARC record, which large providers ask for.`, todo);
  return trouble(`The DMARC record of ${domain} cannot be understood.`, `Let there be one: ${todo}`);
}

/** RFC 8460 §3; where the reports go differs from site to site. */
async function tlsReports(lookups: Dns, domain: string): Promise<Finding> {
  const record = tlsReportRecord(domain);
  const { status, records } = await lookups.lookup(record.name, 'TXT');
  if (status === 'failed') return skipped(`The TLS-RPT record ${record.name} could not be looked up.`);
  const found = textsOf(records).filter((text) => text.startsWith('v=TLSRPTv1'));
  const todo = `Add the record ${zoneLine(record)}`;
  if (found.length === 0) return advice(`There is no TLS-RPT record ${record.name}.`, todo);
  const isValid = found.length === 1 && /^v=TLSRPTv1\s*;\s*rua=(?:mailto|https):.+$/i.test(found[0] ?? '');
  if (isValid) return fine(`The TLS-RPT record ${record.name} is there.`);
  return trouble(`The TLS-RPT record ${record.name} cannot be understood.`, `Let there be one: ${zoneLine(record)}`);
}

const textsOf = (records: readonly (readonly string[])[]): readonly string[] =>
  records.map((pieces) => pieces.join('').trim());
