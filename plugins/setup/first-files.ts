import { constants, existsSync, readFileSync } from 'node:fs';
import { link, open, stat, unlink } from 'node:fs/promises';
import { userInfo } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { writeDurable } from '../../core/disk/atomic.js';
import { faultCode } from '../../core/disk/fault.js';
import { nodeFiles } from '../../core/disk/file-layer.js';
import { syncFolder } from '../../core/disk/folder.js';
import { uniqueId } from '../../core/disk/id.js';
import { packageRoot } from '../../core/host/installation.js';
import { startError } from '../../core/problem.js';

/**
 * Writes a file that is not there yet; it appears whole or not at all. False when it was there: then nothing is changed.
 *
 * @param text is asked for only when the file is written
 * @param mode permission bits
 */
export async function writeNew(path: string, text: () => string | Promise<string>, mode: number): Promise<boolean> {
  if (existsSync(path)) return false;
  const temporary = join(dirname(path), `.${basename(path)}.${uniqueId()}.tmp`);
  try {
    await writeDurable(nodeFiles, temporary, [Buffer.from(await text())], mode);
    await giveToFolderOwner(temporary);
    // A rename would replace what another run has written meanwhile.
    await link(temporary, path);
  } catch (error) {
    if (faultCode(error) !== 'EEXIST') throw error;
    return false;
  } finally {
    await unlink(temporary).catch(() => undefined);
  }
  await syncFolder(dirname(path));
  return true;
}

/** What root makes belongs to the owner of its folder, whose server could not read it otherwise. */
export async function giveToFolderOwner(path: string): Promise<void> {
  if (process.getuid?.() !== 0) return;
  const { uid, gid } = await stat(dirname(path));
  const made = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW);
  try {
    const found = await made.stat();
    // Who owns the folder may have put a link to another file of root in its place.
    if (found.isFile() && found.nlink > 1) throw startError(`${path} was replaced while it was made.`);
    await made.chown(uid, gid);
  } finally {
    await made.close();
  }
}

export interface FirstSettings {
  readonly domain: string;
  readonly hostname: string;
  /** Absolute path of the folder of the configuration. */
  readonly folder: string;
  readonly keys: readonly { readonly selector: string; readonly key: string }[];
}

/** Where packages of a distribution have their configuration: there the server runs as its own user. */
export const systemFolder = '/etc/postern';

const dataFolderOf = (folder: string): string => (folder === systemFolder ? '/var/lib/postern' : 'data');

/** Text of the first `postern.json5`, with a comment at every setting. */
export function configurationText({ domain, hostname, folder, keys }: FirstSettings): string {
  const signing = keys.map(({ selector, key }) => `          { selector: '${selector}', key: '${key}' },`).join('\n');
  return `// The mail server of ${domain}. docs/configuration.md has every key; postern config check finds mistakes.
{
  // Lets editors complete the keys and explain them.
  $schema: ${JSON.stringify(join(packageRoot, 'docs', 'postern.schema.json'))},

  // The name of this server in the DNS, by which it greets others.
  hostname: '${hostname}',

  // Mail for these domains ends here; postmaster has a mailbox in the first.
  domains: ['${domain}'],

  // Mailboxes, the queue, users and logs. A relative path is relative to this file.
  data: '${dataFolderOf(folder)}',

  // The pages, for this machine only. docs/deploy.md says how a proxy gives them a name and TLS.
  http: { host: '127.0.0.1', port: 8080 },

  smtp: {
    // TLS is self-signed until plugins.acme has a certificate, or a listener has key and cert.
    listeners: [
      {
        // Mail from other servers. Without IPv4, say '::'.
        mode: 'mx',
        host: '0.0.0.0',
        port: 25,
        tls: 'starttls',
      },
      {
        // Mail of your users, who sign in under TLS.
        mode: 'submission',
        host: '0.0.0.0',
        port: 587,
        tls: 'starttls',
      },
    ],
  },

  plugins: {
    'client-queue': {
      // Mail of the domain that goes out is signed with each key. postern zone prints their DNS records.
      dkim: {
        '${domain}': [
${signing}
        ],
      },
    },
    // A certificate from Let's Encrypt, once port 80 of these names reaches the pages: docs/tls.md.
    // acme: { names: ['${hostname}', 'mta-sts.${domain}'], termsAgreed: true },
  },
}
`;
}

/** The unit of deploy/systemd, for this folder, this installation and this user. */
export function unitText(folder: string): string {
  const path = (text: string) => text.replaceAll('%', '%%').replace(/^.*\s.*$/, '"$&"');
  const command = [process.execPath, join(packageRoot, 'dist', 'core', 'postern.cjs'), 'start', '--config'];
  const start = [...command, join(folder, 'postern.json5')].map(path).join(' ');
  const unit = readFileSync(join(packageRoot, 'deploy', 'systemd', 'postern.service'), 'utf8')
    .replace(/^#.*\n/, '# To be put into /etc/systemd/system.\n')
    .replace(/^Documentation=.*$/m, `Documentation=file://${path(join(packageRoot, 'docs', 'deploy.md'))}`)
    .replace(/^ExecStart=.*$/m, () => `ExecStart=${start}`)
    .replace(/^EnvironmentFile=.*$/m, () => `EnvironmentFile=-${path(join(folder, 'environment'))}`);
  if (folder === systemFolder) return unit;
  return unit
    .replace(/^User=.*\nGroup=.*$/m, `User=${userInfo().username}`)
    .replace(/^# \/var\/lib\/postern is .*\nStateDirectory=.*\nStateDirectoryMode=.*$/m, () =>
      ['# What can be written, beside a /tmp of its own and a cache.', `ReadWritePaths=${path(folder)}`].join('\n'),
    )
    .replace(/^ConfigurationDirectory.*\n/gm, '')
    .replace(/^ProtectHome=.*$/m, 'ProtectHome=read-only');
}
