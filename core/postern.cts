#!/usr/bin/env node
// File calls run in libuv's thread pool, whose size is fixed at its first use. Loading an ES module uses it, loading this
// CommonJS file does not: so the size is set here. 16 threads took 26 to 59 % more messages than the usual 4.
process.env['UV_THREADPOOL_SIZE'] ??= '16';
void start();

async function start(): Promise<void> {
  const compiling: { readonly createRequire: unknown; readonly enableCompileCache?: (folder: string) => unknown } =
    await import('node:module');
  // Newer releases of Node keep what they have compiled, so that the next start takes it from the disk. What lies there is run,
  // so it is a folder that nobody else writes to: systemd's, or one of this package.
  compiling.enableCompileCache?.(process.env['CACHE_DIRECTORY'] ?? `${__dirname}/../.compiled`);
  // `cli.js` and all that it needs, in few files.
  const program = '../server/cli.js';
  await import(program);
}
