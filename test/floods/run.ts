import { randomInt } from 'node:crypto';
import { parseArgs } from 'node:util';
import { kinds } from './kinds.js';
import { goFirst, missesOf, type Outcome, play } from './play.js';
import { failuresOf, printTable, sentenceOf } from './report.js';
import { prepareSite } from './victim.js';

/**
 * `npm run floods -- [--only KIND,…] [--seconds N] [--seed S] [--list]`: floods a whole server in over 50 ways, for
 * 8 seconds each if nothing else is said, while somebody else opens pages, signs in and sends mail. Ends with 1 when that
 * one noticed more than it may. `--only` takes parts of names.
 */
const { values } = parseArgs({
  options: {
    only: { type: 'string', default: '' },
    seconds: { type: 'string', default: '8' },
    seed: { type: 'string' },
    list: { type: 'boolean', default: false },
  },
});
/** A whole name chooses one kind, a part of names all that have it. */
const chosen = kinds.filter(({ name }) =>
  values.only
    .split(',')
    .some((part) => (kinds.some((kind) => kind.name === part) ? name === part : name.includes(part))),
);
const say = (text: string): void => void process.stdout.write(`${text}\n`);

async function playAll(): Promise<void> {
  const seed = values.seed === undefined ? randomInt(2 ** 31) : Number(values.seed);
  const seconds = Number(values.seconds);
  const releases: (() => void | Promise<void>)[] = [];
  const outcomes: Outcome[] = [];
  say(`seed ${seed}, ${chosen.length} kinds, ${seconds} s each`);
  goFirst();
  try {
    const site = await prepareSite({ after: (release) => void releases.push(release) });
    for (const kind of chosen) {
      const outcome = await play(site, kind, { seconds, quietSeconds: Math.min(3, seconds), seed }).catch(String);
      if (typeof outcome === 'string') {
        say(`${kind.name} was not played: ${outcome}`);
        continue;
      }
      outcomes.push(outcome);
      say(sentenceOf(outcome));
      for (const failure of failuresOf(outcome)) say(`  ${failure}`);
    }
  } finally {
    for (const release of releases.toReversed()) await release();
  }
  printTable(outcomes);
  const good = outcomes.filter((outcome) => missesOf(outcome).length === 0);
  say(`${good.length} of ${chosen.length} kinds meet all aims.`);
  process.exitCode = good.length === chosen.length ? 0 : 1;
}

if (values.list) for (const { name, about } of chosen) say(`${name.padEnd(28)} ${about}`);
else await playAll();
