import { spawn, type ChildProcess } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { canReusePort } from '../core/net/listening-place.js';
import { freePort, stopChild } from './peer.js';

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

const script = fileURLToPath(new URL('../core/postern.cjs', import.meta.url));

/**
 * Postern in so many processes at one port, each with a data folder of its own below `folder`. None, with a sentence, where
 * this Node.js cannot share a port.
 *
 * @param settings all but the listener
 */
export async function startPosterns(
  folder: string,
  settings: { readonly smtp?: object; readonly [name: string]: unknown },
  count = 1,
): Promise<readonly Site[]> {
  const sites: Site[] = [];
  if (count > 1 && !canReusePort()) {
    process.stderr.write('Two processes need Node.js 22.12 or newer; they are left out.\n');
    return sites;
  }
  const listener = { mode: 'mx', port: count === 1 ? 0 : await freePort(), reusePort: count > 1 };
  const all = { http: { port: 0 }, ...settings, smtp: { ...settings.smtp, listeners: [listener] } };
  for (let number = 1; number <= count; number += 1) {
    const own = join(folder, String(number));
    const config = join(own, 'postern.json5');
    mkdirSync(own);
    writeFileSync(config, JSON.stringify(all));
    sites.push(await startSite('postern', [script, 'start', '--config', config]));
  }
  return sites;
}

/** Ends all of them. */
export async function stopSites(sites: readonly Site[]): Promise<void> {
  await Promise.all(sites.map(({ child }) => stopChild(child)));
}
