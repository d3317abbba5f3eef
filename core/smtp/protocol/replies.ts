import { classOf, isProblem, type Problem } from '../../problem.js';

/** An SMTP reply (RFC 5321 §4.2). Every command gets exactly one. */
export interface Reply {
  readonly code: number;
  /** Enhanced status code (RFC 2034, RFC 3463), or null where the RFCs give none: greeting, EHLO, 334, 354. */
  readonly status: string | null;
  /** One element per line of text; never empty. */
  readonly lines: readonly string[];
}

export function reply(code: number, status: string | null, ...lines: readonly string[]): Reply {
  return { code, status, lines };
}

/** RFC 5321 §4.5.3.1.5 allows 512 octets a line, the codes and the CRLF included. */
export const maxReplyText = 400;

/** One printable line: not empty, no control or format character. */
export function isReplyText(text: unknown): text is string {
  return (
    typeof text === 'string' && text.length > 0 && text.length <= maxReplyText && !/[\p{C}\p{Zl}\p{Zp}]/u.test(text)
  );
}

/** A reply is ASCII (RFC 5321 §2.3.1; RFC 6531 §3.7.4.2 would need SMTPUTF8): other characters become `?`. */
export function asciiReplyText(text: string): string {
  return text.replace(/\P{ASCII}/gu, '?');
}

/** The reply for a thrown value: a problem's own, else `451 4.3.0`. */
export function replyToError(error: unknown): Reply {
  if (!isProblem(error)) return replies.fault;
  const { code, status, lines } = replyToProblem(error);
  const text = lines.join(' ');
  return isReplyText(text) ? reply(code, status, asciiReplyText(text)) : replies.fault;
}

/** A reply with its bytes. */
export interface WireReply extends Reply {
  readonly bytes: Buffer;
}

/** RFC 5321 §4.5.3.1.5: a reply line has 512 bytes with its CRLF. */
const maxText = 498;

/** Text of clients and hooks must not end its line, and a reply is ASCII (RFC 5321 §2.3.1). */
const unprintable = /[^ -~]/gu;

/** Encodes a reply (RFC 5321 §4.2.1); its enhanced status code is in each line (RFC 2034 §4). */
function encodeReply({ code, status, lines }: Reply): Buffer {
  const texts = lines.length === 0 ? [''] : lines;
  const prefix = status === null ? '' : `${status} `;
  const last = texts.length - 1;
  return Buffer.from(
    texts.map((text, index) => `${code}${index === last ? ' ' : '-'}${prefix}${printable(text)}\r\n`).join(''),
  );
}

function printable(text: string): string {
  const clean = text.replace(unprintable, '?');
  return clean.length > maxText ? clean.slice(0, maxText) : clean;
}

/** A reply that is encoded once and sent often. */
function wireReply(code: number, status: string | null, ...lines: readonly string[]): WireReply {
  const made = reply(code, status, ...lines);
  return Object.freeze({ ...made, bytes: encodeReply(made) });
}

/** The same for text that changes only with the settings, such as a greeting; never text of a client. */
export function settledReply(code: number, ...lines: readonly string[]): WireReply {
  const key = `${code} ${lines.join('\n')}`;
  const known = settled.get(key);
  if (known !== undefined) return known;
  if (settled.size >= maxSettled) settled.clear();
  const made = wireReply(code, null, ...lines);
  settled.set(key, made);
  return made;
}

const settled = new Map<string, WireReply>();

const maxSettled = 100;

export function bytesOf(answer: Reply | WireReply): Buffer {
  return 'bytes' in answer ? answer.bytes : encodeReply(answer);
}

/** Replies of the server itself; hooks bring their own. */
export const replies = {
  ok: wireReply(250, '2.0.0', 'OK'),
  reset: wireReply(250, '2.0.0', 'Reset'),
  senderOk: wireReply(250, '2.1.0', 'Sender OK'),
  recipientOk: wireReply(250, '2.1.5', 'Recipient OK'),
  noVerify: wireReply(252, '2.5.2', 'Cannot verify, will take mail for it and try'),
  help: wireReply(
    214,
    '2.0.0',
    'HELO EHLO LHLO MAIL RCPT DATA BDAT RSET NOOP VRFY HELP STARTTLS AUTH QUIT',
    'RFC 5321',
  ),
  bye: wireReply(221, '2.0.0', 'Goodbye'),
  startTls: wireReply(220, '2.0.0', 'Go ahead with TLS'),
  startData: wireReply(354, null, 'Send the message, end it with a line of a single dot'),
  unknown: wireReply(500, '5.5.2', 'Command not recognised'),
  tooLong: wireReply(500, '5.5.2', 'Line too long'),
  bareLineEnding: wireReply(500, '5.5.2', 'Lines end with CRLF'),
  notImplemented: wireReply(502, '5.5.1', 'Command not implemented'),
  noArguments: wireReply(501, '5.5.4', 'This command takes no argument'),
  badArguments: wireReply(501, '5.5.4', 'Syntax error in the arguments'),
  badHello: wireReply(501, '5.5.4', 'Give one host name or address literal'),
  unknownParameter: wireReply(555, '5.5.4', 'Parameter not recognised'),
  helloFirst: wireReply(503, '5.5.1', 'Say hello first'),
  nestedMail: wireReply(503, '5.5.1', 'A transaction is open already'),
  mailFirst: wireReply(503, '5.5.1', 'MAIL first'),
  recipientFirst: wireReply(503, '5.5.1', 'No valid recipient'),
  afterChunk: wireReply(503, '5.5.1', 'Not after BDAT'),
  notInTransaction: wireReply(503, '5.5.1', 'Not within a transaction'),
  tlsAlready: wireReply(503, '5.5.1', 'TLS is active already'),
  authAlready: wireReply(503, '5.5.1', 'Signed in already'),
  tlsFirst: wireReply(530, '5.7.0', 'STARTTLS first'),
  encryptionForAuth: wireReply(538, '5.7.11', 'Signing in needs TLS'),
  authFirst: wireReply(530, '5.7.0', 'Sign in first'),
  authUnknown: wireReply(504, '5.5.4', 'Mechanism not offered'),
  authFailed: wireReply(535, '5.7.8', 'User name or password is wrong'),
  authAborted: wireReply(501, '5.7.0', 'Signing in was given up'),
  authMalformed: wireReply(501, '5.5.2', 'Malformed credentials'),
  authDone: wireReply(235, '2.7.0', 'Signed in'),
  authLater: wireReply(454, '4.7.0', 'Too many failures, try again later'),
  messageTooLarge: wireReply(552, '5.3.4', 'The message is larger than this server takes'),
  tooManyRecipients: wireReply(452, '4.5.3', 'Too many recipients'),
  notRelayed: wireReply(550, '5.7.1', 'Relaying denied'),
  needsSmtputf8: wireReply(553, '5.6.7', 'This address needs SMTPUTF8'),
  clientIdentity: wireReply(550, '5.7.1', 'Not allowed'),
  earlyData: wireReply(554, '5.5.0', 'Message text came before it was asked for'),
  fault: wireReply(451, '4.3.0', 'Local error, try again later'),
  slow: wireReply(451, '4.3.0', 'That took too long, try again later'),
  tooManyErrors: wireReply(421, '4.7.0', 'Too many errors'),
  tooManyCommands: wireReply(421, '4.7.0', 'Too many commands without a message'),
  tooManyFailures: wireReply(421, '4.7.0', 'Too many failures to sign in'),
  tooManySessions: wireReply(421, '4.7.0', 'Too many connections, try again later'),
  tooManyTransactions: wireReply(421, '4.7.0', 'Enough for one session, connect again'),
  endlessLine: wireReply(421, '4.7.0', 'Line too long'),
  notSmtp: wireReply(421, '4.7.0', 'This is a mail server'),
  tooEarly: wireReply(554, '5.5.0', 'You talked before the greeting'),
  timeout: wireReply(421, '4.4.2', 'Timeout'),
  tooSlow: wireReply(421, '4.4.2', 'The message comes too slowly'),
  shutdown: wireReply(421, '4.3.2', 'Shutting down'),
  hopLoop: wireReply(554, '5.4.6', 'Mail loop: the message has been here or has too many hops'),
  headerTooLarge: wireReply(552, '5.6.0', 'The header is too large'),
} as const satisfies Readonly<Record<string, WireReply>>;

const violations: Readonly<Record<DataViolation, WireReply>> = {
  nul: wireReply(554, '5.6.0', 'The message has a NUL'),
  'line-ending': wireReply(554, '5.6.0', 'The message has a bare CR or LF'),
  'long-line': wireReply(554, '5.6.0', 'The message has a line that is too long'),
  'too-large': replies.messageTooLarge,
};

export const replyToViolation = (violation: DataViolation): WireReply => violations[violation];

/** The reply for a problem; its text is meant for clients. */
export function replyToProblem(problem: Problem): Reply {
  const [code, status] = classOf(problem).smtp;
  return reply(code, status, problem.message);
}

/** Why a message is refused; its end is still awaited. */
export type DataViolation = 'nul' | 'line-ending' | 'long-line' | 'too-large';
