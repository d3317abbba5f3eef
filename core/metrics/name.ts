export type MetricKind = 'counter' | 'gauge' | 'histogram';

/** Prometheus wants base units, written in full: seconds, bytes. */
const WRONG_UNITS = new Map<string, string>([
  ...[
    's',
    'ms',
    'us',
    'ns',
    'sec',
    'secs',
    'min',
    'mins',
    'h',
    'd',
    'milliseconds',
    'microseconds',
    'nanoseconds',
    'minutes',
    'hours',
    'days',
    'weeks',
  ].map((unit) => [unit, 'seconds'] as const),
  ...[
    'b',
    'kb',
    'mb',
    'gb',
    'tb',
    'pb',
    'kilobytes',
    'megabytes',
    'gigabytes',
    'kibibytes',
    'mebibytes',
    'gibibytes',
    'bits',
  ].map((unit) => [unit, 'bytes'] as const),
  ['percent', 'ratio'],
]);
const KINDS = new Set(['counter', 'gauge', 'histogram', 'summary']);
/** Suffixes with a meaning in the exposition formats. */
const RESERVED = /_(?:total|sum|count|bucket|created)$/;

/**
 * Why `promtool check metrics` or the text formats would refuse the name; undefined when valid.
 *
 * @param name without the prefix
 */
export function nameComplaint(
  kind: MetricKind,
  name: string,
  help: string,
  labels: readonly string[],
): string | undefined {
  if (!/^[a-z][a-z0-9]*(?:_[a-z0-9]+)*$/.test(name)) return 'a name is lower case words joined by one underscore';
  if (kind === 'counter' && !name.endsWith('_total')) return 'the name of a counter ends in _total';
  if (kind !== 'counter' && RESERVED.test(name))
    return `the name of a ${kind} does not end in ${RESERVED.exec(name)?.[0]}`;
  const words = name.split('_');
  const unit = words.find((word) => WRONG_UNITS.has(word));
  if (unit !== undefined) return `"${unit}" is not a base unit: use ${WRONG_UNITS.get(unit)}`;
  const type = words.find((word) => KINDS.has(word));
  if (type !== undefined) return `the name does not say its type (${type})`;
  if (help.trim() === '') return 'it needs a help text';
  const label = labels.find((each) => !/^[a-z][a-z0-9_]*$/.test(each) || each === 'le' || each === 'quantile');
  return label === undefined ? undefined : `"${label}" cannot be the name of a label`;
}
