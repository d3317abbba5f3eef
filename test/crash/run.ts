import { parseArgs } from 'node:util';
import { callsOfMain, killAt, killingCalls, straceMissing, type KillPoint } from './kill-point.js';
import { killAtRandom } from './random-kills.js';

/**
 * `npm run crash -- [--rounds N] [--step N]`: kills the server at every point where it changes the disk (or every N-th), and
 * N times at random under load, with both durabilities; ends with 1 when a message is lost or doubled.
 */
const { values } = parseArgs({
  options: { rounds: { type: 'string', default: '20' }, step: { type: 'string', default: '1' } },
});
const say = (text: string): boolean => process.stdout.write(`${text}\n`);
let failures = 0;

async function enumerate(durability: 'file' | 'log'): Promise<void> {
  const ways: readonly Pick<KillPoint, 'call' | 'by'>[] = [
    ...killingCalls.map((call) => ({ call })),
    ...callsOfMain.map((call) => ({ call, by: 'main' as const })),
  ];
  for (const way of ways) {
    let points = 0;
    let failed = 0;
    for (let nth = 1; ; nth += Number(values.step)) {
      try {
        if (!(await killAt({ durability, ...way, nth }))) break;
      } catch (error) {
        failed += 1;
        say(String(error instanceof Error ? `${error.message}: ${String(error.cause)}` : error));
      }
      points += 1;
    }
    failures += failed;
    say(`durability ${durability}: ${points} kills at ${way.call} of ${way.by ?? 'any'} thread, ${failed} failed`);
  }
}

const missing = straceMissing();
if (missing !== undefined) say(`No enumerated kills: ${missing}.`);
for (const durability of ['file', 'log'] as const) {
  if (missing === undefined) await enumerate(durability);
  const { sent, acknowledged, kept, lost, doubled } = await killAtRandom(durability, Number(values.rounds));
  failures += lost.length + doubled.length;
  say(
    `durability ${durability}: ${values.rounds} kills at random: ${sent} sent, ${acknowledged} acknowledged, ${kept} there, ${lost.length} lost, ${doubled.length} doubled`,
  );
}
say(failures === 0 ? 'Nothing is lost.' : `${failures} failures.`);
process.exitCode = failures === 0 ? 0 : 1;
