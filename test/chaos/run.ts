import { randomInt } from 'node:crypto';
import { parseArgs } from 'node:util';
import { defaultSessionMs, runChaos } from './chaos.js';

/**
 * `npm run chaos -- [--messages N] [--events N] [--fence none] [--seed S] [--session MS]`: three nodes on one database
 * deliver while they, their network and the database are killed, stopped and silenced. Ends with 1 when a message is
 * lost, is sent after its lease was another's, or is doubled without reason. A busy machine gets longer sessions.
 */
const { values } = parseArgs({
  options: {
    messages: { type: 'string', default: '30000' },
    events: { type: 'string', default: '35' },
    fence: { type: 'string', default: 'both' },
    seed: { type: 'string' },
    session: { type: 'string' },
  },
});
const sessionMs = Number(values.session ?? defaultSessionMs());
const seed = Number(values.seed ?? randomInt(2 ** 31));
const fence = values.fence === 'none' ? 'none' : 'both';
const count = (number: number): string => number.toLocaleString('en-US');
const say = (line: string): void => void process.stdout.write(`${line}\n`);

const releases: (() => void | Promise<void>)[] = [];
const ending = { after: (release: () => void | Promise<void>) => void releases.push(release) };
try {
  say(`seed ${seed}, sessions of ${sessionMs} ms`);
  const messages = Number(values.messages);
  const events = Number(values.events);
  const result = await runChaos(ending, { messages, events, seed, fence, sessionMs });
  const { lost, sentAfter, duplicates, unexplained, lostLeases, lateOutcomes, faults } = result;
  say(
    `in ${Math.round(result.seconds)} s: ${[...result.events].map(([name, times]) => `${times} × ${name}`).join(', ')}`,
  );
  say(`${count(result.delivered)} delivered, ${result.waiting} still waiting, ${count(lateOutcomes)} late outcomes`);
  say("| fence | messages | events | lost | **sent after the lease was another's** | duplicates | not in the window |");
  say('| --- | ---: | ---: | ---: | ---: | ---: | ---: |');
  say(
    `| ${fence === 'both' ? 'database and clock' : 'none'} | ${count(messages)} | ${events} | ${lost.length} | **${sentAfter.length}** ` +
      `| ${count(duplicates)} of ${count(lostLeases)} lost leases | ${unexplained.length} |`,
  );
  for (const { id, node, token, at } of [...sentAfter, ...unexplained].slice(0, 20)) {
    say(`${id} from ${node}, lease ${token}, at ${new Date(at).toISOString()}`);
  }
  for (const fault of faults) say(fault);
  process.exitCode = lost.length + sentAfter.length + unexplained.length + faults.length + result.waiting === 0 ? 0 : 1;
} finally {
  for (const release of releases.toReversed()) await release();
}
