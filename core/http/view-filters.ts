import type { Clock } from '../clock.js';

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

/** `2026-11-21 00:00:00 UTC`; what is no time is shown as it is. */
function formatTime(iso: unknown): string {
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

/** A link target as it is, when it can only lead to a page or a mail program; else `#`. */
export function safeUrl(url: unknown): string {
  const text = typeof url === 'string' ? url : '';
  // What browsers skip inside a scheme must not hide one.
  const bare = text.replace(/[\p{Cc}\s]/gu, '');
  const scheme = /^([^/?#:]*):/.exec(bare)?.[1]?.toLowerCase();
  if (scheme === undefined) return bare.startsWith('//') || bare.startsWith('/\\') ? '#' : text;
  return ['http', 'https', 'mailto'].includes(scheme) ? text : '#';
}

const words: Readonly<Record<string, readonly string[]>> = {
  good: ['up', 'ok', 'delivered', 'enabled', 'yes', 'accepted', 'running', 'public'],
  info: ['queued', 'active', 'info', 'get', 'read', 'unread'],
  warn: ['degraded', 'deferred', 'stale', 'warn', 'restart required', 'put', 'patch', 'operate'],
  bad: ['down', 'bounced', 'expired', 'error', 'fatal', 'failed', 'refused', 'delete', 'disabled', 'admin'],
};
const tones = new Map(Object.entries(words).flatMap(([tone, list]) => list.map((word) => [word, tone] as const)));

/** Tone of a state word, `neutral` when it has none. */
export const toneOf = (word: unknown): string => tones.get(String(word).toLowerCase()) ?? 'neutral';

/** 1 → `1 message`, 12345 → `12,345 messages`. */
export function formatCounted(count: unknown, noun: string, plural = `${noun}s`): string {
  return `${formatNumber(count)} ${count === 1 ? noun : plural}`;
}

/** The filters of every view, by name. */
export function viewFilters(clock: Clock): Readonly<Record<string, (value: never, ...more: never[]) => string>> {
  return {
    ago: (iso: unknown) => formatAgo(iso, clock.now()),
    fullTime: formatTime,
    bytes: formatBytes,
    number: formatNumber,
    counted: formatCounted,
    duration: formatDuration,
    url: safeUrl,
    tone: toneOf,
  };
}
