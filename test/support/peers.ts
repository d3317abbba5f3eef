import { accessSync, constants, readdirSync } from 'node:fs';
import { delimiter, join } from 'node:path';

/** Programs that tests drive us with, and what is left untested without them. */
const peers = {
  chromium: 'the pages are not looked at in a browser',
  w3m: 'the pages are not used in a browser without JavaScript and formaction',
  swaks: 'no mail is sent by swaks',
  strace: 'no system call is made to fail',
  prometheus: 'no Prometheus scrapes the metrics',
  promtool: 'the metrics are not read by Prometheus',
  clamd: 'no message is scanned by ClamAV',
  rspamd: 'no message is scanned by rspamd',
  openssl: 'no certificate is made',
  dovecot: 'no mailbox is served by IMAP',
  doveconf: 'the settings for Dovecot are not read',
  lmtp: 'no mail is given to Dovecot over LMTP',
  postconf: 'the settings for Postfix are not read',
  postfix: 'no mail comes from its queue',
  postgres: 'nothing is kept in PostgreSQL',
  setpriv: 'nothing is run as another user',
  rsync: 'no copy is made of a running server',
  nginx: 'it is not in front of our pages',
  haproxy: 'it is not in front of our SMTP listeners',
  caddy: 'it is not in front of our pages',
  'systemd-analyze': 'the units are not looked at by systemd',
  'systemd-socket-activate': 'no socket is handed over by systemd',
  'systemd-sysusers': 'no user is made by systemd',
} as const;

export type Peer = keyof typeof peers;

/** Absolute path of a program, or undefined when it is not installed. */
export function findPeer(name: Peer): string | undefined {
  return [
    ...(process.env['PATH'] ?? '').split(delimiter),
    '/usr/bin',
    '/usr/sbin',
    '/usr/lib/dovecot',
    '/usr/libexec/dovecot',
    ...postgresFolders(),
  ]
    .map((folder) => join(folder, name))
    .find(isExecutable);
}

/** Debian puts no server into the path: `/usr/lib/postgresql/15/bin`, newest first. */
function postgresFolders(): readonly string[] {
  const root = '/usr/lib/postgresql';
  try {
    const versions = readdirSync(root).map(Number).filter(Number.isInteger);
    return versions.sort((one, other) => other - one).map((version) => join(root, `${version}`, 'bin'));
  } catch {
    return [];
  }
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/**
 * For the `skip` option of a test: false when the program is there, else a sentence. Where `CI` is set nothing may be
 * skipped: the missing program is an error.
 */
export function skipWithout(name: Peer): string | false {
  if (findPeer(name) !== undefined) return false;
  const sentence = `${name} is not installed, so ${peers[name]}.`;
  if (process.env['CI'] !== undefined && process.env['CI'] !== '') throw new Error(sentence);
  return sentence;
}
