import { parseAddress } from '../../mime/address.js';
import { isAscii } from '../../mime/character.js';
import { isProblem } from '../../problem.js';
import type { Reply } from '../protocol/replies.js';
import { clientFailure, type ClientFailure, type ClientStep, localFailure } from './failure.js';
import type { ContentOutline, OutgoingRecipient, OutgoingSender } from './message.js';

/** Extensions that the server offers (RFC 5321 §4.1.1.1). */
export interface Capabilities {
  readonly pipelining: boolean;
  /** BDAT (RFC 3030). */
  readonly chunking: boolean;
  readonly eightBitMime: boolean;
  readonly smtputf8: boolean;
  readonly dsn: boolean;
  readonly startTls: boolean;
  readonly enhancedStatusCodes: boolean;
  /** Undefined: SIZE is not offered; 0: offered without a limit (RFC 1870). */
  readonly size: number | undefined;
  /** Mechanisms in upper case. */
  readonly auth: readonly string[];
  /** Attributes in upper case; empty where XCLIENT is not offered. */
  readonly xclient: readonly string[];
  /** Every keyword in upper case, with its parameters. */
  readonly keywords: ReadonlyMap<string, string>;
}

/** Reads the reply to EHLO or LHLO; its first line is a greeting. */
export function readCapabilities(reply: Reply): Capabilities {
  const keywords = new Map<string, string>();
  for (const line of reply.lines.slice(1)) {
    const [, keyword = '', rest = ''] = /^\s*([A-Za-z0-9][A-Za-z0-9-]*)[ =]?(.*)$/.exec(line) ?? [];
    if (keyword === '') continue;
    const key = keyword.toUpperCase();
    const before = keywords.get(key);
    // Servers that support the old form AUTH=LOGIN list AUTH twice.
    keywords.set(key, before === undefined ? rest.trim() : `${before} ${rest.trim()}`);
  }
  return describe(keywords);
}

/** Capabilities of a server that was greeted with HELO. */
export const noCapabilities: Capabilities = describe(new Map());

function describe(keywords: ReadonlyMap<string, string>): Capabilities {
  const words = (key: string): readonly string[] =>
    (keywords.get(key) ?? '')
      .toUpperCase()
      .split(/\s+/)
      .filter((word) => word !== '');
  const size = keywords.get('SIZE');
  return Object.freeze({
    pipelining: keywords.has('PIPELINING'),
    chunking: keywords.has('CHUNKING'),
    eightBitMime: keywords.has('8BITMIME'),
    smtputf8: keywords.has('SMTPUTF8'),
    dsn: keywords.has('DSN'),
    startTls: keywords.has('STARTTLS'),
    enhancedStatusCodes: keywords.has('ENHANCEDSTATUSCODES'),
    size: size === undefined ? undefined : /^\d{1,15}$/.test(size) ? Number(size) : 0,
    auth: words('AUTH'),
    xclient: words('XCLIENT'),
    keywords,
  });
}

/** Matches most addresses; nothing in it can end the path or the line. */
const plainAddress = /^[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,252}@[A-Za-z0-9.-]{1,255}$/;
/** RFC 5321 §4.1.2 `esmtp-param`. */
const parameter = /^[A-Za-z0-9][A-Za-z0-9-]*(?:=[!-<>-~]+)?$/;
const maxParameters = 50;
const ret: ReadonlySet<string> = new Set(['FULL', 'HDRS']);
const notify: ReadonlySet<string> = new Set(['NEVER', 'SUCCESS', 'FAILURE', 'DELAY']);

/** The MAIL line, or the reason why this server cannot accept the message. */
export function mailLine(sender: OutgoingSender, needs: ContentOutline, offered: Capabilities): string | ClientFailure {
  const address = sender.address === null ? '' : wireAddress('mail', sender.address);
  if (typeof address !== 'string') return address;
  const wrong = missing(address, needs, offered) ?? refusedParameters('mail', sender.parameters);
  if (wrong !== undefined) return wrong;
  const utf8 = !isAscii(address) || needs.internationalHeader === true || needs.internationalRecipient === true;
  let line = `MAIL FROM:<${address}>`;
  if (offered.size !== undefined && needs.size !== undefined) line += ` SIZE=${needs.size}`;
  if (offered.eightBitMime && needs.eightBit !== false) line += ' BODY=8BITMIME';
  if (utf8) line += ' SMTPUTF8';
  if (offered.dsn && sender.ret !== undefined && ret.has(sender.ret)) line += ` RET=${sender.ret}`;
  if (offered.dsn && sender.envid !== undefined) line += ` ENVID=${encodeXtext(sender.envid)}`;
  return withParameters(line, sender.parameters);
}

/** The RCPT line, or the reason why this server cannot accept the recipient. */
export function rcptLine(recipient: OutgoingRecipient, offered: Capabilities): string | ClientFailure {
  const address = wireAddress('rcpt', recipient.address);
  if (typeof address !== 'string') return address;
  if (!isAscii(address) && !offered.smtputf8) return noInternationalAddress('rcpt');
  const wrong = refusedParameters('rcpt', recipient.parameters);
  if (wrong !== undefined) return wrong;
  let line = `RCPT TO:<${address}>`;
  const wanted = recipient.notify?.filter((one) => notify.has(one)) ?? [];
  if (offered.dsn && wanted.length > 0) line += ` NOTIFY=${wanted.join(',')}`;
  if (offered.dsn && recipient.orcpt !== undefined) line += orcpt(recipient.orcpt);
  return withParameters(line, recipient.parameters);
}

function missing(address: string, needs: ContentOutline, offered: Capabilities): ClientFailure | undefined {
  if (needs.eightBit === true && !offered.eightBitMime) return noEightBit();
  if (!isAscii(address) && !offered.smtputf8) return noInternationalAddress('mail');
  if (needs.internationalHeader === true && !offered.smtputf8) {
    return lacking('mail', 554, '5.6.9', 'The server does not take header fields in UTF-8 (SMTPUTF8)');
  }
  // A limit of 0 means no limit (RFC 1870 §4).
  const limit = offered.size ?? 0;
  if (needs.size !== undefined && limit > 0 && needs.size > limit) {
    return lacking('mail', 552, '5.3.4', `The message has ${needs.size} bytes, and the server takes ${limit}`);
  }
  return undefined;
}

/** RFC 6152 §3: an 8-bit message cannot be sent to a 7-bit server. */
export function noEightBit(step: ClientStep = 'mail'): ClientFailure {
  return lacking(step, 554, '5.6.3', 'The message has 8-bit text, and the server does not take it (8BITMIME)');
}

/** RFC 6531 §3.5. */
function noInternationalAddress(step: ClientStep): ClientFailure {
  return lacking(step, 550, '5.6.7', 'The server does not take international addresses (SMTPUTF8)');
}

function lacking(step: ClientStep, code: number, status: string, text: string): ClientFailure {
  return clientFailure({ kind: 'capability', step, code, status, text, permanent: true });
}

function wireAddress(step: ClientStep, address: string): string | ClientFailure {
  if (plainAddress.test(address)) return address;
  // RFC 5321 §4.5.1: the one mailbox that needs no domain.
  if (step === 'rcpt' && address.toLowerCase() === 'postmaster') return address;
  try {
    return parseAddress(address).address;
  } catch (error) {
    if (!isProblem(error)) throw error;
    return localFailure(step, 'The address cannot be written in an envelope', error);
  }
}

function orcpt(text: string): string {
  const [, type = '', address = ''] = /^([A-Za-z0-9-]+);(.*)$/s.exec(text) ?? [];
  return type === '' ? '' : ` ORCPT=${type};${encodeXtext(address)}`;
}

function refusedParameters(step: ClientStep, given: readonly string[] | undefined): ClientFailure | undefined {
  if (given === undefined || (given.length <= maxParameters && given.every((one) => parameter.test(one)))) {
    return undefined;
  }
  return localFailure(step, 'A parameter is not KEY or KEY=value');
}

function withParameters(line: string, given: readonly string[] | undefined): string {
  return given === undefined || given.length === 0 ? line : `${line} ${given.join(' ')}`;
}

/** xtext of RFC 3461 §4: everything but printable ASCII, and `+` and `=`, becomes `+` and two hexadecimal digits. */
export function encodeXtext(text: string): string {
  if (/^[!-*,-<>-~]*$/.test(text)) return text;
  let encoded = '';
  for (const byte of Buffer.from(text)) {
    const plain = byte > 0x20 && byte < 0x7f && byte !== 0x2b && byte !== 0x3d;
    encoded += plain ? String.fromCharCode(byte) : `+${byte.toString(16).toUpperCase().padStart(2, '0')}`;
  }
  return encoded;
}
