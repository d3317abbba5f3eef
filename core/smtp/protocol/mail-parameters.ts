import { asciiUpperCase } from '../../mime/character.js';
import { decodeXtext } from './command.js';
import { replies } from './replies.js';
import type { MessageDsn } from '../../pipeline/transaction.js';
import type { WireReply } from '../server/wire-reply.js';

/** What the parameters of MAIL say. */
export interface MailParameters {
  /** SIZE= (RFC 1870), in bytes. */
  readonly declaredSize: number | undefined;
  readonly body: '7BIT' | '8BITMIME';
  readonly smtputf8: boolean;
  readonly dsn?: MessageDsn;
}

export interface MailParameterRules {
  readonly messageBytes: number;
  /** AUTH= (RFC 4954 §5) is known where AUTH is. */
  readonly auth: boolean;
  /** RET and ENVID (RFC 3461 §4.3, §4.4) are known where DSN is offered. */
  readonly dsn: boolean;
}

const usual: MailParameters = { declaredSize: undefined, body: '7BIT', smtputf8: false };

/** Reads the parameters of MAIL, or says what is wrong with them. */
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
      // Taken and not used: who sends is known from AUTH itself.
      if (value === null || decodeXtext(value) === undefined) return replies.badArguments;
    } else {
      return replies.unknownParameter;
    }
  }
  if (declaredSize !== undefined && declaredSize > rules.messageBytes) return replies.messageTooLarge;
  return { declaredSize, body, smtputf8, ...(dsn !== undefined && { dsn }) };
}

/** RFC 3461 §4.4: at most 100 characters of xtext that stand for printable ones. */
function readEnvelopeId(value: string | null): string | undefined {
  const decoded = value === null || value.length > 100 ? undefined : decodeXtext(value);
  return decoded !== undefined && /^[ -~]+$/.test(decoded) ? decoded : undefined;
}

export const isMailParameters = (value: MailParameters | WireReply): value is MailParameters => 'smtputf8' in value;
