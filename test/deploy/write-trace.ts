import { readFile } from 'node:fs/promises';

/** System calls that make, change or remove something of a name. strace leaves out what a machine does not have. */
const changing =
  'open openat openat2 creat truncate mkdir mkdirat mknod mknodat rmdir rename renameat renameat2 link linkat symlink symlinkat ' +
  'unlink unlinkat chmod fchmodat fchmodat2 chown lchown fchownat utime utimes utimensat setxattr';
const writes = /\bO_(?:WRONLY|RDWR|CREAT|TRUNC|APPEND|TMPFILE)\b/;

/** What a program and its children try to write, as strace sees it, whether they may or not. */
export class WriteTrace {
  readonly #file: string;

  constructor(file: string) {
    this.#file = file;
  }

  /** What goes in front of the command. */
  get launcher(): readonly string[] {
    const calls = changing.replace(/\w+/g, '?$&').replaceAll(' ', ',');
    return ['strace', '-f', '--seccomp-bpf', '-qq', '-o', this.#file, '-e', `trace=${calls}`];
  }

  /** Each path once. */
  async paths(): Promise<readonly string[]> {
    const lines = (await readFile(this.#file, 'utf8')).split('\n');
    return [...new Set(lines.flatMap(pathsOf))];
  }
}

/** `4711 openat(AT_FDCWD, "/var/lib/x", O_WRONLY|O_CREAT, 0600) = 3` */
function pathsOf(line: string): readonly string[] {
  const [, call = '', rest = ''] = /^\d+\s+(\w+)\((.*)$/.exec(line) ?? [];
  const names = [...rest.matchAll(/"((?:[^"\\]|\\.)*)"/g)].map(([, name = '']) => name);
  if (call.startsWith('open')) return writes.test(rest) ? names : [];
  // Where a link leads to is not touched.
  return call.startsWith('symlink') ? names.slice(1) : names;
}
