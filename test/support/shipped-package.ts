import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, symlink } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import { packageTarball } from '../deploy/package-tarball.js';
import { atEnd, type Ending } from './ending.js';
import { Output } from './output.js';
import { projectRoot } from './project.js';
import { temporaryFolder } from './temporary-folder.js';

export interface ShellResult {
  readonly code: number;
  /** Both streams, in their order. */
  readonly output: string;
}

/** A server that was started from the package. */
export interface ShippedServer {
  readonly http: string;
  readonly smtpPort: number;
  /** Of `admin`, as the first start shows it. */
  readonly password: string;
  readonly output: () => string;
}

/** What is shipped, unpacked in a folder with the dependencies of this checkout, and its command on the PATH. */
export class ShippedPackage {
  readonly #path: string;

  private constructor(bin: string) {
    this.#path = `${bin}${delimiter}${process.env['PATH'] ?? ''}`;
  }

  static async unpack(test: Ending): Promise<ShippedPackage> {
    const prefix = await temporaryFolder(test);
    const place = join(prefix, 'lib', 'node_modules', 'postern');
    const bin = join(prefix, 'bin');
    await mkdir(place, { recursive: true });
    await mkdir(bin);
    const tarball = await packageTarball(test);
    const words = ['--extract', '--gzip', '--strip-components=1', `--directory=${place}`, `--file=${tarball}`];
    await promisify(execFile)('tar', words);
    await mkdir(join(place, 'node_modules', '@types'), { recursive: true });
    for (const name of ['@types/node', 'undici-types']) {
      await symlink(join(projectRoot, 'node_modules', name), join(place, 'node_modules', name));
    }
    await symlink(join(place, 'dist', 'core', 'postern.cjs'), join(bin, 'postern'));
    return new ShippedPackage(bin);
  }

  /** Runs lines of a shell, which ends at the first that fails, as somebody with an empty environment. */
  async sh(script: string, cwd: string): Promise<ShellResult> {
    const child = spawn('sh', ['-e', '-c', `exec 2>&1\n${script}`], {
      cwd,
      env: this.#env(),
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const output = new Output(child);
    const limit = setTimeout(() => child.kill('SIGKILL'), 120_000);
    const [code] = (await once(child, 'close')) as [number | null];
    clearTimeout(limit);
    return { code: code ?? -1, output: output.stdout };
  }

  /** `postern start` on free ports; killed when the test ends. */
  async start(test: Ending, cwd: string): Promise<ShippedServer> {
    const child = spawn('postern', ['start', '--http-port', '0', '--smtp-port', '0'], {
      cwd,
      env: this.#env(),
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const output = new Output(child);
    const exit = once(child, 'exit');
    atEnd(test, async () => {
      child.kill('SIGKILL');
      await exit;
    });
    const [, http = '', port] = await output.find(/^postern ready http=(\S+) smtp=\S+:(\d+)$/m);
    const [, password = ''] = await output.find(/Password\s+(\S+)/);
    return { http, smtpPort: Number(port), password, output: () => output.stdout };
  }

  #env(): NodeJS.ProcessEnv {
    return { PATH: this.#path };
  }
}
