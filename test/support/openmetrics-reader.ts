/** One sample as it was read. */
export interface ReadSample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

export interface ReadFamily {
  readonly name: string;
  readonly type: string;
  readonly help: string | undefined;
  readonly samples: readonly ReadSample[];
}

type Mutable = { name: string; type: string; help: string | undefined; samples: ReadSample[] };

/** What the names of the samples of a family may end in (OpenMetrics 1.0, "Suffixes"). */
const endings: Readonly<Record<string, readonly string[]>> = {
  counter: ['_total', '_created'],
  gauge: [''],
  histogram: ['_bucket', '_sum', '_count', '_created'],
  summary: ['', '_sum', '_count', '_created'],
  info: ['_info'],
  unknown: [''],
};
const name = /^[a-zA-Z_:][a-zA-Z0-9_:]*$/;
const number = /^(?:[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|NaN|[+-]Inf)$/;

/**
 * Reads an exposition by the letter of OpenMetrics 1.0, knowing nothing of who wrote it. Throws for every breach: order,
 * names, endings, escapes, numbers, families that occur twice, label sets that occur twice, buckets that do not add up.
 */
export function readOpenMetrics(text: string): readonly ReadFamily[] {
  const lines = text.split('\n');
  if (lines.pop() !== '' || lines.pop() !== '# EOF') throw new Error('it does not end with # EOF and a line end');
  const families: Mutable[] = [];
  for (const [index, line] of lines.entries()) {
    try {
      readLine(line, families);
    } catch (error) {
      throw new Error(`line ${index + 1}, ${JSON.stringify(line)}: ${String(error)}`, { cause: error });
    }
  }
  for (const family of families) checkFamily(family);
  return families;
}

function readLine(line: string, families: Mutable[]): void {
  if (!line.startsWith('#')) return readSample(line, families.at(-1));
  const [, keyword, about = '', rest = ''] = /^# (HELP|TYPE|UNIT) ([^ ]+)(?: (.*))?$/.exec(line) ?? [];
  if (keyword === undefined) throw new Error('it is neither metadata nor a sample');
  if (!name.test(about)) throw new Error('the name is malformed');
  const family = familyOf(about, families);
  if (family.samples.length > 0) throw new Error('metadata stands behind a sample');
  if (keyword === 'HELP') family.help = unescape(rest, /\\(?![\\n"])/);
  if (keyword !== 'TYPE') return;
  if (!(rest in endings)) throw new Error('there is no such type');
  if (family.type !== '') throw new Error('it has two types');
  family.type = rest;
}

/** Metadata of one family stands together; none comes back. */
function familyOf(about: string, families: Mutable[]): Mutable {
  const last = families.at(-1);
  if (last?.name === about) return last;
  if (families.some((family) => family.name === about)) throw new Error('the family stands in two places');
  const family = { name: about, type: '', help: undefined, samples: [] };
  families.push(family);
  return family;
}

function readSample(line: string, family: Mutable | undefined): void {
  const head = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{)?/.exec(line);
  if (family === undefined || head === null) throw new Error('it belongs to no family');
  const [matched, sampleName = '', brace] = head;
  const { labels, end } = brace === undefined ? { labels: {}, end: matched.length } : readLabels(line, matched.length);
  const value = / (\S+)$/.exec(line.slice(end))?.[1] ?? '';
  if (line.slice(end) !== ` ${value}` || !number.test(value)) throw new Error(`the value ${value} is no number`);
  const allowed = endings[family.type === '' ? 'unknown' : family.type] ?? [];
  if (!allowed.some((ending) => `${family.name}${ending}` === sampleName))
    throw new Error('its ending is of another type');
  family.samples.push({
    name: sampleName,
    labels,
    value: value.endsWith('Inf') ? Number(`${value}inity`) : Number(value),
  });
}

/** From behind the brace that opens to behind the one that closes. */
function readLabels(line: string, start: number): { labels: Record<string, string>; end: number } {
  const labels: Record<string, string> = {};
  let at = start;
  while (line[at] !== '}') {
    const [pair, label = '', value = ''] =
      /^([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\["\\n])*)"/.exec(line.slice(at)) ?? [];
    if (pair === undefined) throw new Error(`a label at ${at} is malformed`);
    if (Object.hasOwn(labels, label)) throw new Error(`the label ${label} occurs twice`);
    labels[label] = unescape(value, /\\(?!["\\n])/);
    at += pair.length;
    if (line[at] === ',') at += 1;
    else if (line[at] !== '}') throw new Error(`after a label at ${at} there is neither a comma nor the end`);
  }
  return { labels, end: at + 1 };
}

function unescape(text: string, unknown: RegExp): string {
  if (unknown.test(text.replaceAll('\\\\', ''))) throw new Error('an escape is unknown');
  return text.replace(/\\(.)/g, (_, escaped: string) => (escaped === 'n' ? '\n' : escaped));
}

function checkFamily({ name: family, type, samples }: Mutable): void {
  const seen = new Set<string>();
  for (const { name: sample, labels, value } of samples) {
    const key = JSON.stringify([sample, sorted(labels)]);
    if (seen.has(key)) throw new Error(`${sample} occurs twice with the same labels`);
    seen.add(key);
    if (type === 'counter' && !(value >= 0)) throw new Error(`the counter ${sample} is ${value}`);
  }
  if (type === 'histogram') checkHistogram(family, samples);
}

function checkHistogram(family: string, samples: readonly ReadSample[]): void {
  const groups = new Map<string, { bounds: number[]; counts: number[]; count: number | undefined }>();
  for (const {
    name: sample,
    labels: { le, ...labels },
    value,
  } of samples) {
    const key = JSON.stringify(sorted(labels));
    const group = groups.get(key) ?? { bounds: [], counts: [], count: undefined };
    groups.set(key, group);
    if (sample === `${family}_count`) group.count = value;
    if (sample !== `${family}_bucket`) continue;
    group.bounds.push(le === '+Inf' ? Infinity : Number(le));
    group.counts.push(value);
  }
  for (const { bounds, counts, count } of groups.values()) {
    const rising = (values: readonly number[]): boolean =>
      values.every((value, i) => i === 0 || value >= (values[i - 1] ?? 0));
    if (!rising(bounds) || bounds.at(-1) !== Infinity) throw new Error(`the bounds of ${family} do not rise to +Inf`);
    if (!rising(counts) || counts.at(-1) !== count) throw new Error(`the buckets of ${family} do not add up`);
  }
}

const sorted = (labels: Readonly<Record<string, string>>): readonly (readonly [string, string])[] =>
  Object.entries(labels).toSorted(([a], [b]) => (a < b ? -1 : 1));
