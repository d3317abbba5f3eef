import { readFileSync } from 'node:fs';

/**
 * What the system lets this process have at most, by name: `open.files.soft` → `20000`. Empty where the system does not tell
 * (it is told by Linux).
 *
 * @param table of `/proc/self/limits`: names, soft and hard limit and unit in columns
 */
export function processLimits(table = readTable()): Readonly<Record<string, string>> {
  const [head = '', ...rows] = table.split('\n');
  const [soft, hard, unit] = [head.indexOf('Soft Limit'), head.indexOf('Hard Limit'), head.indexOf('Units')];
  if (soft < 1 || hard < soft || unit < hard) return {};
  const limits: Record<string, string> = {};
  for (const row of rows.slice(0, 100)) {
    const name = row
      .slice(0, soft)
      .trim()
      .replace(/^Max /, '')
      .toLowerCase()
      .replace(/[^a-z0-9]+/g, '.');
    if (name === '') continue;
    const units = row.slice(unit).trim();
    const told = (from: number, to: number): string => {
      const value = row.slice(from, to).trim();
      return value === 'unlimited' || units === '' ? value : `${value} ${units}`;
    };
    limits[`${name}.soft`] = told(soft, hard);
    limits[`${name}.hard`] = told(hard, unit);
  }
  return limits;
}

function readTable(): string {
  try {
    return readFileSync('/proc/self/limits', 'utf8');
  } catch {
    return '';
  }
}
