import type { RecipientOutcome } from '../../core/contracts/delivery-target.js';
import { isClientFailure, type ClientFailure, type ClientStep } from '../../core/smtp/client/failure.js';
import { asciiReplyText, maxReplyText, type Reply } from '../../core/smtp/protocol/replies.js';
import type { Recipient } from '../../core/pipeline/transaction.js';

/** A no as the client gets it, in one line. */
export interface Refusal {
  readonly code: number;
  readonly status: string;
  readonly text: string;
}

/**
 * What a server has said, or why it said nothing, in words for the client: code, status and text as they came. A 421 is about
 * the connection to that server, not about the client's: it becomes 451.
 */
export function refusalOf(answer: Reply | ClientFailure): Refusal {
  const { code, status } = answer;
  const isNo = code >= 400 && code <= 599 && code !== 421 && isAboutMail(answer);
  const said = isNo ? code : 451;
  const digit = Math.floor(said / 100);
  return {
    code: said,
    status: status?.startsWith(`${digit}.`) === true ? status : `${digit}.${isNo ? '0.0' : '4.2'}`,
    text: lineOf(isClientFailure(answer) ? answer.text : answer.lines.join(' ')),
  };
}

/**
 * False for what a server has against us, or what comes of our own configuration: the sender shall try again. A 5yz that is
 * not meant for good (a plain 552 to RCPT, behind which others have been accepted) is none to a message of its own either.
 */
function isAboutMail(answer: Reply | ClientFailure): boolean {
  if (!isClientFailure(answer)) return true;
  const { kind, step, code, permanent } = answer;
  if (kind === 'capability') return permanent;
  return kind === 'reply' && envelopeSteps.has(step) && (code < 500 || permanent);
}

const envelopeSteps: ReadonlySet<ClientStep> = new Set(['mail', 'rcpt', 'data', 'body', 'final']);

/** Of a whole transaction: each recipient gets the same. */
export function outcomesOf(
  recipients: readonly Recipient[],
  answer: Reply | ClientFailure,
): readonly RecipientOutcome[] {
  return recipients.map((recipient) => outcomeOf(recipient, answer));
}

export function outcomeOf(recipient: Recipient, answer: Reply | ClientFailure): RecipientOutcome {
  if (!isClientFailure(answer) && answer.code < 300) return { recipient, outcome: 'delivered', reply: answer };
  const refusal = refusalOf(answer);
  return { recipient, outcome: refusal.code < 500 ? 'deferred' : 'refused', ...refusal };
}

/** One line that can be printed; a server may say nothing at all. */
function lineOf(text: string): string {
  const clean = asciiReplyText(text.replace(/[\p{C}\p{Zl}\p{Zp}]+/gu, ' ').trim()).slice(0, maxReplyText);
  return clean === '' ? 'No reason given' : clean;
}
