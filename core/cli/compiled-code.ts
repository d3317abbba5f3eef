import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import Module, { createRequire } from 'node:module';
import { basename, dirname, join } from 'node:path';
import { Script } from 'node:vm';
import { crc32 } from 'node:zlib';

type Run = (
  this: unknown,
  exports: unknown,
  require: NodeJS.Require,
  module: NodeJS.Module,
  ...paths: string[]
) => void;
type Load = (module: NodeJS.Module, path: string) => void;

const sumBytes = 4;

/**
 * Caches code that V8 compiled from the files in `server`. Cached code is executed, so only this user may write to
 * `folder`; without write access starts are slower. Call it before the files are loaded and after the last change of V8
 * flags, which are part of the cache key.
 */
export function keepCompiled(server: string, folder: string): void {
  const { enableCompileCache } = Module as { enableCompileCache?: (folder: string) => unknown };
  if (enableCompileCache === undefined) new CompiledCode(server, folder).keep();
  else enableCompileCache(folder);
}

/** For Node before 22, which has no compile cache. */
class CompiledCode {
  readonly #server: string;
  readonly #folder: string;
  /** By name in the cache; undefined when already cached. */
  readonly #scripts = new Map<string, Script | undefined>();

  constructor(server: string, folder: string) {
    this.#server = server;
    this.#folder = join(folder, `${process.version}-${process.arch}`);
  }

  keep(): void {
    const { _extensions: extensions } = Module as unknown as { _extensions: Record<'.js', Load> };
    const usual = extensions['.js'];
    extensions['.js'] = (module, path) =>
      dirname(path) === this.#server ? this.#load(module, path) : usual(module, path);
    // Other commands compile less of it than a server does.
    if (process.argv[2] === 'start') process.once('exit', () => this.#write());
  }

  #load(module: NodeJS.Module, path: string): void {
    const source = readFileSync(path, 'utf8');
    // V8 identifies a source by its length only.
    const name = `${basename(path)}-${crc32(source).toString(16)}`;
    const cachedData = this.#read(name);
    const wrapped = `(function (exports, require, module, __filename, __dirname) { ${source}\n})`;
    const script = new Script(wrapped, { filename: path, ...(cachedData !== undefined && { cachedData }) });
    this.#scripts.set(name, script.cachedDataRejected === false ? undefined : script);
    const run = script.runInThisContext() as Run;
    run.call(module.exports, module.exports, createRequire(path), module, path, dirname(path));
  }

  /** Checksummed, since V8 would run what a crash has truncated. */
  #read(name: string): Buffer | undefined {
    try {
      const kept = readFileSync(join(this.#folder, name));
      const code = kept.subarray(sumBytes);
      return kept.readUInt32LE(0) === crc32(code) ? code : undefined;
    } catch {
      return undefined;
    }
  }

  /** Includes the functions that were used; V8 compiles the others lazily. */
  #write(): void {
    if ([...this.#scripts.values()].every((script) => script === undefined)) return;
    try {
      mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
      for (const [name, script] of this.#scripts)
        if (script !== undefined) this.#writeOne(name, script.createCachedData());
      for (const name of readdirSync(this.#folder)) if (!this.#scripts.has(name)) rmSync(join(this.#folder, name));
    } catch {
      // The next start compiles again.
    }
  }

  #writeOne(name: string, code: Buffer): void {
    const sum = Buffer.alloc(sumBytes);
    sum.writeUInt32LE(crc32(code));
    const fresh = join(this.#folder, `${name}.${process.pid}`);
    writeFileSync(fresh, Buffer.concat([sum, code]), { mode: 0o600 });
    renameSync(fresh, join(this.#folder, name));
  }
}
