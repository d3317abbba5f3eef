import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, chown, mkdtemp, readFile, realpath } from 'node:fs/promises';
import { join, dirname } from 'node:path';
import { promisify } from 'node:util';
import { isRoot } from './account.js';
import { atEnd, type Ending } from './ending.js';
import { freePort } from './free-port.js';
import { findPeer } from './peers.js';
import { untilTrue } from './until.js';

const run = promisify(execFile);

/** Not `tmpdir()`: the name of a socket has 107 bytes at most. */
const socketRoot = '/tmp';

export interface PostgresOptions {
  /** As in service, for tests that kill; without, nothing is forced to the disk. */
  readonly durable?: boolean;
  /** Listens on a port of 127.0.0.1 as well. */
  readonly tcp?: boolean;
  /** Fills the database that all others are copies of. */
  readonly fill?: (url: string) => Promise<void>;
  /** Further lines of `postgresql.conf`. */
  readonly settings?: Readonly<Record<string, string | number>>;
}

export type StopMode = 'fast' | 'immediate';

/** Stops the server and removes its folder as soon as the pipe from the test closes, also when the test is killed. */
const watchdog =
  'folder=$1; shift; cat >/dev/null; "$@" -D "$folder/data" -m immediate -w stop >/dev/null 2>&1; rm -rf "$folder"';

/** A PostgreSQL of our own; everybody who reaches its socket is `postgres`. */
export class Postgres {
  /** Holds data, log and socket. */
  readonly folder: string;
  /** 0 without `tcp`. */
  readonly port: number;
  readonly #bin: string;
  readonly #launcher: readonly string[];
  readonly #settings: Readonly<Record<string, string | number>>;

  private constructor(
    folder: string,
    bin: string,
    launcher: readonly string[],
    port: number,
    { durable = false, settings = {} }: PostgresOptions,
  ) {
    this.folder = folder;
    this.port = port;
    this.#bin = bin;
    this.#launcher = launcher;
    this.#settings = {
      listen_addresses: port === 0 ? '' : '127.0.0.1',
      unix_socket_directories: folder,
      ...(port === 0 ? {} : { port }),
      ...(durable ? {} : { fsync: 'off', full_page_writes: 'off' }),
      shared_buffers: '32MB',
      ...settings,
    };
  }

  /** Resolves when it answers; stopped and removed when the test ends. */
  static async start(test: Ending, options: PostgresOptions = {}): Promise<Postgres> {
    const server = await Postgres.#prepare(test, options);
    await server.#run('initdb', [
      '-D',
      join(server.folder, 'data'),
      '-A',
      'trust',
      '-U',
      'postgres',
      '--no-sync',
      '-E',
      'UTF8',
      '--locale=C.UTF-8',
    ]);
    await server.start();
    await server.psql('create database template');
    await options.fill?.(server.url('template'));
    return server;
  }

  /** With a folder, and nothing in it. */
  static async #prepare(test: Ending, options: PostgresOptions): Promise<Postgres> {
    const postgres = findPeer('postgres');
    if (postgres === undefined) throw new Error('PostgreSQL is not installed');
    const bin = dirname(await realpath(postgres));
    const launcher = isRoot() ? ['runuser', '-u', 'postgres', '--'] : [];
    const folder = await mkdtemp(join(socketRoot, 'postern-pg-'));
    if (isRoot()) {
      const numbers = await Promise.all(['-u', '-g'].map((flag) => run('id', [flag, 'postgres'])));
      const [uid, gid] = numbers.map(({ stdout }) => Number(stdout));
      await chown(folder, uid ?? -1, gid ?? -1);
    }
    await chmod(folder, 0o755);
    const guard = spawn('sh', ['-c', watchdog, 'sh', folder, ...launcher, join(bin, 'pg_ctl')], {
      stdio: ['pipe', 'ignore', 'ignore'],
      detached: true,
      cwd: '/',
    });
    const ended = once(guard, 'exit');
    atEnd(test, async () => {
      guard.stdin.end();
      await ended;
    });
    return new Postgres(folder, bin, launcher, options.tcp === true ? await freePort() : 0, options);
  }

  /** A copy that follows this server, as it is in service. */
  async standby(test: Ending): Promise<Postgres> {
    const standby = await Postgres.#prepare(test, { durable: true });
    const place = ['-h', this.folder, '-p', `${this.port || 5432}`, '-U', 'postgres'];
    await standby.#run('pg_basebackup', [...place, '-D', join(standby.folder, 'data'), '-c', 'fast', '-R']);
    await standby.start();
    return standby;
  }

  /** From now on it can be written. */
  async promote(): Promise<void> {
    await this.#run('pg_ctl', ['-D', join(this.folder, 'data'), '-w', 'promote']);
  }

  /** As when its machine loses its power: it does not come back. */
  async kill(): Promise<void> {
    const [first = ''] = (await readFile(join(this.folder, 'data', 'postmaster.pid'), 'utf8')).split('\n');
    const others = (await this.psql('select pid from pg_stat_activity where pid <> pg_backend_pid()')).split('\n');
    for (const pid of [first, ...others].map(Number)) {
      try {
        process.kill(pid, 'SIGKILL');
      } catch {
        // A connection that has just ended.
      }
    }
  }

  /** Names the port if there is one, else the socket. */
  url(database: string, port = this.port): string {
    return port === 0
      ? `postgresql://postgres@/${database}?host=${encodeURIComponent(this.folder)}`
      : `postgresql://postgres@127.0.0.1:${port}/${database}`;
  }

  /** Makes a copy of the template; its URL. */
  async database(name: string): Promise<string> {
    await this.psql(`create database "${name}" template template`);
    return this.url(name);
  }

  /** Runs statements over the socket; values of a row are separated by `|`. */
  async psql(sql: string, database = 'postgres'): Promise<string> {
    const where = ['-h', this.folder, '-p', `${this.port === 0 ? 5432 : this.port}`, '-U', 'postgres', '-d', database];
    const { stdout } = await run(join(this.#bin, 'psql'), ['-XAtq', '-v', 'ON_ERROR_STOP=1', ...where, '-c', sql], {
      cwd: '/',
    });
    return stdout.trimEnd();
  }

  async start(): Promise<void> {
    const settings = Object.entries(this.#settings).map(([name, value]) => `-c ${name}='${value}'`);
    const place = ['-D', join(this.folder, 'data'), '-l', join(this.folder, 'log')];
    await this.#run('pg_ctl', [...place, '-w', '-o', settings.join(' '), 'start']);
  }

  /** Changes a setting for good, as `set work_mem = 4MB`, and waits until new connections have it. */
  async alter(change: string): Promise<void> {
    await this.psql(`alter system ${change}`);
    await this.reload();
  }

  /** Waits until new connections are under what the files of the server say now. */
  async reload(): Promise<void> {
    const loadedAt = () => this.psql('select pg_conf_load_time()');
    const before = await loadedAt();
    await this.psql('select pg_reload_conf()');
    await untilTrue('the server has read its files', async () => (await loadedAt()) !== before);
  }

  async stop(mode: StopMode = 'fast'): Promise<void> {
    await this.#run('pg_ctl', ['-D', join(this.folder, 'data'), '-w', '-m', mode, 'stop']);
  }

  async restart(mode: StopMode = 'fast'): Promise<void> {
    await this.stop(mode);
    await this.start();
  }

  /**
   * Kills the server process of a connection to `database`, whereupon PostgreSQL ends all connections and recovers. False
   * when there is none.
   */
  async killBackendProcess(database: string): Promise<boolean> {
    const pid = Number(
      await this.psql(`select pid from pg_stat_activity where datname = '${database}' order by random() limit 1`),
    );
    if (pid === 0) return false;
    process.kill(pid, 'SIGKILL');
    return true;
  }

  async #run(program: string, args: readonly string[]): Promise<void> {
    const [file = '', ...words] = [...this.#launcher, join(this.#bin, program), ...args];
    await run(file, words, { cwd: '/' });
  }
}
