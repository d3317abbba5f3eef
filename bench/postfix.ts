import { execFile } from 'node:child_process';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { freePort, listening, type Peer } from './peer.js';
import { programOnPath } from './sender.js';

const run = promisify(execFile);

/** Postfix with a configuration of its own, delivering into a Maildir. Undefined, with a sentence, when it cannot be. */
export async function startPostfix(folder: string): Promise<Peer | undefined> {
  const program = programOnPath('postfix');
  if (program === undefined || process.getuid?.() !== 0) {
    const reason = program === undefined ? 'is not installed (Debian: postfix)' : 'can only be started by root';
    process.stderr.write(`Postfix ${reason}; it is left out.\n`);
    return undefined;
  }
  const port = await freePort();
  const config = join(folder, 'config');
  const mail = join(folder, 'mail');
  for (const path of [config, join(folder, 'queue'), join(folder, 'data'), mail]) mkdirSync(path);
  await run('chown', ['postfix', join(folder, 'data')]);
  await run('chown', ['nobody', mail]);
  for (let path = folder; path.length > 1; path = join(path, '..')) chmodSync(path, 0o755);
  const { stdout: nobody } = await run('id', ['-u', 'nobody']);
  const { stdout: group } = await run('id', ['-g', 'nobody']);
  writeFileSync(
    join(config, 'main.cf'),
    `compatibility_level = 3.6
queue_directory = ${folder}/queue
data_directory = ${folder}/data
myhostname = bench.localhost
mydestination =
virtual_mailbox_domains = localhost
virtual_mailbox_base = ${mail}
virtual_mailbox_maps = static:box/
virtual_uid_maps = static:${nobody.trim()}
virtual_gid_maps = static:${group.trim()}
virtual_mailbox_limit = 0
message_size_limit = 0
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
mynetworks = 127.0.0.0/8
smtpd_client_connection_rate_limit = 0
alias_maps =
alias_database =
local_recipient_maps =
maillog_file = ${folder}/maillog
maillog_file_prefixes = ${folder}
`,
  );
  const { stdout: master } = await run('cat', ['/etc/postfix/master.cf']);
  writeFileSync(join(config, 'master.cf'), master.replace(/^smtp(\s+inet)/m, `127.0.0.1:${port}$1`));
  try {
    await run(program, ['-c', config, 'start']);
  } catch (error) {
    process.stderr.write(`Postfix did not start and is left out: ${String(error)}\n`);
    return undefined;
  }
  const stop = async (): Promise<void> => {
    await run(program, ['-c', config, 'stop']).catch(() => undefined);
  };
  if (await listening(port, 10))
    return { name: 'postfix', port, pid: undefined, inbox: join(mail, 'box', 'new'), stop };
  await stop();
  process.stderr.write('Postfix did not listen; it is left out.\n');
  return undefined;
}
