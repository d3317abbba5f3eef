import { type Activity, activities, type Measurement, type Series } from './bystander.js';
import { aimsMs, maxHoldMs, maxMegabytes, missesOf, type Outcome } from './play.js';

const maxFailures = 3;
const rounded = (value: number): string => (Number.isNaN(value) ? '–' : Math.round(value).toLocaleString('en-US'));

/** `5/12`: the median, and what 99 of 100 do not exceed. */
const p50AndP99 = (series: Series): string => `${rounded(series.percentile(0.5))}/${rounded(series.percentile(0.99))}`;

const marked = (text: string, isMiss: boolean): string => (isMiss ? `**${text}**` : text);

/** What most of a flood was: `8,012 requests/s, 512 answers 200/s`. */
const ratesOf = ({ rates }: Outcome): string =>
  Object.entries(rates)
    .toSorted(([, a], [, b]) => b - a)
    .map(([what, rate]) => (what === 'bytes' ? `${(rate / 1e6).toFixed(1)} MB/s` : `${rounded(rate)} ${what}/s`))
    .join(', ');

const longest = (measurement: Measurement, activity: Activity): string => rounded(measurement[activity].percentile(1));

/** All figures of one kind, for somebody who waits for the table. */
export function sentenceOf(outcome: Outcome): string {
  const { kind, quiet, flooded, quietHoldMs, holdMs, megabytes, recoveredAfterSeconds } = outcome;
  const misses = missesOf(outcome);
  const times = activities.map(
    (activity) =>
      `${activity} ${p50AndP99(quiet[activity])}/${longest(quiet, activity)} → ${p50AndP99(flooded[activity])}/${longest(flooded, activity)} ms`,
  );
  return [
    `${kind.name}: ${kind.about}`,
    `  ${ratesOf(outcome)}`,
    `  ${times.join(', ')} (p50/p99/longest)`,
    `  held ${rounded(quietHoldMs)} → ${rounded(holdMs)} ms, ${rounded(megabytes)} MB, quiet after ${recoveredAfterSeconds?.toFixed(0) ?? '–'} s`,
    `  ${misses.length === 0 ? 'fine' : `misses: ${misses.join(', ')}`}`,
  ].join('\n');
}

/** The first of what went wrong, each text once, and the last words of a server that is gone. */
export function failuresOf({ flooded, isAlive, lastWords }: Outcome): readonly string[] {
  const texts = activities.flatMap((activity) => flooded[activity].failures.map((text) => `${activity}: ${text}`));
  return [...[...new Set(texts)].slice(0, maxFailures), ...(isAlive ? [] : lastWords.trim().split('\n').slice(-5))];
}

/** In Markdown: times in quiet → under the flood; what misses its aim is bold. */
export function printTable(outcomes: readonly Outcome[]): void {
  const head = ['kind', 'flood', ...activities.map((one) => `${one} ms`), 'held ms', 'MB', 'quiet after', 'misses'];
  const rows = outcomes.map((outcome) => {
    const { kind, quiet, flooded, quietHoldMs, holdMs, megabytes, recoveredAfterSeconds } = outcome;
    const times = activities.map((activity) =>
      marked(
        `${p50AndP99(quiet[activity])} → ${p50AndP99(flooded[activity])}`,
        !(flooded[activity].percentile(0.99) <= aimsMs[activity]),
      ),
    );
    return [
      kind.name,
      ratesOf(outcome),
      ...times,
      marked(`${rounded(quietHoldMs)} → ${rounded(holdMs)}`, holdMs > maxHoldMs),
      marked(rounded(megabytes), !(megabytes <= maxMegabytes)),
      recoveredAfterSeconds === undefined ? '**never**' : `${recoveredAfterSeconds.toFixed(0)} s`,
      missesOf(outcome).join(', '),
    ];
  });
  const rule = head.map((_, column) => (column < 2 ? '---' : '--:'));
  for (const cells of [head, rule, ...rows]) process.stdout.write(`| ${cells.join(' | ')} |\n`);
}
