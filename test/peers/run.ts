import { parseArgs } from 'node:util';
import { weather } from './dovecot-beside.js';

/**
 * `npm run peers -- [--minutes N]`: mail clients of a Dovecot and the API change the same folders at once, for so long (5
 * minutes if absent); ends with 1 when a message is lost, doubled or changed, or when Dovecot complains.
 */
const { values } = parseArgs({ options: { minutes: { type: 'string', default: '5' } } });
const releases: (() => void | Promise<void>)[] = [];
const ending = { after: (release: () => void | Promise<void>) => void releases.push(release) };

try {
  process.stdout.write(`${await weather(ending, Number(values.minutes) * 60)}\n`);
} catch (error) {
  process.stderr.write(`${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
  process.exitCode = 1;
} finally {
  for (const release of releases.toReversed()) await release();
}
