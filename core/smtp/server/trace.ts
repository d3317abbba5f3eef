import { mailDate, scanHeader } from '../../mime/header.js';
import type { Address } from '../../mime/address.js';
import type { SmtpSession, Transaction } from '../../pipeline/transaction.js';

/** What of a transaction the trace tells. */
export type TracedTransaction = Pick<Transaction, 'id' | 'recipients' | 'smtputf8'> & {
  readonly session: Pick<SmtpSession, 'listener' | 'remote' | 'hello' | 'tls' | 'user'>;
};

/** `Return-Path:` line with its CRLF (RFC 5321 §4.4); `<>` for the null reverse-path. */
export function returnPathLine(reversePath: Address | null): Buffer {
  return Buffer.from(`Return-Path: <${reversePath?.address ?? ''}>\r\n`);
}

/**
 * The `Received:` field of this hop, folded, with its CRLFs (RFC 5321 §4.4). It names the recipient only when there is just
 * one, so that nobody learns of a Bcc, and never the user who has signed in.
 */
export function receivedField(transaction: TracedTransaction, hostname: string, date: Date): Buffer {
  const { session, recipients, id } = transaction;
  const [first, ...others] = recipients;
  const lines = [
    `Received: from ${domainOf(session.hello?.name)} (${addressLiteral(session.remote.address)})`,
    `by ${hostname} with ${protocolOf(transaction)} id ${id}`,
    ...(first !== undefined && others.length === 0 ? [`for <${first.address.address}>`] : []),
  ];
  return Buffer.from(`${lines.join('\r\n\t')};\r\n\t${mailDate(date)}\r\n`);
}

/** How often the message has been received already, by its header block (RFC 5321 §6.3). */
export function loopCount(head: Buffer): number {
  return scanHeader(head).fields.filter(({ key }) => key === 'received').length;
}

/** Protocol types of RFC 3848 and RFC 6531 §4.3. */
function protocolOf({ session, smtputf8 }: TracedTransaction): string {
  if (session.hello?.verb === 'HELO') return 'SMTP';
  const security = `${session.tls === undefined ? '' : 'S'}${session.user === undefined ? '' : 'A'}`;
  const isLmtp = session.listener.mode === 'lmtp';
  if (smtputf8) return `UTF8${isLmtp ? 'LMTP' : 'SMTP'}${security}`;
  return `${isLmtp ? 'LMTP' : 'ESMTP'}${security}`;
}

/** What the client called itself, if that can stand in a header field: a name, an address or an address literal. */
function domainOf(hello: string | undefined): string {
  if (hello === undefined) return 'unknown';
  return /^\[?[\w.:-]{1,255}\]?$/.test(hello) ? hello : 'invalid';
}

function addressLiteral(ip: string): string {
  return ip.includes(':') ? `[IPv6:${ip}]` : `[${ip}]`;
}
