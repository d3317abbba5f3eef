import { isAscii as isAsciiBytes, isUtf8 } from 'node:buffer';
import { isIP } from 'node:net';
import { TimeSlice } from '../../../core/concurrency.js';
import { embedded, isAscii } from '../../../core/mime/character.js';
import { mailDate } from '../../../core/mime/header.js';

/** Report about one recipient (RFC 3464 §2.3). */
export interface DsnRecipient {
  /** `local@domain` */
  readonly address: string;
  /** ORCPT (RFC 3461 §4.2): type, `;` and the address, decoded; of the type `utf-8` (RFC 6533 §3) as well. */
  readonly originalRecipient?: string;
  readonly action: 'failed' | 'delayed' | 'delivered' | 'relayed';
  /** Enhanced status code (RFC 3463). */
  readonly status: string;
  /** Reply of a server, with code and status. Null when no server was asked. */
  readonly diagnostic: string | null;
  /** Name of that server; null for a decision of this server. */
  readonly host: string | null;
  readonly lastAttempt: Date | null;
  /** With `delayed`: the end of delivery attempts. */
  readonly retryUntil?: Date;
}

export interface DsnInput {
  /** Name of this server. */
  readonly reportingMta: string;
  readonly from: string;
  readonly to: string;
  readonly date: Date;
  /** With angle brackets. */
  readonly messageId: string;
  readonly boundary: string;
  readonly arrival: Date;
  /** ENVID, decoded. */
  readonly envelopeId?: string;
  readonly recipients: readonly DsnRecipient[];
  /** Subject and Message-ID of the original message. */
  readonly subject: string;
  readonly originalMessageId: string | null;
  /** Reason given by an operator. */
  readonly reason?: string;
  /** The header block, with its empty line, or the whole message, with CRLF line ends. */
  readonly returned: Buffer;
  readonly returnedWhole: boolean;
  /** The message used SMTPUTF8 (RFC 6531). */
  readonly smtputf8?: boolean;
}

const subjects = {
  failed: 'Your message could not be delivered',
  delayed: 'Your message is delayed',
  delivered: 'Your message was delivered',
  relayed: 'Your message was passed on',
} as const;

const introductions = {
  failed: 'Your message could not be delivered to those who are listed below, and it is not tried again for them.',
  delayed:
    'Your message has not reached everybody yet. You need not do anything: it is tried again, and you will be notified if it fails permanently.',
  delivered: 'As you asked to be told: your message has been delivered.',
  relayed:
    'As you asked to be told: your message was passed on to the server of the recipient. That server does not tell what becomes of it.',
} as const;

/**
 * A delivery status notification (RFC 3462, RFC 3464), ready to send. UTF-8 is written according to RFC 6533: literally
 * when the recipient's address needs SMTPUTF8 itself, otherwise in forms that every server accepts (§3, §4.1).
 */
export async function composeDsn(input: DsnInput): Promise<Buffer> {
  const { boundary, returnedWhole } = input;
  return Buffer.concat([
    Buffer.from(`${header(input)}This is a message in several parts, in MIME format.\r\n`),
    part(boundary, 'text/plain; charset=utf-8', 'Notification', await encodeText(await humanText(input))),
    await statusPart(input),
    part(boundary, ...(await original(input, returnedWhole))),
    Buffer.from(`--${boundary}--\r\n`),
  ]);
}

/** RFC 6533 §4.1: a message with UTF-8 in its header is encoded where the return path may not support it. */
async function original(
  { to, returned, smtputf8 = false }: DsnInput,
  whole: boolean,
): Promise<readonly [string, string, Encoded]> {
  const description = whole ? 'Your message' : 'Header of your message';
  const end = returned.indexOf('\r\n\r\n');
  const head = end < 0 ? returned : returned.subarray(0, end);
  if (!smtputf8 || !isUtf8(head) || isAscii(head.toString('latin1')))
    return [whole ? 'message/rfc822' : 'text/rfc822-headers', description, asIs(returned)];
  return [
    whole ? 'message/global' : 'message/global-headers',
    description,
    isAscii(to) ? await base64(returned) : asIs(returned),
  ];
}

function header(input: DsnInput): string {
  const { from, to, date, messageId, originalMessageId, boundary, recipients } = input;
  const about =
    originalMessageId !== null && /^<[!-;=?-~]{1,900}>$/.test(originalMessageId) ? originalMessageId : undefined;
  const fields = [
    `From: "Mail Delivery System" <${from}>`,
    `To: <${to}>`,
    `Subject: ${subjects[recipients[0]?.action ?? 'failed']}`,
    `Date: ${mailDate(date)}`,
    `Message-ID: ${messageId}`,
    ...(about === undefined ? [] : [`In-Reply-To: ${about}`, `References: ${about}`]),
    'Auto-Submitted: auto-replied',
    'MIME-Version: 1.0',
    `Content-Type: multipart/report; report-type=delivery-status;\r\n\tboundary="${boundary}"`,
  ];
  return `${fields.join('\r\n')}\r\n\r\n`;
}

async function humanText({ reportingMta, recipients, subject, arrival, reason }: DsnInput): Promise<string> {
  const action = recipients[0]?.action ?? 'failed';
  const blocks = await inSlices(recipients, ({ address, status, diagnostic, host, action: what, retryUntil }) => {
    const said = diagnostic === null ? [] : [`    ${host ?? 'This server'} says: ${sayable(diagnostic)}`];
    const until = retryUntil === undefined ? [] : [`    It is tried until ${mailDate(retryUntil)}.`];
    // Their explanations say that the other server has refused it.
    const isUnexplained = host === null && /^\d\.[07]\./.test(status);
    const why = (what === 'failed' || what === 'delayed') && !isUnexplained ? [`    ${explainStatus(status)}`] : [];
    return wrapped([`  ${address}`, ...why, ...said, ...until].join('\n'));
  });
  const operator = reason === undefined ? [] : [`The operator of this mail server says: ${sayable(reason)}`];
  const paragraphs = [
    `This is the mail server ${reportingMta}.`,
    introductions[action],
    `  Subject: ${sayable(subject) || '(none)'}\n  Received here: ${mailDate(arrival)}`,
    ...operator,
  ];
  const end = 'What follows is for programs: a report, and the header or the text of your message.';
  return [...paragraphs.map(wrapped), ...blocks, wrapped(end)].join('\r\n\r\n');
}

/** A message may have a thousand recipients, each with a long reply. */
async function inSlices<T, R>(items: readonly T[], work: (item: T) => R): Promise<readonly R[]> {
  const slice = new TimeSlice();
  const results: R[] = [];
  for (const item of items) {
    results.push(work(item));
    await slice.yieldIfDue();
  }
  return results;
}

async function statusPart(input: DsnInput): Promise<Buffer> {
  const { boundary, to, reportingMta, envelopeId, arrival, recipients } = input;
  const message = [
    ...(envelopeId === undefined ? [] : [`Original-Envelope-Id: ${oneLine(envelopeId)}`]),
    `Reporting-MTA: dns; ${reportingMta}`,
    `Arrival-Date: ${mailDate(arrival)}`,
  ];
  const [type, form] = isAscii(to)
    ? (['delivery-status', sevenBit] as const)
    : (['global-delivery-status', asItIs] as const);
  const blocks = [message, ...(await inSlices(recipients, (recipient) => recipientFields(recipient, form)))];
  const text = blocks.map((fields) => `${fields.join('\r\n')}\r\n`).join('\r\n');
  return part(boundary, `message/${type}`, 'Delivery report', asIs(Buffer.from(text)));
}

/** How a report writes non-ASCII text. */
interface Form {
  readonly address: (address: string) => string;
  readonly text: (text: string) => string;
}

/** The form `utf-8-address` of RFC 6533 §3. */
const asItIs: Form = { address: (address) => address, text: (text) => text };
/** The form `utf-8-addr-xtext`, which fits into 7 bits. */
const sevenBit: Form = {
  address: (address) => address.replaceAll(/[^!-*,-<>-[\]-~]/gu, embedded),
  text: (text) => text.replaceAll(/[^ -~]/gu, '?'),
};

function finalRecipient(address: string, form: Form): string {
  return isAscii(address) ? `rfc822; ${address}` : `utf-8; ${form.address(address)}`;
}

function originalOf(text: string, form: Form): string {
  const [, type = '', address = ''] = /^([^;]*);(.*)$/s.exec(text) ?? [];
  return `${type}; ${type.toLowerCase() === 'utf-8' ? form.address(oneLine(address)) : form.text(oneLine(address))}`;
}

function recipientFields(recipient: DsnRecipient, form: Form): readonly string[] {
  const { address, originalRecipient, action, status, diagnostic, host, lastAttempt, retryUntil } = recipient;
  return [
    ...(originalRecipient === undefined ? [] : [`Original-Recipient: ${originalOf(originalRecipient, form)}`]),
    `Final-Recipient: ${finalRecipient(address, form)}`,
    `Action: ${action}`,
    `Status: ${status}`,
    ...(host === null ? [] : [`Remote-MTA: dns; ${form.text(mtaName(oneLine(host)))}`]),
    ...(diagnostic === null
      ? []
      : [fold(`Diagnostic-Code: ${host === null ? 'x-postern' : 'smtp'}; ${form.text(sayable(diagnostic))}`)]),
    ...(lastAttempt === null ? [] : [`Last-Attempt-Date: ${mailDate(lastAttempt)}`]),
    ...(retryUntil === undefined ? [] : [`Will-Retry-Until: ${mailDate(retryUntil)}`]),
  ];
}

/** A host without a name is a domain literal (RFC 3464 §2.3.5, RFC 5321 §4.1.3). */
function mtaName(host: string): string {
  const version = isIP(host);
  if (version === 0) return host;
  return version === 6 ? `[IPv6:${host}]` : `[${host}]`;
}

interface Encoded {
  readonly encoding: '7bit' | '8bit' | 'base64';
  readonly bytes: Buffer;
}

function part(boundary: string, type: string, description: string, { encoding, bytes }: Encoded): Buffer {
  const head = `--${boundary}\r\nContent-Type: ${type}\r\nContent-Description: ${description}\r\nContent-Transfer-Encoding: ${encoding}\r\n\r\n`;
  return Buffer.concat([Buffer.from(head), bytes, Buffer.from('\r\n')]);
}

/** Octets that are encoded at a time, to whole lines of 76 characters. */
const pieceBytes = 57 * 1024;

async function base64(bytes: Buffer): Promise<Encoded> {
  const starts = Array.from({ length: Math.ceil(bytes.length / pieceBytes) }, (_, n) => n * pieceBytes);
  const pieces = await inSlices(starts, (at) =>
    Buffer.from(bytes.toString('base64', at, at + pieceBytes).replaceAll(/.{1,76}/g, '$&\r\n'), 'latin1'),
  );
  return { encoding: 'base64', bytes: Buffer.concat(pieces) };
}

/** The original subtypes of `message` are never encoded (RFC 2046 §5.2.1). */
function asIs(bytes: Buffer): Encoded {
  return { encoding: isAsciiBytes(bytes) ? '7bit' : '8bit', bytes };
}

async function encodeText(text: string): Promise<Encoded> {
  const bytes = Buffer.from(`${text}\r\n`);
  return isAsciiBytes(bytes) ? { encoding: '7bit', bytes } : base64(bytes);
}

/** Text of others, with spaces in words that exceed a line (RFC 5322 §2.1.1: 998 octets). */
const sayable = (text: string): string => oneLine(text).replaceAll(/\S{200}(?=\S)/gu, '$& ');

/** Removes line breaks, so that text of others cannot start a line. */
function oneLine(text: string): string {
  return text
    .replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\s]+/gu, ' ')
    .trim()
    .slice(0, 1000);
}

const wrapped = (text: string): string => text.split('\n').map(wrap).join('\r\n');

/** Wraps at 78 characters and keeps the indent. */
function wrap(line: string): string {
  const indent = /^ */.exec(line)?.[0] ?? '';
  const rows: string[] = [];
  let row = indent;
  for (const word of line.trim().split(/\s+/)) {
    const joined = row.trim() === '' ? `${indent}${word}` : `${row} ${word}`;
    if (joined.length <= 78 || row.trim() === '') row = joined;
    else {
      rows.push(row);
      row = `${indent}${word}`;
    }
  }
  return [...rows, row].join('\r\n').trimEnd();
}

function fold(field: string): string {
  const rows: string[] = [];
  let row = '';
  for (const word of field.split(' ')) {
    if (row === '') row = word;
    else if (row.length + word.length < 76) row += ` ${word}`;
    else {
      rows.push(row);
      row = ` ${word}`;
    }
  }
  return [...rows, row].join('\r\n');
}

/** Meaning of enhanced status codes (RFC 3463) for readers; the longest matching prefix applies. */
const sentences: Readonly<Record<string, string>> = {
  '1.0': 'Something is wrong with the address.',
  '1.1': 'There is no such mailbox. Please look whether the address is spelled right.',
  '1.2':
    'The part of the address behind the "@" does not exist, or takes no mail. Please look whether it is spelled right.',
  '1.3': 'The address is not written as addresses are.',
  '1.6': 'The mailbox has moved, and where to is not known.',
  '1.7': 'The other server does not like the address that the message comes from.',
  '1.8': 'The domain that the message comes from is not known there.',
  '1.10': 'The domain of the address takes no mail at all.',
  '2.0': 'Something is wrong with the mailbox.',
  '2.1': 'The mailbox is switched off.',
  '2.2': 'The mailbox is full.',
  '2.3': 'The message is too large for this mailbox.',
  '3.1': 'The other server has no room for mail.',
  '3.4': 'The message is too large for the other server.',
  '4.0': 'The other server could not be reached.',
  '4.1': 'The other server could not be reached.',
  '4.2': 'The connection to the other server was lost.',
  '4.3': 'The name service that tells where the mail has to go could not be asked.',
  '4.4': 'It is not known which server takes the mail of this domain.',
  '4.6': 'The message goes round in circles between servers.',
  '4.7': 'The message was tried for a long time, and the other server did not take it.',
  '5.3': 'There were too many recipients for the other server.',
  '6.3': 'The other server cannot take the characters of this message.',
  '6.7': 'The other server does not take addresses with such characters.',
  '7.0': 'The other server does not take this message, by its rules.',
  '7.1': 'The other server does not take this message, by its rules.',
  '7.8': 'The other server did not accept the sign-in of this server.',
};

const statusSubjects: Readonly<Record<string, string>> = {
  '0': 'The other server gave no reason.',
  '1': 'Something is wrong with the address.',
  '2': 'Something is wrong with the mailbox.',
  '3': 'The other server has difficulties.',
  '4': 'The mail could not be brought to the other server.',
  '5': 'The two servers did not understand each other.',
  '6': 'The other server cannot take the content of this message.',
  '7': 'The other server does not take this message, by its rules.',
};

function explainStatus(status: string): string {
  const [, subject = '0', detail = '0'] = status.split('.');
  const temporary = status.startsWith('4.') ? 'For now: ' : '';
  const sentence = sentences[`${subject}.${detail}`] ?? statusSubjects[subject] ?? 'The other server gave no reason.';
  return `${temporary}${temporary === '' ? sentence : sentence.charAt(0).toLowerCase() + sentence.slice(1)}`;
}
