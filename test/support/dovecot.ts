import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { isRoot, type MailAccount } from './account.js';
import { atEnd, type Ending } from './ending.js';
import { freePort } from './free-port.js';
import { findPeer } from './peers.js';
import { temporaryFolder } from './temporary-folder.js';

export interface DovecotOptions {
  /** `…/data/mail`: below it are `<domain>/<user>`. */
  readonly mailRoot: string;
  readonly account: MailAccount;
  /** Takes mail by LMTP as well. */
  readonly lmtp?: boolean;
  /** The addresses that there are; everybody if absent. */
  readonly users?: readonly string[];
  /** What is to be tried in place of our own settings for mail and users. */
  readonly settings?: string;
}

/** Users of the system that Dovecot's own processes become; without root they stay who they are. */
function internalUsers(): readonly string[] {
  if (isRoot()) return [];
  const { username } = userInfo();
  return [
    `default_internal_user = ${username}`,
    `default_internal_group = ${execFileSync('id', ['-gn'], { encoding: 'utf8' }).trim()}`,
    `default_login_user = ${username}`,
    'service imap-login {\n chroot =\n}',
    'service anvil {\n chroot =\n}',
    'service stats {\n chroot =\n}',
  ];
}

/** Where this one keeps its own things and listens, beside a Dovecot of the machine. */
function ownPlaces(folder: string, port: number): readonly string[] {
  return [
    `base_dir = ${join(folder, 'base')}`,
    `state_dir = ${join(folder, 'state')}`,
    `log_path = ${join(folder, 'dovecot.log')}`,
    'listen = 127.0.0.1',
    ...internalUsers(),
    `service imap-login {\n inet_listener imap {\n  port = ${port}\n }\n inet_listener imaps {\n  port = 0\n }\n}`,
  ];
}

function configurationText(folder: string, port: number, lmtpPort: number, options: DovecotOptions): string {
  const {
    mailRoot,
    account: { uid, gid },
  } = options;
  return `${[
    ...ownPlaces(folder, port),
    `protocols = imap${lmtpPort > 0 ? ' lmtp' : ''}`,
    ...lmtpService(lmtpPort),
    'ssl = no',
    'disable_plaintext_auth = no',
    'mail_max_userip_connections = 50',
    `first_valid_uid = ${uid}`,
    `first_valid_gid = ${gid}`,
    `mail_location = maildir:${mailRoot}/%d/%n`,
    'passdb {\n driver = static\n args = nopassword=y\n}',
    userBase(folder, options),
  ].join('\n')}\n`;
}

const usersFile = (folder: string): string => join(folder, 'users');

function userBase(folder: string, { mailRoot, account: { uid, gid }, users }: DovecotOptions): string {
  return users === undefined
    ? `userdb {\n driver = static\n args = uid=${uid} gid=${gid} home=${mailRoot}/%d/%n\n}`
    : `userdb {\n driver = passwd-file\n args = ${usersFile(folder)}\n}`;
}

function usersText({ mailRoot, account: { uid, gid }, users = [] }: DovecotOptions): string {
  const home = (address: string): string => join(mailRoot, ...address.split('@').toReversed());
  return users.map((address) => `${address}::${uid}:${gid}::${home(address)}::\n`).join('');
}

function lmtpService(port: number): readonly string[] {
  if (port === 0) return [];
  const listener = `inet_listener lmtp {\n  address = 127.0.0.1\n  port = ${port}\n }`;
  return ['postmaster_address = postmaster@office.example', `service lmtp {\n ${listener}\n}`];
}

/** A Dovecot of our own that serves a tree of Maildirs by IMAP; every password is right. */
export class Dovecot {
  readonly port: number;
  /** 0 without LMTP. */
  readonly lmtpPort: number;
  readonly #log: string;

  private constructor(port: number, lmtpPort: number, log: string) {
    this.port = port;
    this.lmtpPort = lmtpPort;
    this.#log = log;
  }

  /** Resolves when it listens; stopped when the test ends. */
  static async start(test: Ending, options: DovecotOptions): Promise<Dovecot> {
    const folder = await temporaryFolder(test);
    await chmod(folder, 0o711);
    await mkdir(join(folder, 'state'));
    const port = await freePort();
    const lmtpPort = options.lmtp === true ? await freePort() : 0;
    const file = join(folder, 'dovecot.conf');
    const text =
      options.settings === undefined
        ? configurationText(folder, port, lmtpPort, options)
        : `${ownPlaces(folder, port).join('\n')}\n${options.settings}`;
    await writeFile(file, text);
    await writeFile(usersFile(folder), usersText(options));
    const child = spawn(findPeer('dovecot') ?? 'dovecot', ['-F', '-c', file], { stdio: 'ignore' });
    atEnd(test, () => stop(child));
    const dovecot = new Dovecot(port, lmtpPort, join(folder, 'dovecot.log'));
    await dovecot.#untilStarted(child);
    return dovecot;
  }

  /** What it complains about; at its start it mends the modes of its own folders. */
  async complaints(): Promise<readonly string[]> {
    const lines = (await this.#text()).split('\n');
    return lines.filter((line) => /Error|Warning|Fatal|Panic/.test(line) && !line.includes('Corrected permissions'));
  }

  async #untilStarted(child: ChildProcess): Promise<void> {
    const until = performance.now() + 10_000;
    while (!(await this.#text()).includes('starting up')) {
      if (child.exitCode !== null || performance.now() > until) {
        throw new Error(`Dovecot does not start: ${await this.#text()}`);
      }
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  #text(): Promise<string> {
    return readFile(this.#log, 'utf8').catch(() => '');
  }
}

async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, 'exit');
  child.kill('SIGTERM');
  await ended;
}
