import type { NewEntry } from '../../../core/contracts/queue-entry.js';
import { type HeaderBlock, scanHeader } from '../../../core/mime/header.js';

/** Mail that has passed so many servers goes round in circles. */
const mostHops = 50;
/** And so does mail that has been here so often. */
const mostVisits = 4;

/** Why a message that failed cannot be returned to anybody, so that it stays for an operator; null when it can. */
export function deadLetterReason(
  entry: Pick<NewEntry, 'sender' | 'noticeOf'>,
  head: Buffer,
  hostname: string,
): string | null {
  if (entry.noticeOf !== undefined) return 'A notice of failure that could not be delivered itself';
  if (entry.sender === null) return 'It could not be delivered, and it has no sender who could be told';
  const received = scanHeader(head).all('received');
  if (received.length >= mostHops) return `A mail loop: it has passed ${received.length} servers`;
  const own = hostname.toLowerCase();
  const visits = received.filter((field) => /\bby\s+([^\s;]+)/i.exec(field)?.[1]?.toLowerCase() === own).length;
  return visits >= mostVisits ? `A mail loop: it has been here ${visits} times` : null;
}

/** Why a message is not answered with a notice, though it has a sender (RFC 3834 §2, RFC 3464 §2); null when it is. */
export function unanswerable(sender: string | null, head: Buffer): string | null {
  if (sender === null) return 'it has no sender';
  if (/^(mailer-daemon|double-bounce)@/i.test(sender)) return 'it comes from a mailer daemon';
  const header = scanHeader(head);
  return automatic(header) ?? null;
}

function automatic(header: HeaderBlock): string | undefined {
  const submitted = header.first('auto-submitted');
  if (submitted !== undefined && !/^\s*no\b/i.test(submitted)) return 'a program has sent it (Auto-Submitted)';
  if (/^\s*multipart\/report\b/i.test(header.first('content-type') ?? '')) return 'it is a report itself';
  const suppressed = header.first('x-auto-response-suppress') ?? '';
  return /\b(all|dr|ndr|nrn)\b/i.test(suppressed) ? 'its sender wants no automatic answers' : undefined;
}
