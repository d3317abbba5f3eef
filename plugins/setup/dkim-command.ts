import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { CommandEnvironment } from '../../core/cli/command.js';
import { withProgress } from '../../core/cli/terminal.js';
import { asStorageProblem } from '../../core/disk/fault.js';
import { dkimRecord, zoneLine } from '../../core/dns/mail-zone.js';
import { configure, type StartOptions } from '../../core/main.js';
import { startError } from '../../core/problem.js';
import { type ConfiguredKey, configuredKeys, makeKeys, publicationOf } from './dkim-keys.js';
import { configuredDomain } from './zone.js';

interface KeyCall {
  readonly options: StartOptions;
  readonly json: boolean;
}

/** `postern dkim list`: the keys that sign, one per line. */
export async function listKeys({ options, json }: KeyCall, environment: CommandEnvironment): Promise<number> {
  const keys = await configuredKeys(await configure(options, environment));
  if (json) environment.print(JSON.stringify(keys, null, 2));
  else if (keys.length === 0) environment.print('No mail is signed: see postern dkim create DOMAIN.');
  else for (const key of keys) environment.print(lineOf(key));
  return 0;
}

const lineOf = ({ domain, selector, algorithm, bits, file }: ConfiguredKey): string =>
  `${domain}  ${selector}  ${algorithm}${bits === null ? '' : ` ${bits}`}  ${file}`;

/** `postern dkim show`: the records of the keys of a domain, as lines of a zone file. */
export async function showKeys(
  { domain, options, json }: KeyCall & { readonly domain: string },
  environment: CommandEnvironment,
): Promise<number> {
  const configuration = await configure(options, environment);
  const name = configuredDomain(configuration, domain);
  const keys = (await configuredKeys(configuration)).filter((key) => key.domain === name);
  if (keys.length === 0) throw startError(`Mail from ${name} is not signed: see postern dkim create ${name}.`);
  const records = keys.map((key) => dkimRecord(name, key));
  environment.print(json ? JSON.stringify(records, null, 2) : records.map(zoneLine).join('\n'));
  return 0;
}

/** `postern dkim create`: new keys beside the old ones, which sign until the configuration names the new. */
export async function createKeys(
  { domain, options, json }: KeyCall & { readonly domain: string },
  environment: CommandEnvironment,
): Promise<number> {
  const configuration = await configure(options, environment);
  const name = configuredDomain(configuration, domain);
  const { folder } = configuration;
  const making = withProgress('Making the keys', () => makeKeys(folder, name, nextRound(folder, name)));
  const keys = await making.catch((error: unknown) => {
    throw asStorageProblem(error);
  });
  const records = await Promise.all(
    keys.map(async ({ selector, key }) => dkimRecord(name, await publicationOf(selector, join(folder, key)))),
  );
  const settings = keys.map(({ selector, key }) => ({ selector, key }));
  if (json) {
    environment.print(JSON.stringify({ domain: name, folder, settings, records }, null, 2));
    return 0;
  }
  const listed = settings.map(({ selector, key }) => `    { selector: '${selector}', key: '${key}' },`);
  environment.print(
    [
      `1. Publish these records, and wait until they can be seen (postern doctor):`,
      ...records.map((record) => `  ${zoneLine(record)}`),
      `2. Name the keys in plugins.client-queue.dkim of ${configuration.file ?? 'postern.json5'}, in place of older ones:`,
      `  '${name}': [`,
      ...listed,
      '  ],',
      '3. postern reload. Leave records of older keys in the DNS for a week: signed mail may be on its way.',
    ].join('\n'),
  );
  return 0;
}

/** The first for which there is no file: numbers of selectors are not used again. */
function nextRound(folder: string, domain: string): number {
  let round = 1;
  while (existsSync(join(folder, 'dkim', `${domain}.rsa${round}.pem`))) round += 1;
  return round;
}
