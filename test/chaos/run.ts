import { randomInt } from 'node:crypto';
import { parseArgs } from 'node:util';
import { type ChaosOptions, defaultSessionMs, runChaos } from './chaos.js';
import { mailSessionMs, runMailChaos } from './mail-chaos.js';
import { runOutage } from './outage.js';

/**
 * `npm run chaos -- [--messages N] [--events N] [--fence none] [--seed S] [--session MS] [--nodes one-table]`: three
 * servers with one database take mail and deliver it while they, their network and the database are killed, stopped and
 * silenced; with `--nodes one-table`, small processes over the simplest queue. Ends with 1 when a message is lost, is
 * sent after its lease was another's, or is doubled without reason. A busy machine gets longer sessions. With `--outage
 * SECONDS` the database is away for so long in place of the events, and only nodes are killed.
 */
const { values } = parseArgs({
  options: {
    messages: { type: 'string', default: '20000' },
    events: { type: 'string', default: '40' },
    fence: { type: 'string', default: 'both' },
    nodes: { type: 'string', default: 'servers' },
    outage: { type: 'string' },
    seed: { type: 'string' },
    session: { type: 'string' },
  },
});
const isOneTable = values.nodes === 'one-table';
const sessionMs = values.session === undefined ? undefined : Number(values.session);
const options: ChaosOptions = {
  messages: Number(values.messages),
  events: Number(values.events),
  seed: Number(values.seed ?? randomInt(2 ** 31)),
  fence: values.fence === 'none' ? 'none' : 'both',
  sessionMs: isOneTable ? (sessionMs ?? defaultSessionMs()) : mailSessionMs(sessionMs),
};
const count = (number: number): string => number.toLocaleString('en-US');
const say = (line: string): void => void process.stdout.write(`${line}\n`);

const releases: (() => void | Promise<void>)[] = [];
const ending = { after: (release: () => void | Promise<void>) => void releases.push(release) };

async function disturbed(): Promise<boolean> {
  say(`seed ${options.seed}, sessions of ${options.sessionMs} ms`);
  const result = isOneTable ? await runChaos(ending, options) : await runMailChaos(ending, options);
  const { lost, sentAfter, duplicates, unexplained, lostLeases, faults, waiting } = result;
  const damaged = 'damaged' in result ? result.damaged : [];
  const held = 'held' in result ? result.held : 0;
  say(
    `in ${Math.round(result.seconds)} s: ${[...result.events].map(([name, times]) => `${times} × ${name}`).join(', ')}`,
  );
  say(`${count(result.delivered)} delivered, ${waiting - held} still waiting, ${held} held, ${damaged.length} damaged`);
  say("| fence | messages | events | lost | **sent after the lease was another's** | duplicates | not in the window |");
  say('| --- | ---: | ---: | ---: | ---: | ---: | ---: |');
  const { fence, messages, events } = options;
  say(
    `| ${fence === 'both' ? 'database and clock' : 'none'} | ${count(messages)} | ${events} | ${lost.length} | **${sentAfter.length}** ` +
      `| ${count(duplicates)} of ${count(lostLeases)} lost leases | ${unexplained.length} |`,
  );
  for (const one of lost.slice(0, 20)) say(`lost: ${one}`);
  for (const { node, at, ...rest } of [...sentAfter, ...unexplained, ...damaged].slice(0, 20)) {
    say(`${JSON.stringify(rest)} from ${node} at ${new Date(at).toISOString()}`);
  }
  for (const fault of faults) say(fault);
  const bad = [lost, sentAfter, unexplained, damaged, faults].reduce((sum, { length }) => sum + length, waiting - held);
  return bad === 0;
}

async function outage(seconds: number): Promise<boolean> {
  const given = { messages: options.messages, outageMs: seconds * 1000, sessionSeconds: options.sessionMs / 1000 };
  const { kept, kills, accepted, lost, doubled, handedInAgain } = await runOutage(ending, given);
  say(`${count(accepted)} accepted; ${count(kept)} outcomes on disks when the first of ${kills} nodes was killed`);
  say(
    `${lost.length} lost, ${doubled.length} sent twice; ${handedInAgain} handed in again for want of a 250, and sent twice`,
  );
  for (const one of [...lost, ...doubled].slice(0, 20)) say(one);
  return lost.length + doubled.length === 0;
}

try {
  const isFine = await (values.outage === undefined ? disturbed() : outage(Number(values.outage)));
  process.exitCode = isFine ? 0 : 1;
} finally {
  for (const release of releases.toReversed()) await release();
}
