/*
 * How numbers, sizes, durations and times are written: on pages, in sentences of the server, and by scripts in the
 * browser, which get this file as `vendor/format.js`.
 */

/** A count with its noun: `1 message`, `2 messages`. May include the verb: `1 key waits`, `2 keys wait`. */
export function pluralize(count: number, noun: string, plural = `${noun}s`): string {
  return `${formatNumber(count)} ${count === 1 ? noun : plural}`;
}

/** `1 second`, `1200 seconds`, without digit grouping, since programs read it too. */
export function secondsText(count: number): string {
  return `${count} ${count === 1 ? 'second' : 'seconds'}`;
}

/** Replaces line ends, control characters and bidi controls. */
export const printable = (text: string): string => text.replace(/[\p{Cc}\u2028-\u202e\u2066-\u2069]/gu, '\ufffd');

const units = ['B', 'KB', 'MB', 'GB', 'TB'] as const;

/** 1234567 → `1.2 MB`; steps of 1024. */
export function formatBytes(bytes: number): string {
  if (!Number.isFinite(bytes)) return '–';
  let value = Math.abs(bytes);
  let step = 0;
  while (value >= 999.5 && step < units.length - 1) {
    value /= 1024;
    step += 1;
  }
  const digits = step === 0 || value >= 99.95 ? 0 : 1;
  return `${bytes < 0 ? '-' : ''}${value.toFixed(digits)} ${units[step] ?? ''}`;
}

/** 12345 → `12,345`, as in the sentences of the server. */
export function formatNumber(value: unknown): string {
  if (typeof value !== 'number' || !Number.isFinite(value)) return '–';
  const [whole = '', fraction] = String(value).split('.');
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ',');
  return fraction === undefined ? grouped : `${grouped}.${fraction}`;
}

/** Seconds → the two largest units: `3 h 12 min`. */
export function formatDuration(seconds: number): string {
  if (!Number.isFinite(seconds)) return '–';
  const whole = Math.max(0, Math.round(seconds));
  const parts = [
    [Math.floor(whole / 86_400), 'd'],
    [Math.floor(whole / 3600) % 24, 'h'],
    [Math.floor(whole / 60) % 60, 'min'],
    [whole % 60, 's'],
  ] as const;
  const first = parts.findIndex(([count]) => count > 0);
  if (first === -1) return '0 s';
  return parts
    .slice(first, first + 2)
    .filter(([count]) => count > 0)
    .map(([count, unit]) => `${count} ${unit}`)
    .join(' ');
}

const isoTime = /^(\d{4}-\d{2}-\d{2})(T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(Z|[+-]\d{2}:?\d{2})?)?$/;

/** A date or time in ISO 8601, in UTC without a zone, as milliseconds; NaN for anything else, such as February 30. */
export function parseTime(text: string): number {
  const [whole = '', date = '', time, zone] = isoTime.exec(text) ?? [];
  const day = Date.parse(`${date}T00:00Z`);
  if (Number.isNaN(day) || !new Date(day).toISOString().startsWith(date)) return Number.NaN;
  return Date.parse(time === undefined || zone !== undefined ? whole : `${whole}Z`);
}

/** `2026-11-21 00:00:00 UTC`; what is no time is shown as it is. */
export function formatTime(iso: unknown): string {
  const at = Date.parse(String(iso));
  if (Number.isNaN(at)) return String(iso);
  return `${new Date(at).toISOString().slice(0, 19).replace('T', ' ')} UTC`;
}

/** `5 min ago`, `in 3 h`; older than a month the date. */
export function formatAgo(iso: unknown, now: number): string {
  const at = Date.parse(String(iso));
  if (Number.isNaN(at)) return String(iso);
  const seconds = Math.round((now - at) / 1000);
  const distance = Math.abs(seconds);
  if (distance > 30 * 86_400) return new Date(at).toISOString().slice(0, 10);
  if (distance < 5) return 'now';
  const rounded = roundToUnit(distance);
  return seconds > 0 ? `${rounded} ago` : `in ${rounded}`;
}

function roundToUnit(seconds: number): string {
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  return seconds < 86_400 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86_400)} d`;
}

/** What the values of a chart are. */
export type ValueUnit = 'rate' | 'perMinute' | 'count' | 'share' | 'seconds' | 'bytes';

/** A value of a chart, with its unit; three digits are precise enough for a drawing. */
export function formatValue(unit: ValueUnit, value: number): string {
  if (!Number.isFinite(value)) return '–';
  if (unit === 'share') return `${formatRounded(value * 100)} %`;
  if (unit === 'rate') return `${formatRounded(value)}/s`;
  if (unit === 'perMinute') return `${formatRounded(value)}/min`;
  if (unit === 'count') return formatRounded(value);
  return unit === 'seconds' ? formatSeconds(value) : formatBytes(value);
}

function formatSeconds(value: number): string {
  if (value < 1) return `${formatRounded(value * 1000)} ms`;
  if (value < 120) return `${formatRounded(value)} s`;
  if (value < 7200) return `${formatRounded(value / 60)} min`;
  return value < 172_800 ? `${formatRounded(value / 3600)} h` : `${formatRounded(value / 86_400)} d`;
}

const formatRounded = (value: number): string =>
  formatNumber(value >= 100 ? Math.round(value) : Number(value.toPrecision(value < 0.1 ? 2 : 3)));

/** Milliseconds since 1970 → `12:03` in UTC, or `12:03:45`. */
export const formatClock = (time: number, digits: 'minutes' | 'seconds' = 'minutes'): string =>
  new Date(time).toISOString().slice(11, digits === 'minutes' ? 16 : 19);
