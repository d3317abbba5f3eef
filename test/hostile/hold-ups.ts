/**
 * How long what is given bytes of strangers holds the event loop, with the largest input that is taken, in milliseconds.
 *   npm run hold-ups
 *   npm run hold-ups -- DKIM      only rows with that word
 */
import { holdUpOf } from './hold-up-row.js';
import { mainThreadRows } from './main-thread-rows.js';
import { openServerRows } from './server-rows.js';

const [word = ''] = process.argv.slice(2);
const releases: (() => void | Promise<void>)[] = [];
try {
  const rows = [...mainThreadRows, ...(await openServerRows({ after: (release) => void releases.push(release) }))];
  for (const row of rows.filter(({ what }) => what.includes(word)))
    process.stdout.write(`| ${row.what} | ${row.given} | ${(await holdUpOf(row)).toFixed(1)} |\n`);
} finally {
  for (const release of releases.toReversed()) await release();
}
