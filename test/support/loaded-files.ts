import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ServerProcess } from './server-process.js';
import { temporaryFolder, type Ending } from './temporary-folder.js';
import { until } from './until.js';

/** Asks a server which files of CommonJS its main thread has read. Start it with `env`. */
export class LoadedFiles {
  /** Variables of the environment. */
  readonly env: Readonly<Record<string, string>>;
  readonly #answer: string;

  private constructor(program: string, answer: string) {
    this.env = { NODE_OPTIONS: `--require ${program}` };
    this.#answer = answer;
  }

  static async prepare(test: Ending): Promise<LoadedFiles> {
    const folder = await temporaryFolder(test);
    const [program, answer] = [join(folder, 'program.cjs'), join(folder, 'answer')];
    const code = `const { renameSync, writeFileSync } = require('node:fs');
if (require('node:worker_threads').isMainThread) process.on('SIGUSR2', () => {
  writeFileSync('${answer}.new', JSON.stringify(Object.keys(require.cache)));
  renameSync('${answer}.new', '${answer}');
});`;
    await writeFile(program, code);
    return new LoadedFiles(program, answer);
  }

  /** Absolute paths. */
  async of(server: ServerProcess): Promise<readonly string[]> {
    server.signal('SIGUSR2');
    const answer = await until('the files of the server', () => readFile(this.#answer, 'utf8').catch(() => undefined));
    return JSON.parse(answer) as readonly string[];
  }
}
