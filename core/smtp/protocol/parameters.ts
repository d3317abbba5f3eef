import { asciiUpperCase, embedded, hasForbiddenCharacter, isAscii } from '../../mime/character.js';
import { decodeXtext } from './command.js';
import { replies, type WireReply } from './replies.js';

/** Parameters of MAIL. */
export interface MailParameters {
  /** SIZE= (RFC 1870), in bytes. */
  readonly declaredSize: number | undefined;
  readonly body: '7BIT' | '8BITMIME';
  readonly smtputf8: boolean;
  readonly dsn?: MessageDsn;
}

interface MailParameterRules {
  readonly messageBytes: number;
  /** AUTH= (RFC 4954 §5) is valid where AUTH is offered. */
  readonly auth: boolean;
  /** RET and ENVID (RFC 3461 §4.3, §4.4) are valid where DSN is offered. */
  readonly dsn: boolean;
}

const usual: MailParameters = { declaredSize: undefined, body: '7BIT', smtputf8: false };

/** Parses the parameters of MAIL, or returns the refusal. */
export function readMailParameters(
  parameters: ReadonlyMap<string, string | null>,
  rules: MailParameterRules,
): MailParameters | WireReply {
  if (parameters.size === 0) return usual;
  let { declaredSize, body, smtputf8 } = usual;
  let dsn: MessageDsn | undefined;
  for (const [key, value] of parameters) {
    if (key === 'SIZE') {
      // RFC 1870 §3: up to 20 digits.
      if (value === null || !/^\d{1,20}$/.test(value)) return replies.badArguments;
      declaredSize = Number(value);
    } else if (key === 'BODY') {
      const given = asciiUpperCase(value ?? '');
      if (given !== '7BIT' && given !== '8BITMIME') return replies.badArguments;
      body = given;
    } else if (key === 'SMTPUTF8') {
      if (value !== null) return replies.badArguments;
      smtputf8 = true;
    } else if (key === 'RET' && rules.dsn) {
      const given = asciiUpperCase(value ?? '');
      if (given !== 'FULL' && given !== 'HDRS') return replies.badArguments;
      dsn = { ...dsn, ret: given === 'FULL' ? 'full' : 'hdrs' };
    } else if (key === 'ENVID' && rules.dsn) {
      const envelopeId = readEnvelopeId(value);
      if (envelopeId === undefined) return replies.badArguments;
      dsn = { ...dsn, envelopeId };
    } else if (key === 'AUTH' && rules.auth) {
      // Accepted and ignored: the sender is known from AUTH itself.
      if (value === null || decodeXtext(value) === undefined) return replies.badArguments;
    } else {
      return replies.unknownParameter;
    }
  }
  if (declaredSize !== undefined && declaredSize > rules.messageBytes) return replies.messageTooLarge;
  return { declaredSize, body, smtputf8, ...(dsn !== undefined && { dsn }) };
}

/** RFC 3461 §4.4: at most 100 characters of xtext for printable characters. */
function readEnvelopeId(value: string | null): string | undefined {
  const decoded = value === null || value.length > 100 ? undefined : decodeXtext(value);
  return decoded !== undefined && /^[ -~]+$/.test(decoded) ? decoded : undefined;
}

export const isMailParameters = (value: MailParameters | WireReply): value is MailParameters => 'smtputf8' in value;

const notifications: ReadonlyMap<string, Notify> = new Map([
  ['SUCCESS', 'success'],
  ['FAILURE', 'failure'],
  ['DELAY', 'delay'],
  ['NEVER', 'never'],
]);

/** RFC 3461 §4.2. */
const maxOriginal = 500;
const none: RecipientDsn = {};

/** Parses the parameters of RCPT (RFC 3461 §4.1, §4.2), or returns the refusal. `smtputf8`: given with MAIL. */
export function readRcptParameters(
  parameters: ReadonlyMap<string, string | null>,
  { smtputf8, dsn: isOffered }: { readonly smtputf8: boolean; readonly dsn: boolean },
): RecipientDsn | WireReply {
  if (parameters.size === 0) return none;
  if (!isOffered) return replies.unknownParameter;
  let dsn = none;
  for (const [key, value] of parameters) {
    if (key === 'NOTIFY') {
      const notify = readNotify(value);
      if (notify === undefined) return replies.badArguments;
      dsn = { ...dsn, notify };
    } else if (key === 'ORCPT') {
      const original = smtputf8 ? inAscii(value ?? '') : (value ?? '');
      if (!isOriginal(original)) return replies.badArguments;
      dsn = { ...dsn, originalRecipient: original };
    } else {
      return replies.unknownParameter;
    }
  }
  return dsn;
}

export const isRcptParameters = (value: RecipientDsn | WireReply): value is RecipientDsn => !('code' in value);

/** `NEVER` excludes all others. */
function readNotify(value: string | null): readonly Notify[] | undefined {
  const words = asciiUpperCase(value ?? '').split(',');
  const wanted = words.flatMap((word) => notifications.get(word) ?? []);
  if (wanted.length !== words.length || new Set(wanted).size !== wanted.length) return undefined;
  return wanted.includes('never') && wanted.length > 1 ? undefined : wanted;
}

/** An address of type `utf-8` may be raw UTF-8 (RFC 6533 §3); it is stored in its ASCII form. */
function inAscii(value: string): string {
  const mayBe = !isAscii(value) && value.length <= maxOriginal && /^utf-8;/i.test(value);
  return mayBe && !hasForbiddenCharacter(value) ? value.replaceAll(/[^!-~]/gu, embedded) : value;
}

/** A type, `;` and xtext for printable characters. */
function isOriginal(value: string): boolean {
  const [, address] = /^[A-Za-z0-9][A-Za-z0-9-]{0,63};(.+)$/.exec(value) ?? [];
  const decoded = address === undefined ? undefined : decodeXtext(address);
  return value.length <= maxOriginal && decoded !== undefined && /^[ -~]+$/.test(decoded);
}

/** ORCPT with its address decoded (RFC 3461 §4.2): `rfc822;ann@example.org`. */
export function decodeOriginal(originalRecipient: string): string {
  const semicolon = originalRecipient.indexOf(';');
  const decoded = decodeXtext(originalRecipient.slice(semicolon + 1));
  return decoded === undefined ? originalRecipient : `${originalRecipient.slice(0, semicolon)};${decoded}`;
}

/** The same for display or a report: also decodes the address of a type `utf-8` (RFC 6533 §3). */
export function originalAddress(originalRecipient: string): string {
  const decoded = decodeOriginal(originalRecipient);
  return /^utf-8;/i.test(decoded) ? decoded.replaceAll(/\\x\{([0-9A-F]{2,6})\}/g, character) : decoded;
}

function character(escaped: string, hex: string): string {
  const code = Number.parseInt(hex, 16);
  const text = code > 0x10ffff ? '' : String.fromCodePoint(code);
  return text === '' || hasForbiddenCharacter(text) ? escaped : text;
}

/** DSN parameters of RCPT (RFC 3461 §4.1, §4.2). */
export interface RecipientDsn {
  readonly notify?: readonly Notify[];
  /** ORCPT as received: type, `;` and xtext. */
  readonly originalRecipient?: string;
}

/** DSN parameters of MAIL (RFC 3461 §4.3, §4.4). */
export interface MessageDsn {
  readonly ret?: 'full' | 'hdrs';
  /** ENVID, decoded. */
  readonly envelopeId?: string;
}

/** When the sender wants a DSN for a recipient (RFC 3461 §4.1); absent: for failures and delays. */
export type Notify = 'success' | 'failure' | 'delay' | 'never';
