import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { type CommandEnvironment, programName, type Terminal } from '../../core/cli/command.js';
import { ProcessTerminal, withProgress } from '../../core/cli/terminal.js';
import { asStorageProblem } from '../../core/disk/fault.js';
import { packageRoot } from '../../core/host/installation.js';
import { configure } from '../../core/main.js';
import { parseDomain } from '../../core/mime/address.js';
import { usageError } from '../../core/problem.js';
import { makeKeys } from './dkim-keys.js';
import { configurationText, systemFolder, unitText, writeNew } from './first-files.js';
import { configuredDomain, type ZoneCall, zonesOf, zonesText } from './zone.js';

export interface InitCall {
  readonly domain: string | undefined;
  /** `mail.DOMAIN` when absent. */
  readonly mailHost: string | undefined;
  readonly folder: string;
  readonly form: ZoneCall['form'];
}

interface FirstFile {
  readonly path: string;
  /** False when it was there already. */
  readonly written: boolean;
}

/**
 * `postern init`: writes what a mail server for a domain begins with, and prints its DNS records. What is there stays, so
 * that it may be called again at any time, also after a kill.
 *
 * @throws usage error without a domain and a terminal to ask for it; start error, before anything is written, for a domain
 *   that the configuration there does not have
 */
export async function init(call: InitCall, environment: CommandEnvironment): Promise<number> {
  const terminal = new ProcessTerminal();
  const { domain, hostname } = await askNames(call, terminal).finally(() => terminal.close());
  const folder = resolve(environment.cwd, call.folder);
  const config = join(folder, 'postern.json5');
  if (existsSync(config)) configuredDomain(await configure({ config }, environment), domain);
  const files = await writeFirstFiles(folder, domain, hostname);
  const configuration = await configure({ config }, environment);
  const zones = await zonesOf(configuration, domain);
  if (call.form === 'json') {
    environment.print(JSON.stringify({ folder, files, zones }, null, 2));
    return 0;
  }
  const lines = files.map(({ path, written }) => `  ${written ? 'written' : 'kept   '}  ${join(folder, path)}`);
  const [first] = configuration.domains;
  environment.print([`Files for ${domain}`, ...lines, ''].join('\n'));
  environment.print(zonesText(zones, call.form));
  environment.print(['', 'Next', ...nextSteps(folder, first ?? domain, programName(environment))].join('\n'));
  return 0;
}

/** Asks on a terminal for what was not given. */
export async function askNames(
  { domain, mailHost }: Pick<InitCall, 'domain' | 'mailHost'>,
  terminal: Pick<Terminal, 'interactive' | 'ask'>,
): Promise<{ readonly domain: string; readonly hostname: string }> {
  if (domain === undefined && !terminal.interactive) {
    throw usageError('Usage: postern init DOMAIN [--mail-host HOST] [--folder DIR]');
  }
  const name = parseDomain(domain ?? (await terminal.ask('Domain of your mail, such as example.org: ')).trim());
  const usual = `mail.${name}`;
  const isAsked = domain === undefined && mailHost === undefined;
  const answer = isAsked ? (await terminal.ask(`Name of this server [${usual}]: `)).trim() : (mailHost ?? '');
  return { domain: name, hostname: answer === '' ? usual : parseDomain(answer, 'The mail host') };
}

/** The configuration is last: it names the others. */
async function writeFirstFiles(folder: string, domain: string, hostname: string): Promise<readonly FirstFile[]> {
  try {
    await mkdir(folder, { recursive: true });
    const keys = await withProgress('Making the keys', () => makeKeys(folder, domain, 1));
    const write = async (path: string, text: () => string, mode: number): Promise<FirstFile> => ({
      path,
      written: await writeNew(join(folder, path), text, mode),
    });
    return [
      ...keys.map(({ key, written }) => ({ path: key, written })),
      await write('postern.service', () => unitText(folder), 0o644),
      await write('postern.json5', () => configurationText({ domain, hostname, folder, keys }), 0o640),
    ];
  } catch (error) {
    throw asStorageProblem(error);
  }
}

function nextSteps(folder: string, domain: string, program: string): readonly string[] {
  const config = `--config ${join(folder, 'postern.json5')}`;
  const user = [
    '# the user of the service, who owns the folder',
    `install -m 0644 ${join(packageRoot, 'deploy/systemd/postern.sysusers')} /etc/sysusers.d/postern.conf`,
    `systemd-sysusers && chown -R postern: ${folder}`,
  ];
  const commands = [
    ...(folder === systemFolder ? user : []),
    '# as a service',
    `install -m 0644 ${join(folder, 'postern.service')} /etc/systemd/system/`,
    'systemctl daemon-reload && systemctl enable --now postern',
    'journalctl -u postern',
    '# or without systemd',
    `${program} start ${config}`,
    '# a user; it asks for the password',
    `${program} user add NAME@${domain} ${config}`,
    '# what is missing, the DNS included',
    `${program} doctor ${config}`,
  ];
  return ['  Put the records above into the DNS. Then, in this order:', ...commands.map((line) => `  ${line}`)];
}
