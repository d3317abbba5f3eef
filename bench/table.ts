export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const upper = sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
  const lower = sorted[Math.ceil(sorted.length / 2) - 1] ?? Number.NaN;
  return (lower + upper) / 2;
}

/** The value below which that share of the values is; NaN without any. */
export function percentile(values: readonly number[], share: number): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length * share)] ?? Number.NaN;
}

/** Milliseconds for a table: the median, and what one of a hundred exceeds. */
export const p50AndP99 = (ms: readonly number[]): readonly [string, string] => {
  const text = (share: number): string => (ms.length === 0 ? '' : percentile(ms, share).toFixed(1));
  return [text(0.5), text(0.99)];
};

/** Prints rows as a table in Markdown; the first column is text, the others are figures. */
export function printTable(head: readonly string[], rows: readonly (readonly string[])[]): void {
  const widths = head.map((title, column) => Math.max(title.length, ...rows.map((row) => (row[column] ?? '').length)));
  const line = (cells: readonly string[]) =>
    `| ${cells.map((cell, column) => (column === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[column] ?? 0))).join(' | ')} |`;
  const rule = `| ${widths.map((width, column) => (column === 0 ? '-'.repeat(width) : `${'-'.repeat(width - 1)}:`)).join(' | ')} |`;
  process.stdout.write(`${[line(head), rule, ...rows.map(line)].join('\n')}\n`);
}
