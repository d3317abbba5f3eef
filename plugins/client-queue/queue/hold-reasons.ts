import type { NewEntry } from '../../../core/contracts/queue-entry.js';
import { scanHeader } from '../../../core/mime/header.js';

/** Reasons to hold a message that is not what was accepted. They are stored in entries. */
export const damageHolds = {
  missing: 'Its message is missing in the queue.',
  damaged: 'Its message is damaged; what is left of it is in quarantine.',
  either: 'Its message is missing or damaged.',
  /** Of a queue in a database. */
  unreadable: 'Its entry in the database is damaged, or a newer version of the server has written it.',
} as const;

const messageHolds: ReadonlySet<string> = new Set(Object.values(damageHolds));
const crashHold = /^The server has ended \d+ times/;

/** True when the message is damaged, or processes died while sending it. */
export function isDamageHold(hold: string | null): boolean {
  return hold !== null && (messageHolds.has(hold) || crashHold.test(hold));
}

/** Why a failed message cannot be returned to its sender, so that an operator has to see it; null when it can. */
export function deadLetterReason(
  entry: Pick<NewEntry, 'sender' | 'noticeOf'>,
  head: Buffer,
  hostname: string,
): string | null {
  if (entry.noticeOf !== undefined) return 'A notice of failure that could not be delivered itself';
  if (entry.sender === null) return 'It could not be delivered, and it has no sender who could be told';
  const received = scanHeader(head).all('received');
  if (received.length >= maxHops) return `A mail loop: it has passed ${received.length} servers`;
  const own = hostname.toLowerCase();
  const visits = received.filter((field) => /\bby\s+([^\s;]+)/i.exec(field)?.[1]?.toLowerCase() === own).length;
  return visits >= maxVisits ? `A mail loop: it has been here ${visits} times` : null;
}

/** Mail that passed this many servers is in a loop. */
export const maxHops = 50;

/** So is mail that was here this often. */
export const maxVisits = 4;
