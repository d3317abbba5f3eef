import { execFile } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Peer } from './peer.js';
import { startMaster } from './postfix-master.js';

const run = promisify(execFile);

/** Postfix with a configuration of its own, delivering into a Maildir. Undefined, with a sentence, when it cannot be. */
export async function startPostfix(folder: string, pair: readonly string[]): Promise<Peer | undefined> {
  const mail = join(folder, 'mail');
  mkdirSync(mail);
  const { stdout: nobody } = await run('id', ['-u', 'nobody']);
  const { stdout: group } = await run('id', ['-g', 'nobody']);
  if (process.getuid?.() === 0) await run('chown', ['nobody', mail]);
  const master = await startMaster(folder, [
    'myhostname = bench.localhost',
    'mydestination =',
    'local_recipient_maps =',
    'virtual_mailbox_domains = localhost',
    `virtual_mailbox_base = ${mail}`,
    'virtual_mailbox_maps = static:box/',
    `virtual_uid_maps = static:${nobody.trim()}`,
    `virtual_gid_maps = static:${group.trim()}`,
    'virtual_mailbox_limit = 0',
    'smtpd_tls_security_level = may',
    `smtpd_tls_chain_files = ${pair.join(', ')}`,
  ]);
  if (master === undefined) return undefined;
  const inbox = join(mail, 'box', 'new');
  return { name: 'postfix', port: master.port, pid: master.pid, inbox, stop: () => master.stop() };
}
