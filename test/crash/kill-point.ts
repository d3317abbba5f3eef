import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { Durability } from '../../core/spool/file-spool.js';
import { account, recover } from './account.js';

const script = fileURLToPath(new URL('../plugins/store/delivering-process.js', import.meta.url));

/** Every call that changes what is on the disk. The process dies as it enters the call: what was before is done. */
export const killingCalls = ['mkdir', 'write', 'writev', 'fsync', 'fdatasync', 'link', 'rename', 'unlink'] as const;
/** Those of which the thread that works on files makes many more, so that it alone would ever come to the n-th. */
export const callsOfMain = ['write', 'rename'] as const;
const messages = 12;

export interface KillPoint {
  readonly durability: Durability;
  readonly call: (typeof killingCalls)[number];
  /** Which call of a thread, from 1: of the one that comes to it first, or of the main one. */
  readonly nth: number;
  readonly by?: 'any' | 'main';
}

/** Undefined when there is a strace that can kill. */
export function straceMissing(): string | undefined {
  const tried = spawnSync('strace', ['-qq', '-o', '/dev/null', '-e', 'inject=rmdir:signal=SIGKILL', 'true']);
  return tried.status === 0 ? undefined : 'strace is not installed, or may not trace (Debian: strace)';
}

/**
 * Delivers some messages in a process that is killed at that point, starts anew, and holds the mailboxes to what was
 * acknowledged. False when the process came to its end before the point.
 */
export async function killAt({ durability, call, nth, by = 'any' }: KillPoint): Promise<boolean> {
  const data = await mkdtemp(join(tmpdir(), 'postern-crash-'));
  try {
    const threads = by === 'any' ? ['-f'] : [];
    const traced = [...threads, '-qq', '-o', '/dev/null', '-e', `trace=${call}`];
    const kill = ['-e', `inject=${call}:signal=SIGKILL:when=${nth}`];
    const command = [process.execPath, script, data, 'word', durability, String(messages)];
    const child = spawn('strace', [...traced, ...kill, ...command], {
      // One thread for files, so that its calls have one order.
      env: { PATH: process.env['PATH'] ?? '', UV_THREADPOOL_SIZE: '1' },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const exited = once(child, 'exit');
    const printed: number[] = [];
    for await (const line of createInterface({ input: child.stdout })) printed.push(Number(line));
    const [code, signal] = (await exited) as [number | null, string | null];
    if (code !== 0 && signal !== 'SIGKILL') throw new Error(`the process ended with ${code ?? signal}`);
    await recover(data, durability);
    await account(data, 'word', printed, messages);
    return signal === 'SIGKILL';
  } catch (error) {
    throw new Error(`killed at ${call} ${nth} of ${by} thread, durability ${durability}`, { cause: error });
  } finally {
    await rm(data, { recursive: true, force: true });
  }
}
