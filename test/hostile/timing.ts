/**
 * Do answers tell by their time whether a user exists (S21, H24)? Prints medians side by side; asserts nothing, for a
 * machine that does something else tells nothing of a few per cent.
 *   npm run timing                  200 pairs of each question
 *   npm run timing -- --count N
 */
import { parseArgs } from 'node:util';
import { differenceOf, openQuestions, timeUsers } from './timed-users.js';

const { values } = parseArgs({ options: { count: { type: 'string', default: '200' } } });
const releases: (() => void | Promise<void>)[] = [];

try {
  const { secret, told } = await openQuestions({ after: (release) => void releases.push(release) });
  for (const [title, ask] of [...secret, ...told]) {
    const times = await timeUsers(ask, Number(values.count));
    const row = `known ${times.known.toFixed(3)} ms, unknown ${times.unknown.toFixed(3)} ms`;
    process.stdout.write(`${title}: ${row}, difference ${(100 * differenceOf(times)).toFixed(1)} %\n`);
  }
} finally {
  for (const release of releases.toReversed()) await release();
}
