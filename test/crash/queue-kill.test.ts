import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { accountFor, Said } from '../plugins/client-queue/queue/queue-account.js';
import { temporaryFolder } from '../support/temporary-folder.js';
import { straceMissing } from './kill-point.js';

const script = fileURLToPath(new URL('../plugins/client-queue/queue/queueing-process.js', import.meta.url));
const durabilities = ['file', 'log'] as const;
const calls = ['write', 'writev', 'fsync', 'fdatasync', 'link', 'rename', 'unlink'] as const;
/** Of any thread; and of the main one, which the others would never let come to its second write. */
const ways: readonly (readonly [call: string, threads: readonly string[]])[] = [
  ...calls.map((call) => [call, ['-f']] as const),
  ['write', []],
];

async function run(command: readonly string[], said: Said, killAfter = Infinity): Promise<boolean> {
  const [program = '', ...args] = command;
  // One thread for files, so that its calls have one order.
  const env = { PATH: process.env['PATH'] ?? '', UV_THREADPOOL_SIZE: '1' };
  const child = spawn(program, args, { env, stdio: ['ignore', 'pipe', 'inherit'] });
  const exited = once(child, 'exit');
  let lines = 0;
  for await (const line of createInterface({ input: child.stdout })) {
    said.hear(line);
    lines += 1;
    if (lines === killAfter) child.kill('SIGKILL');
  }
  const [code, signal] = (await exited) as [number | null, string | null];
  assert.ok(code === 0 || signal === 'SIGKILL', `it ended with ${code ?? signal}`);
  return signal === 'SIGKILL';
}

for (const durability of durabilities) {
  test(`kills at random, one after the other, lose nothing and double nothing (${durability})`, async (t) => {
    const data = await temporaryFolder(t);
    const said = new Said();
    const count = 25;
    for (let round = 0; round < 6; round++) {
      const args = [script, data, durability, String(round * count), String(count)];
      await run([process.execPath, ...args], said, randomInt(5, 80));
      await accountFor(data, durability, said, (round + 1) * count);
    }
  });

  test(
    `a kill at any call that changes the disk loses nothing and doubles nothing (${durability})`,
    { skip: straceMissing() ?? false },
    async (t) => {
      let kills = 0;
      for (const [call, threads] of ways) {
        for (let nth = 1, step = 1; ; nth += step, step += 3) {
          const data = await temporaryFolder(t);
          const said = new Said();
          const traced = [...threads, '-qq', '-o', '/dev/null', '-e', `trace=${call}`];
          const kill = ['-e', `inject=${call}:signal=SIGKILL:when=${nth}`];
          const args = [process.execPath, script, data, durability, '0', '12'];
          const killed = await run(['strace', ...traced, ...kill, ...args], said);
          await accountFor(data, durability, said, 12).catch((error: unknown) => {
            throw new Error(`killed at ${call} ${nth} ${threads.join('')}`, { cause: error });
          });
          if (!killed) break;
          kills += 1;
        }
      }
      assert.ok(kills >= 15, `it was killed ${kills} times`);
    },
  );
}
