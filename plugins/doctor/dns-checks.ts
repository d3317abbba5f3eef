import { advice, fine, skipped, trouble, type Finding } from '../../core/contracts/doctor-check.js';
import type { Dns } from '../../core/contracts/dns.js';
import { DnsLookups } from '../../core/dns/plugin-dns.js';
import { ownAddresses } from '../../core/dns/mail-routes.js';
import { isPrivateAddress } from '../../core/dns/private-address.js';
import { isLoopbackHost } from '../../core/http/host.js';
import { normalAddress } from '../../core/net/ip-address.js';
import { systemTimers } from '../../core/clock.js';
import { domainFindings } from './domain-records.js';
import type { CoreCheck, Patient } from './patient.js';

const answerMs = 5000;
const mostDomains = 30;
const maxAddresses = 4;
/** RFC 6761, RFC 6762, RFC 8375, and what people use without asking. */
const localNames =
  /(?:^|\.)(?:localhost|local|localdomain|internal|intranet|lan|home\.arpa|corp|home|test|example|invalid)$/i;

export const dnsChecks: readonly CoreCheck[] = [{ group: 'DNS', name: 'dns', run: dns }];

/** A name that the DNS of the world may know. */
const isPublicName = (name: string): boolean => name.includes('.') && !localNames.test(name);

async function dns(patient: Patient): Promise<readonly Finding[]> {
  const { configuration, resolver } = patient;
  const outside = configuration.settings.smtp.listeners.some(
    ({ host, fd, socket }) => fd !== undefined || socket !== undefined || !isLoopbackHost(host),
  );
  if (!outside) return [skipped('Every SMTP listener is for this machine only: the DNS does not matter yet.')];
  const { hostname } = configuration;
  const domains = configuration.domains.filter(isPublicName).slice(0, mostDomains);
  const lookups: Dns = new DnsLookups({ resolver, timers: systemTimers, maxMs: answerMs });
  const broken = await resolverFinding(lookups, [...domains, hostname].find(isPublicName));
  if (broken?.state === 'problem') return [broken];
  const addresses = isPublicName(hostname) ? await addressesOf(lookups, hostname) : [];
  const here = { hostname, addresses: [...addresses, ...ownAddresses().map(normalAddress)], sends: addresses };
  const parts = await Promise.all([
    isPublicName(hostname) ? hostFindings(lookups, hostname, addresses) : [noName(hostname)],
    ...domains.map((domain) => domainFindings(lookups, domain, here)),
  ]);
  return [...(broken === undefined ? [] : [broken]), ...parts.flat()];
}

const noName = (hostname: string): Finding =>
  trouble(
    `${hostname} (hostname) is no name that other servers could look up: some refuse a server that greets with it.`,
    'Set hostname to the full name of this machine in the DNS, such as mail.example.org.',
  );

/** Without an answer to the first question, no other would say anything. */
async function resolverFinding(lookups: Dns, name: string | undefined): Promise<Finding | undefined> {
  if (name === undefined) return undefined;
  const [mx, address] = await Promise.all([lookups.lookup(name, 'MX'), lookups.lookup(name, 'A')]);
  const failed = [mx, address].filter(({ status }) => status === 'failed');
  if (failed.length < 2) return fine('The name servers answer.');
  const how = failed.some((answer) => answer.status === 'failed' && answer.reason === 'timeout')
    ? 'do not answer in time'
    : 'fail';
  return trouble(
    `The name servers ${how} when they are asked for ${name}.`,
    'Look at /etc/resolv.conf, and whether this machine may send to port 53. Mail to other servers waits meanwhile.',
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

/** Large providers take mail only from addresses whose name leads back to them. */
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
