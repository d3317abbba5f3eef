import type { RecordedReply } from '../../../core/contracts/queue-entry.js';
import { pluralize } from '../../../core/text/format.js';

/** Status for an exceeded delivery time (RFC 3463 §3.5, X.4.7). */
const expiredStatus = '5.4.7';
const longest = 1000;

/**
 * The final reply for expired mail, with the last reply of a server. This server decided it, so it names no remote
 * host.
 */
export function expiredReply(
  last: RecordedReply | null,
  { queuedAt, expiresAt, now }: { readonly queuedAt: number; readonly expiresAt: number; readonly now: number },
): RecordedReply {
  const tried = `Tried for ${duration(expiresAt - queuedAt)} and not taken`;
  if (last === null) return { code: 451, status: expiredStatus, text: tried, host: null, at: now };
  const text = `${tried}; the last answer was: ${last.code} ${last.status} ${last.text}`;
  return { ...last, status: expiredStatus, host: null, text: text.slice(0, longest) };
}

function duration(ms: number): string {
  const hours = ms / 3_600_000;
  if (hours >= 48) return `${Math.round(hours / 24)} days`;
  if (hours >= 2) return `${Math.round(hours)} hours`;
  return ms >= 120_000 ? `${Math.round(ms / 60_000)} minutes` : pluralize(Math.max(1, Math.round(ms / 1000)), 'second');
}
