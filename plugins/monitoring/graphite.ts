import type { MetricFamily } from '../../core/contracts/server.js';

/** Prefix of the server's metric names, which the configured prefix replaces. */
const OWN = 'postern_';

export interface GraphiteOptions {
  /** Dotted path before every name; empty for none. */
  readonly prefix: string;
  /** Labels as tags, or as parts of the path. */
  readonly names: 'tagged' | 'flat';
}

/**
 * Lines of Graphite's plaintext protocol: `path;tag=value value unixSeconds`, or `path.tag.value value unixSeconds`.
 * NaN is left out, since Graphite cannot represent it.
 */
export function graphiteLines(
  families: readonly MetricFamily[],
  { prefix, names }: GraphiteOptions,
  now: number,
): string {
  const seconds = Math.floor(now / 1000);
  const start = prefix === '' ? '' : `${prefix}.`;
  const labelsOf = names === 'flat' ? nodesOf : tagsOf;
  const lines = families.flatMap(({ samples }) =>
    samples
      .filter(({ value }) => Number.isFinite(value))
      .map(({ name, labels, value }) => `${start}${pathOf(name)}${labelsOf(labels)} ${value} ${seconds}\n`),
  );
  return lines.join('');
}

const pathOf = (name: string): string => (name.startsWith(OWN) ? name.slice(OWN.length) : name).replaceAll('_', '.');

/** A tag's value has neither spaces nor semicolons, does not begin with a tilde, and is not empty. */
function tagsOf(labels: Readonly<Record<string, string | number>>): string {
  return Object.entries(labels)
    .map(
      ([name, value]) =>
        [
          name,
          String(value)
            .replace(/[^\x21-\x7e]|;/g, '_')
            .replace(/^~/, '_'),
        ] as const,
    )
    .filter(([, value]) => value !== '')
    .map(([name, value]) => `;${name}=${value}`)
    .join('');
}

/** A label is two nodes of the path, so that another label with the same value has another path. */
function nodesOf(labels: Readonly<Record<string, string | number>>): string {
  return Object.entries(labels)
    .filter(([, value]) => value !== '')
    .map(([name, value]) => `.${name}.${String(value).replace(/[^\w-]/g, '_')}`)
    .join('');
}
