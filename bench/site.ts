import { spawn, type ChildProcess } from 'node:child_process';
import { createInterface } from 'node:readline';

export const password = 'the password of a bench';
export const authorization = `Basic ${Buffer.from(`admin:${password}`).toString('base64')}`;

/** A process that answers HTTP, and perhaps takes mail. */
export interface Site {
  readonly name: string;
  readonly child: ChildProcess;
  readonly port: number;
  /** NaN for none. */
  readonly smtpPort: number;
}

/**
 * Starts a script that says `ready http=http://HOST:PORT smtp=HOST:PORT`. `BENCH_PROFILE=NAME` writes a processor profile of
 * that one into the working folder.
 */
export async function startSite(name: string, args: readonly string[]): Promise<Site> {
  const profile = process.env['BENCH_PROFILE'] === name ? ['--cpu-prof'] : [];
  const child = spawn(process.execPath, [...profile, ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, POSTERN_ADMIN_PASSWORD: password },
  });
  if (child.stdout === null) throw new Error(`${name} has no output`);
  for await (const line of createInterface({ input: child.stdout })) {
    const found = /ready http=http:\/\/[^ ]*:(\d+) smtp=[^ ]*?(\d*)$/.exec(line);
    if (found === null) continue;
    child.stdout.resume();
    return { name, child, port: Number(found[1]), smtpPort: Number(found[2] === '' ? Number.NaN : found[2]) };
  }
  throw new Error(`${name} ended before it was ready`);
}
