import { ownAddresses } from '../../core/dns/mail-routes.js';
import { mailZone, zoneLine, type ZoneRecord } from '../../core/dns/mail-zone.js';
import { StsPolicyOptions, stsPolicyText } from '../../core/dns/mta-sts.js';
import { isPrivateAddress } from '../../core/dns/private-address.js';
import type { CommandEnvironment } from '../../core/cli/command.js';
import type { LoadedConfiguration } from '../../core/config/load.js';
import { configure, type StartOptions } from '../../core/main.js';
import { parseDomain } from '../../core/mime/address.js';
import { startError } from '../../core/problem.js';
import { configuredKeys } from './dkim-keys.js';

export interface ZoneCall {
  /** All of the configuration when absent. */
  readonly domain: string | undefined;
  readonly options: StartOptions;
  readonly form: 'zone' | 'table' | 'json';
}

/** The records of one domain. */
export interface DomainZone {
  readonly domain: string;
  readonly hostname: string;
  readonly addresses: readonly string[];
  readonly records: readonly ZoneRecord[];
}

/** `postern zone`: prints the DNS records of the domains, from the configuration and the keys. Asks no server. */
export async function zone({ domain, options, form }: ZoneCall, environment: CommandEnvironment): Promise<number> {
  const zones = await zonesOf(await configure(options, environment), domain);
  environment.print(zonesText(zones, form));
  return 0;
}

/** @throws start error for a domain that the configuration does not have */
export async function zonesOf(configuration: LoadedConfiguration, domain?: string): Promise<readonly DomainZone[]> {
  const keys = await configuredKeys(configuration);
  const known = configuration.domains.filter((name) => name !== 'localhost');
  const wanted = domain === undefined ? known : [configuredDomain(configuration, domain)];
  if (wanted.length === 0) throw startError('The configuration has no domain of the DNS: see postern init.');
  const hostname = configuration.hostname.toLowerCase();
  const addresses = ownAddresses().filter((address) => !isPrivateAddress(address));
  const sts = StsPolicyOptions.safeParse(configuration.options.get('mta-sts')).data;
  const shared = { hostname, addresses, stsPolicy: sts && stsPolicyText(sts, hostname) };
  return wanted.map((domain) => {
    const dkim = keys.filter((key) => key.domain === domain);
    return { domain, hostname, addresses, records: mailZone({ domain, dkim, ...shared }) };
  });
}

/**
 * The domain in its canonical form.
 *
 * @throws start error unless the configuration has it
 */
export function configuredDomain({ domains, file }: LoadedConfiguration, text: string): string {
  const domain = parseDomain(text);
  if (domains.includes(domain)) return domain;
  throw startError(
    `${domain} is no domain of ${file ?? 'the configuration'}, which has ${domains.join(', ')}: add it to domains.`,
  );
}

export function zonesText(zones: readonly DomainZone[], form: ZoneCall['form']): string {
  if (form === 'json') return JSON.stringify(zones, null, 2);
  return zones.map(form === 'table' ? tableText : zoneText).join('\n\n');
}

/** A zone file (RFC 1035 §5.1); what this machine cannot know is in comments. */
function zoneText({ domain, hostname, addresses, records }: DomainZone): string {
  const lines = records.flatMap((record) => [`; ${record.purpose}`, zoneLine(record)]);
  return [
    `; Records for the mail of ${domain}`,
    ...lines,
    ...addressAdvice(hostname, addresses).map((line) => `; ${line}`),
  ].join('\n');
}

function addressAdvice(hostname: string, addresses: readonly string[]): readonly string[] {
  const open = addresses.length === 0 ? [`the public address of ${hostname}`] : addresses;
  return [
    ...(addresses.length === 0
      ? [`No interface here has a public address. Add an A and, if there is IPv6, an AAAA record for ${hostname}.`]
      : []),
    `The provider of the address sets its reverse name (PTR): ${open.join(', ')} → ${hostname}.`,
  ];
}

/** Long values are whole: they are copied into forms of providers. */
function tableText({ domain, hostname, addresses, records }: DomainZone): string {
  const width = Math.max(...records.map(({ name }) => name.length)) + 2;
  const row = (name: string, type: string, value: string) => `${name.padEnd(width)}${type.padEnd(7)}${value}`;
  return [
    `Records for the mail of ${domain}`,
    '',
    row('Name', 'Type', 'Value'),
    ...records.map(({ name, type, value }) => row(name, type, value)),
    '',
    ...addressAdvice(hostname, addresses),
  ].join('\n');
}
