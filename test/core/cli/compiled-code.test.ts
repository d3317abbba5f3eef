import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import * as modules from 'node:module';
import { join } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import { pathToFileURL } from 'node:url';
import { projectRoot } from '../../support/project.js';
import { temporaryFolder } from '../../support/temporary-folder.js';

const skip = 'enableCompileCache' in modules ? 'this release of Node keeps what it has compiled by itself' : false;
const subject = pathToFileURL(join(projectRoot, 'dist', 'core', 'cli', 'compiled-code.js')).href;

/** A folder with a program whose compiled code is kept. */
class Fixture {
  readonly cache: string;
  readonly #folder: string;

  private constructor(folder: string) {
    this.#folder = folder;
    this.cache = join(folder, 'cache');
  }

  static async make(t: TestContext): Promise<Fixture> {
    const fixture = new Fixture(await temporaryFolder(t));
    await mkdir(join(fixture.#folder, 'server'));
    await fixture.write("module.exports = () => 'one';");
    const loader = `import { createRequire } from 'node:module';
      import { keepCompiled } from '${subject}';
      keepCompiled(process.argv[3], process.argv[4]);
      console.log(createRequire(import.meta.url)('./server/part.js')());`;
    await writeFile(join(fixture.#folder, 'loader.mjs'), loader);
    return fixture;
  }

  write(source: string): Promise<void> {
    return writeFile(join(this.#folder, 'server', 'part.js'), source);
  }

  /** What the program says. */
  run(command = 'start', ...flags: string[]): string {
    const args = [...flags, join(this.#folder, 'loader.mjs'), command, join(this.#folder, 'server'), this.cache];
    const { stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' });
    assert.equal(stderr, '');
    return stdout.trim();
  }

  /** The one file that is kept. */
  async kept(): Promise<string> {
    const [release = ''] = await readdir(this.cache);
    const [name = '', ...more] = await readdir(join(this.cache, release));
    assert.deepEqual(more, []);
    return join(this.cache, release, name);
  }
}

describe('compiled code', { skip }, () => {
  test('is written once, for its owner only, and used by the next start', async (t) => {
    const fixture = await Fixture.make(t);
    assert.equal(fixture.run(), 'one');
    const path = await fixture.kept();
    const { mode, mtimeMs } = await stat(path);
    assert.equal(mode & 0o077, 0);
    assert.equal(fixture.run(), 'one');
    assert.equal((await stat(path)).mtimeMs, mtimeMs);
  });

  test('of changed source of the same length is not used', async (t) => {
    const fixture = await Fixture.make(t);
    fixture.run();
    const before = await fixture.kept();
    await fixture.write("module.exports = () => 'two';");
    assert.equal(fixture.run(), 'two');
    assert.notEqual(await fixture.kept(), before);
  });

  test('that is damaged is not used, and is written again', async (t) => {
    const fixture = await Fixture.make(t);
    fixture.run();
    const path = await fixture.kept();
    const whole = await readFile(path);
    for (const damaged of [whole.subarray(0, 2), whole.subarray(0, whole.length / 2), flipped(whole)]) {
      await writeFile(path, damaged);
      assert.equal(fixture.run(), 'one');
      assert.equal((await readFile(path)).length, whole.length);
      assert.notDeepEqual(await readFile(path), damaged);
    }
  });

  test('of other V8 flags is compiled again', async (t) => {
    const fixture = await Fixture.make(t);
    fixture.run();
    const before = await readFile(await fixture.kept());
    assert.equal(fixture.run('start', '--no-opt'), 'one');
    assert.notDeepEqual(await readFile(await fixture.kept()), before);
  });

  test('is written by a server only, and a failed write does no harm', async (t) => {
    const fixture = await Fixture.make(t);
    assert.equal(fixture.run('version'), 'one');
    assert.ok(!existsSync(fixture.cache));
    await writeFile(fixture.cache, 'in the way');
    assert.equal(fixture.run(), 'one');
  });
});

function flipped(bytes: Buffer): Buffer {
  const other = Buffer.from(bytes);
  other[other.length >> 1] = (other[other.length >> 1] ?? 0) ^ 0xff;
  return other;
}
