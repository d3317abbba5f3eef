import { buffer } from 'node:stream/consumers';
import { decodeOriginal, type Notify, type RecipientDsn } from '../../core/smtp/protocol/parameters.js';
import type { SpooledMessage } from '../../core/spool/spool.js';
import type { Address } from '../../core/mime/address.js';
import type { Capabilities } from '../../core/smtp/client/envelope.js';
import { hasEightBit } from '../../core/smtp/client/content.js';
import { clientFailure, type ClientFailure } from '../../core/smtp/client/failure.js';
import type {
  ContentOutline,
  OutgoingContent,
  OutgoingMessage,
  OutgoingRecipient,
  OutgoingSender,
} from '../../core/smtp/client/message.js';
import type { Recipient, Transaction } from '../../core/pipeline/transaction.js';

/** Messages up to this size are sent from memory. */
const smallBytes = 256 * 1024;

export function senderOf({ reversePath, dsn }: Transaction): OutgoingSender {
  return {
    address: reversePath?.address ?? null,
    ...(dsn?.ret !== undefined && { ret: dsn.ret === 'full' ? ('FULL' as const) : ('HDRS' as const) }),
    ...(dsn?.envelopeId !== undefined && { envid: dsn.envelopeId }),
  };
}

export function recipientOf(address: Address, dsn: RecipientDsn | undefined): OutgoingRecipient {
  return {
    address: address.address,
    ...(dsn?.notify !== undefined && { notify: dsn.notify.map((one) => upperCase[one]) }),
    ...(dsn?.originalRecipient !== undefined && { orcpt: decodeOriginal(dsn.originalRecipient) }),
  };
}

const upperCase = {
  success: 'SUCCESS',
  failure: 'FAILURE',
  delay: 'DELAY',
  never: 'NEVER',
} as const satisfies Record<Notify, string>;

/** Requirements known at MAIL, before there is a message. */
export function outlineAhead(
  { declaredSize, smtputf8 }: Transaction,
  { smtputf8: offered }: Capabilities,
): ContentOutline {
  return {
    ...(declaredSize !== undefined && { size: declaredSize }),
    // An unsupported extension is only an error when the message needs it.
    ...(smtputf8 && offered && { internationalHeader: true }),
  };
}

/** The message as sent: from its first trace header field. */
export async function contentOf(message: SpooledMessage, { smtputf8 }: Transaction): Promise<OutgoingContent> {
  const size = message.size - message.traceOffset;
  const source = size <= smallBytes ? await bytesOf(message) : openerOf(message);
  return { source, size, ...(smtputf8 && hasEightBit(message.head) && { internationalHeader: true }) };
}

async function bytesOf(message: SpooledMessage): Promise<Buffer> {
  return message.memory?.(message.traceOffset) ?? (await buffer(message.open(message.traceOffset)));
}

function openerOf(message: SpooledMessage): () => AsyncIterable<Uint8Array> {
  return () => message.open(message.traceOffset) as AsyncIterable<Uint8Array>;
}

export async function mirroredMessage(
  transaction: Transaction,
  recipients: readonly Recipient[],
  message: SpooledMessage,
): Promise<OutgoingMessage> {
  return {
    sender: senderOf(transaction),
    recipients: recipients.map(({ address, dsn }) => recipientOf(address, dsn)),
    content: await contentOf(message, transaction),
  };
}

/** Why a server that accepted MAIL and RCPT cannot receive this message; undefined when it can. */
export async function lackingFor(content: OutgoingContent, offered: Capabilities): Promise<ClientFailure | undefined> {
  const { source, size = 0, internationalHeader } = content;
  if (offered.size !== undefined && offered.size > 0 && size > offered.size) {
    return lacking(552, '5.3.4', `The message has ${size} bytes, and the server takes ${offered.size}`);
  }
  if (internationalHeader === true && !offered.smtputf8) {
    return lacking(554, '5.6.9', 'The server does not take header fields in UTF-8 (SMTPUTF8)');
  }
  if (!offered.eightBitMime && (await isEightBit(source))) {
    return lacking(554, '5.6.3', 'The message has 8-bit text, and the server does not take it (8BITMIME)');
  }
  return undefined;
}

async function isEightBit(source: OutgoingContent['source']): Promise<boolean> {
  if (Buffer.isBuffer(source)) return hasEightBit(source);
  for await (const chunk of source()) {
    if (hasEightBit(Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength))) return true;
  }
  return false;
}

function lacking(code: number, status: string, text: string): ClientFailure {
  return clientFailure({ kind: 'capability', step: 'data', code, status, text, permanent: true });
}
