import { asciiUpperCase, embedded, hasForbiddenCharacter, isAscii } from '../../mime/character.js';
import type { Notify } from '../../contracts/queue-entry.js';
import { decodeXtext } from './command.js';
import { replies } from './replies.js';
import type { RecipientDsn } from '../../pipeline/transaction.js';
import type { WireReply } from '../server/wire-reply.js';

const notifications: ReadonlyMap<string, Notify> = new Map([
  ['SUCCESS', 'success'],
  ['FAILURE', 'failure'],
  ['DELAY', 'delay'],
  ['NEVER', 'never'],
]);

/** RFC 3461 §4.2. */
const longestOriginal = 500;
const none: RecipientDsn = {};

/** Reads the parameters of RCPT (RFC 3461 §4.1, §4.2), or says what is wrong with them. `smtputf8`: MAIL had it. */
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

/** `NEVER` stands alone. */
function readNotify(value: string | null): readonly Notify[] | undefined {
  const words = asciiUpperCase(value ?? '').split(',');
  const wanted = words.flatMap((word) => notifications.get(word) ?? []);
  if (wanted.length !== words.length || new Set(wanted).size !== wanted.length) return undefined;
  return wanted.includes('never') && wanted.length > 1 ? undefined : wanted;
}

/** An address of type `utf-8` may be written in UTF-8 as it is (RFC 6533 §3); it is kept in the form that goes everywhere. */
function inAscii(value: string): string {
  const mayBe = !isAscii(value) && value.length <= longestOriginal && /^utf-8;/i.test(value);
  return mayBe && !hasForbiddenCharacter(value) ? value.replaceAll(/[^!-~]/gu, embedded) : value;
}

/** A type, `;` and xtext that stands for printable characters. */
function isOriginal(value: string): boolean {
  const [, address] = /^[A-Za-z0-9][A-Za-z0-9-]{0,63};(.+)$/.exec(value) ?? [];
  const decoded = address === undefined ? undefined : decodeXtext(address);
  return value.length <= longestOriginal && decoded !== undefined && /^[ -~]+$/.test(decoded);
}
