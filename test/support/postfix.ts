import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { chmod, chown, mkdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { atEnd, type Ending } from './ending.js';
import { freePort } from './free-port.js';
import { findPeer } from './peers.js';
import { SmtpClient } from './smtp-client.js';
import { temporaryFolder } from './temporary-folder.js';
import { until } from './until.js';

/** What a message needs on its way through: SMTP in, the queue, SMTP out, and a log of their own. */
const services = (port: number): string =>
  [
    `127.0.0.1:${port} inet n - n - - smtpd`,
    'cleanup unix n - n - 0 cleanup',
    'qmgr unix n - n 300 1 qmgr',
    'rewrite unix - - n - - trivial-rewrite',
    'bounce unix - - n - 0 bounce',
    'defer unix - - n - 0 bounce',
    'trace unix - - n - 0 bounce',
    'smtp unix - - n - - smtp',
    'error unix - - n - - error',
    'retry unix - - n - - error',
    'anvil unix - - n - 1 anvil',
    'scache unix - - n - 1 scache',
    'tlsmgr unix - - n 1000? 1 tlsmgr',
    'postlog unix-dgram n - n - 1 postlogd',
    '',
  ].join('\n');

const settings = (folder: string, relayPort: number): string =>
  [
    'compatibility_level = 3.6',
    `queue_directory = ${join(folder, 'queue')}`,
    `data_directory = ${join(folder, 'data')}`,
    `maillog_file_prefixes = ${folder}`,
    `maillog_file = ${join(folder, 'postfix.log')}`,
    'myhostname = relay.example',
    'mydestination =',
    'alias_maps =',
    'alias_database =',
    'local_recipient_maps =',
    'inet_interfaces = loopback-only',
    'inet_protocols = ipv4',
    'mynetworks = 127.0.0.0/8',
    'smtpd_relay_restrictions = permit_mynetworks, reject',
    `relayhost = [127.0.0.1]:${relayPort}`,
    'smtp_tls_security_level = encrypt',
    // The message goes on as it came: nothing is added but a Received field, and long lines stay whole.
    'local_header_rewrite_clients =',
    'smtp_line_length_limit = 0',
    // A deferred message is tried again each second.
    'queue_run_delay = 1s',
    'minimal_backoff_time = 1s',
    'maximal_backoff_time = 1s',
    'transport_retry_time = 1s',
    'default_destination_concurrency_failed_cohort_limit = 0',
    '',
  ].join('\n');

/** What is to be tried on top of what every message needs. */
export interface PostfixExtras {
  /** Lines for master.cf. */
  readonly services?: string;
  /** Lines for main.cf, the last of two counting. */
  readonly settings?: readonly string[];
}

/** A Postfix of our own, which needs root: what it is given over SMTP it queues and sends to one port, by TLS only. */
export class Postfix {
  readonly port: number;
  readonly #log: string;

  private constructor(port: number, log: string) {
    this.port = port;
    this.#log = log;
  }

  /** Resolves when it takes mail; stopped when the test ends. */
  static async start(
    test: Ending,
    relayPort: number,
    { services: more = '', settings: others = [] }: PostfixExtras = {},
  ): Promise<Postfix> {
    const folder = await temporaryFolder(test);
    await chmod(folder, 0o711);
    const configuration = join(folder, 'configuration');
    for (const name of ['configuration', 'queue', 'data']) await mkdir(join(folder, name), { mode: 0o755 });
    const { uid, gid } = await ownerOfMail();
    await chown(join(folder, 'data'), uid, gid);
    const port = await freePort();
    await writeFile(join(configuration, 'main.cf'), `${settings(folder, relayPort)}${others.join('\n')}\n`);
    await writeFile(join(configuration, 'master.cf'), `${services(port)}${more}`);
    const program = findPeer('postfix') ?? 'postfix';
    const child = spawn(program, ['-c', configuration, 'start-fg'], { stdio: 'ignore' });
    atEnd(test, () => stop(child, join(folder, 'queue', 'pid', 'master.pid')));
    const postfix = new Postfix(port, join(folder, 'postfix.log'));
    await postfix.#untilStarted(child);
    return postfix;
  }

  /** Lines of its log that match. */
  async logged(pattern: RegExp): Promise<readonly string[]> {
    return (await this.#text()).split('\n').filter((line) => pattern.test(line));
  }

  /** The same, when there are some: a daemon of its own writes the log. */
  untilLogged(pattern: RegExp, count = 1): Promise<readonly string[]> {
    const look = async (): Promise<readonly string[] | undefined> => {
      const found = await this.logged(pattern);
      return found.length < count ? undefined : found;
    };
    return until(`${count} lines like ${pattern} in the log of Postfix`, look, 60_000);
  }

  async #untilStarted(child: ChildProcess): Promise<void> {
    const end = performance.now() + 20_000;
    for (;;) {
      const client = await SmtpClient.connect({ port: this.port }).catch(() => undefined);
      client?.close();
      if (client !== undefined) return;
      if (child.exitCode !== null || performance.now() > end) {
        throw new Error(`Postfix does not start: ${await this.#text()}`);
      }
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  #text(): Promise<string> {
    return readFile(this.#log, 'utf8').catch(() => '');
  }
}

/** The user that the package has made for the mail system; its own data folder tells who that is. */
async function ownerOfMail(): Promise<{ readonly uid: number; readonly gid: number }> {
  const { uid, gid } = await stat('/var/lib/postfix');
  return { uid, gid };
}

/** Its script is our child; the daemon that the script has started is told to stop, and the script ends with it. */
async function stop(script: ChildProcess, pidFile: string): Promise<void> {
  if (script.exitCode !== null || script.signalCode !== null) return;
  const ended = once(script, 'exit');
  const pid = Number(await readFile(pidFile, 'utf8').catch(() => 'none'));
  if (pid > 1) process.kill(pid, 'SIGTERM');
  else script.kill('SIGTERM');
  await ended;
}
