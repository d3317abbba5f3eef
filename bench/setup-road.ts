import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { packageTarball } from '../test/deploy/package-tarball.js';
import { pluginRoad } from '../test/deploy/plugin-road.js';
import { type RoadStep, setupRoad } from '../test/deploy/setup-road.js';
import { Output } from '../test/support/output.js';
import { projectRoot } from '../test/support/project.js';
import { type Ending, temporaryFolder } from '../test/support/temporary-folder.js';
import { printTable } from './table.js';

/**
 * `npm run bench -- setup`: the commands and seconds from a checkout to a running server, from the package to the first
 * signed mail that another server has accepted, and from there to a plugin that refuses mail. Needs root, Postfix and git; packages come from the registry that npm is
 * configured for, with an empty cache.
 */
export async function setup(): Promise<void> {
  const releases: (() => void | Promise<void>)[] = [];
  const ending: Ending = { after: (release) => void releases.push(release) };
  try {
    const cache = await temporaryFolder(ending);
    print('From a checkout', await checkoutRoad(ending, cache));
    const { steps, verified } = await setupRoad(ending, await packageTarball(ending), ['--cache', cache]);
    print(`From the package (good signatures: ${verified.toSorted().join(', ')})`, steps);
    print('From an installed server to a plugin', (await pluginRoad(ending)).steps);
  } finally {
    for (const release of releases.toReversed()) await release();
  }
}

/** `npm ci`, `npm start` in a copy of what is committed. */
async function checkoutRoad(test: Ending, cache: string): Promise<readonly RoadStep[]> {
  const folder = join(await temporaryFolder(test), 'postern');
  await mkdir(folder);
  const archive = `git -C '${projectRoot}' archive HEAD | tar -x -C '${folder}'`;
  if (spawnSync('sh', ['-c', archive], { stdio: 'inherit' }).status !== 0) throw new Error('git archive failed');
  const options = { cwd: folder, stdio: 'pipe', detached: true } as const;
  const installed = await timed('npm ci', async () => {
    const child = spawn('npm', ['ci', '--no-audit', '--no-fund', '--cache', cache], options);
    const output = new Output(child);
    const [code] = (await once(child, 'close')) as [number | null];
    if (code !== 0) throw new Error(`npm ci ends with ${code}: ${output.stderr}`);
  });
  const started = await timed('npm start', async () => {
    const child = spawn('npm', ['start', '--', '--http-port', '0', '--smtp-port', '0'], options);
    const output = new Output(child);
    const exit = once(child, 'exit');
    test.after(async () => {
      // npm, its shell and the server are one group.
      if (child.pid !== undefined && child.exitCode === null) process.kill(-child.pid, 'SIGTERM');
      await exit;
    });
    await output.find(/^postern ready /m, 300_000);
    process.stdout.write(`npm start said while it built: ${output.stderr.trim().split('\n').join(' / ')}\n`);
  });
  return [installed, started];
}

async function timed(command: string, work: () => Promise<void>): Promise<RoadStep> {
  const began = performance.now();
  await work();
  return { command, seconds: (performance.now() - began) / 1000 };
}

function print(title: string, steps: readonly RoadStep[]): void {
  const total = steps.reduce((sum, { seconds }) => sum + seconds, 0);
  process.stdout.write(`\n${title}: ${steps.length} commands, ${total.toFixed(1)} s\n`);
  printTable(
    ['command', 'seconds'],
    steps.map(({ command, seconds }) => [command, seconds.toFixed(1)]),
  );
}
