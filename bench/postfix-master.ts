import { execFile } from 'node:child_process';
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { freePort, listening } from './peer.js';
import { programOnPath } from './sender.js';

const run = promisify(execFile);

/** A Postfix of its own that listens. */
export interface PostfixMaster {
  readonly port: number;
  readonly pid: number;
  stop(): Promise<void>;
}

/**
 * Starts Postfix with these settings beside those that every bench needs. Undefined, with a sentence, when it cannot be.
 * @param folder empty; queue, data and configuration are put into it
 */
export async function startMaster(folder: string, settings: readonly string[]): Promise<PostfixMaster | undefined> {
  const program = programOnPath('postfix');
  if (program === undefined || process.getuid?.() !== 0) {
    const reason = program === undefined ? 'is not installed (Debian: postfix)' : 'can only be started by root';
    return leftOut(reason);
  }
  const port = await freePort();
  const config = join(folder, 'config');
  await prepare(folder, config, port, settings);
  const stop = async (): Promise<void> => {
    await run(program, ['-c', config, 'stop']).catch(() => undefined);
  };
  try {
    await run(program, ['-c', config, 'start']);
  } catch (error) {
    return leftOut(`did not start: ${String(error)}`);
  }
  if (await listening(port, 10)) {
    const pid = Number(readFileSync(join(folder, 'queue', 'pid', 'master.pid'), 'latin1'));
    return { port, pid, stop };
  }
  await stop();
  return leftOut('did not listen');
}

async function prepare(folder: string, config: string, port: number, settings: readonly string[]): Promise<void> {
  for (const path of [config, join(folder, 'queue'), join(folder, 'data')]) mkdirSync(path);
  await run('chown', ['postfix', join(folder, 'data')]);
  for (let path = folder; path.length > 1; path = join(path, '..')) chmodSync(path, 0o755);
  const all = [
    'compatibility_level = 3.6',
    `queue_directory = ${folder}/queue`,
    `data_directory = ${folder}/data`,
    'alias_maps =',
    'alias_database =',
    'message_size_limit = 0',
    'inet_interfaces = 127.0.0.1',
    'inet_protocols = ipv4',
    'mynetworks = 127.0.0.0/8',
    'smtpd_client_connection_rate_limit = 0',
    `maillog_file = ${folder}/maillog`,
    `maillog_file_prefixes = ${folder}`,
    ...settings,
  ];
  writeFileSync(join(config, 'main.cf'), `${all.join('\n')}\n`);
  const master = readFileSync('/etc/postfix/master.cf', 'latin1');
  writeFileSync(join(config, 'master.cf'), master.replace(/^smtp(\s+inet)/m, `127.0.0.1:${port}$1`));
}

function leftOut(reason: string): undefined {
  process.stderr.write(`Postfix ${reason}; it is left out.\n`);
  return undefined;
}
