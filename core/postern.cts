#!/usr/bin/env node
// File calls run in libuv's thread pool, whose size is fixed at its first use. Loading an ES module uses it, loading CommonJS
// does not: so the size is set here. 16 threads took 26 to 59 % more messages than the usual 4.
process.env['UV_THREADPOOL_SIZE'] ??= '16';
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
if (major < 20 || (major === 20 && minor < 19)) {
  process.stderr.write(`Postern needs Node.js 20.19 or newer; this is ${process.versions.node}.\n`);
  process.exitCode = 1;
} else {
  // The command and all that it needs, in few files.
  require('../server/entry.js');
}
