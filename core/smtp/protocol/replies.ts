import { classOf, type Problem } from '../../problem.js';
import type { DataViolation } from '../server/dot-decoder.js';
import { reply, type Reply } from './reply.js';
import { wireReply, type WireReply } from '../server/wire-reply.js';

/** The engine's own words. What hooks answer comes on top. */
export const replies = {
  ok: wireReply(250, '2.0.0', 'OK'),
  reset: wireReply(250, '2.0.0', 'Reset'),
  senderOk: wireReply(250, '2.1.0', 'Sender OK'),
  recipientOk: wireReply(250, '2.1.5', 'Recipient OK'),
  noVerify: wireReply(252, '2.5.2', 'Cannot verify, will take mail for it and try'),
  help: wireReply(214, '2.0.0', 'HELO EHLO LHLO MAIL RCPT DATA RSET NOOP VRFY HELP STARTTLS AUTH QUIT', 'RFC 5321'),
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

/** A problem in SMTP's words; its text is the problem's own, made for peers. */
export function replyToProblem(problem: Problem): Reply {
  const [code, status] = classOf(problem).smtp;
  return reply(code, status, problem.message);
}
