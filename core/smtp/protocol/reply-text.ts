import { isProblem } from '../../problem.js';
import { replies, replyToProblem } from './replies.js';
import { reply, type Reply } from './reply.js';

/** RFC 5321 §4.5.3.1.5 allows 512 octets a line, the codes and the CRLF included. */
export const maxReplyText = 400;

/** One line that can be printed: no control or format character, not empty. */
export function isReplyText(text: unknown): text is string {
  return (
    typeof text === 'string' && text.length > 0 && text.length <= maxReplyText && !/[\p{C}\p{Zl}\p{Zp}]/u.test(text)
  );
}

/** A reply is ASCII (RFC 5321 §2.3.1; RFC 6531 §3.7.4.2 would need SMTPUTF8): other characters become `?`. */
export function asciiReplyText(text: string): string {
  return text.replace(/\P{ASCII}/gu, '?');
}

/** The reply that a thrown value stands for: a problem's own, else `451 4.3.0`. */
export function replyToError(error: unknown): Reply {
  if (!isProblem(error)) return replies.fault;
  const { code, status, lines } = replyToProblem(error);
  const text = lines.join(' ');
  return isReplyText(text) ? reply(code, status, asciiReplyText(text)) : replies.fault;
}
