import { readFileSync } from 'node:fs';

/**
 * Resource limits of this process by name: `open.files.soft` → `20000`. Empty where the system does not list them, as
 * outside Linux.
 *
 * @param table text of `/proc/self/limits`: columns of names, soft limit, hard limit, unit
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

/** Descriptors of an idle server, with a reserve for files. */
const ownDescriptors = 44;

/** Connections that the limit of open files allows, split by kind. */
export interface ConnectionShares {
  readonly smtp: number;
  /** SMTP connections that are refused because the server is full. */
  readonly refused: number;
  readonly http: number;
}

export function connectionShares(openFiles = maxOpenFiles()): ConnectionShares {
  const spare = Math.max(openFiles - ownDescriptors, 16);
  const share = (part: number): number => Math.floor(spare / part);
  return { smtp: share(2), refused: share(8), http: share(8) };
}

function maxOpenFiles(): number {
  const limit = Number(processLimits()['open.files.soft']?.split(' ')[0]);
  return Number.isNaN(limit) ? Infinity : limit;
}

function readTable(): string {
  try {
    return readFileSync('/proc/self/limits', 'utf8');
  } catch {
    return '';
  }
}
