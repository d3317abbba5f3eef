import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { temporaryFolder, type Ending } from '../support/temporary-folder.js';

/** Calls to the system that fail, in a process that runs. */
export interface DiskFault {
  readonly call: 'openat' | 'writev' | 'fsync' | 'fdatasync' | 'rename' | 'link';
  readonly code: 'EIO' | 'EDQUOT' | 'ENOSPC' | 'EROFS' | 'EMFILE';
  /** Who makes the call: the threads that work on files, or the main one, which also works on sockets. */
  readonly by: 'pool' | 'main';
  /** Which calls of a thread fail, as strace says it: `3` is the third one, `2+5` the second and each fifth behind it; all if absent. */
  readonly when?: string;
}

/** Undefined when there is a strace that may change the calls of a process that it has not started. */
export function attachMissing(): string | undefined {
  const tried = spawnSync('sh', ['-c', 'sleep 0.2 & strace -qq -o /dev/null -p $!; exit $?']);
  return tried.status === 0 ? undefined : 'strace is not installed, or may not attach (Debian: strace, as root)';
}

/** Does the work while these calls fail; then the process goes on as before. Resolves with how many failed. */
export async function whileFailing(
  t: Ending,
  pid: number,
  { call, code, by, when = '1+' }: DiskFault,
  work: () => Promise<void>,
): Promise<number> {
  const threads = (await readdir(`/proc/${pid}/task`)).filter((id) => (Number(id) === pid) === (by === 'main'));
  const trace = join(await temporaryFolder(t), 'trace');
  const inject = ['-e', `trace=${call}`, '-e', `inject=${call}:error=${code}:when=${when}`];
  const attach = threads.flatMap((id) => ['-p', id]);
  const tracer = spawn('strace', ['-qq', '-o', trace, ...inject, ...attach], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const exited = once(tracer, 'exit');
  try {
    while (!(await traced(pid, threads))) await pause(5);
    await work();
  } finally {
    tracer.kill('SIGINT');
    await exited;
  }
  return (await readFile(trace, 'latin1')).split('(INJECTED)').length - 1;
}

async function traced(pid: number, threads: readonly string[]): Promise<boolean> {
  const states = await Promise.all(threads.map((id) => readFile(`/proc/${pid}/task/${id}/status`, 'latin1')));
  return states.every((state) => /^TracerPid:\s+[1-9]/m.test(state));
}
