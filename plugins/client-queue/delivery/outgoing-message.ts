import { isAscii } from 'node:buffer';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import type { Clock } from '../../../core/clock.js';
import type { NewEntry, Notify } from '../../../core/contracts/queue-entry.js';
import type { Lease } from '../../../core/contracts/queue-lease.js';
import type { RelayQueue } from '../../../core/contracts/relay-queue.js';
import { parseAddressList } from '../../../core/mime/address-list.js';
import { scanHeader } from '../../../core/mime/header.js';
import { encodedMessage, planEncoding } from '../../../core/mime/transfer-encoding.js';
import { isProblem, type Problem } from '../../../core/problem.js';
import type { OutgoingContent, OutgoingMessage, OutgoingRecipient } from '../../../core/smtp/client/message.js';
import { decodeOriginal } from '../../../core/smtp/protocol/original-recipient.js';
import type { DkimSigner } from './dkim-signer.js';
import { messageHead } from './message-head.js';

export interface OutgoingInput {
  readonly queue: RelayQueue;
  readonly signer: () => DkimSigner;
  readonly clock: Clock;
}

/** What the queue throws when it has the entry and not its message. */
export const isMissingMessage = (error: unknown): error is Problem => isProblem(error) && error.problem === 'not-found';

/** The message of an entry as it is sent: signed where its author's domain has a key. */
export async function outgoingContent({ uid, entry }: Lease, input: OutgoingInput): Promise<OutgoingContent> {
  const { queue } = input;
  const bytes = await queue.bytes?.(uid);
  const signature = await signatureOf(uid, bytes, entry.sender, input);
  if (bytes !== undefined) return { source: signature === undefined ? bytes : Buffer.concat([signature, bytes]) };
  const size = entry.size + (signature?.length ?? 0);
  return { source: () => opened(() => queue.open(uid), signature), size };
}

/**
 * The same for a server without 8BITMIME: encoded before it is signed (RFC 6152 §3). Undefined where it has 7 bits anyway, or cannot be
 * encoded: then the server is given the message as it is, or not at all.
 */
export async function sevenBitContent(
  { uid, entry }: Lease,
  input: OutgoingInput,
): Promise<OutgoingContent | undefined> {
  const { queue } = input;
  const bytes = await queue.bytes?.(uid);
  if (bytes !== undefined && isAscii(bytes)) return undefined;
  const source = async () => (bytes === undefined ? ((await queue.open(uid)) as AsyncIterable<Buffer>) : [bytes]);
  const plan = await planEncoding(await source(), '7bit');
  if (plan.outcome !== 'encode') return undefined;
  if (bytes !== undefined) {
    const encoded = await buffer(encodedMessage([bytes], plan));
    const signature = await signatureOf(uid, encoded, entry.sender, input);
    return { source: Buffer.concat([signature ?? Buffer.alloc(0), encoded]), eightBit: false };
  }
  const encoded = async () => Readable.from(encodedMessage(await source(), plan));
  const signature = await signatureOf(uid, undefined, entry.sender, input, encoded);
  return { source: () => opened(encoded, signature), eightBit: false };
}

async function signatureOf(
  uid: string,
  bytes: Buffer | undefined,
  sender: string | null,
  { queue, signer, clock }: OutgoingInput,
  open: () => Promise<Readable> = () => queue.open(uid),
): Promise<Buffer | undefined> {
  const dkim = signer();
  if (!dkim.active) return undefined;
  const domain = signingDomain(bytes ?? (await messageHead(queue, uid)), sender, dkim);
  if (domain === undefined) return undefined;
  return dkim.signature(domain, bytes ?? (await open()), new Date(clock.now()));
}

/** That of the author, which receivers compare (RFC 7489 §3.1), else that of the envelope. */
function signingDomain(head: Buffer, sender: string | null, signer: DkimSigner): string | undefined {
  const from = scanHeader(head).first('from') ?? '';
  const authors = parseAddressList(from).map(({ address }) => domainOf(address));
  return [...authors, domainOf(sender ?? '')].find((domain) => domain !== '' && signer.signs(domain));
}

const domainOf = (address: string): string => address.slice(address.lastIndexOf('@') + 1).toLowerCase();

async function* opened(open: () => Promise<Readable>, signature: Buffer | undefined): AsyncGenerator<Uint8Array> {
  if (signature !== undefined) yield signature;
  yield* (await open()) as AsyncIterable<Buffer>;
}

/** A message for these recipients of the lease. */
export function outgoingMessage(
  { entry }: Lease,
  recipients: Lease['recipients'],
  content: OutgoingContent,
): OutgoingMessage {
  return {
    sender: {
      address: entry.sender,
      ...(entry.ret !== undefined && { ret: entry.ret === 'full' ? ('FULL' as const) : ('HDRS' as const) }),
      ...(entry.envelopeId !== undefined && { envid: entry.envelopeId }),
    },
    recipients: recipients.map(({ index, address }) => outgoingRecipient(address, entry.recipients[index])),
    content: { ...content, ...(entry.smtputf8 && { internationalHeader: true }) },
  };
}

function outgoingRecipient(address: string, recipient: NewEntry['recipients'][number] | undefined): OutgoingRecipient {
  const { notify, originalRecipient } = recipient ?? {};
  return {
    address,
    ...(notify !== undefined && { notify: notify.map(upperCase) }),
    ...(originalRecipient !== undefined && { orcpt: decodeOriginal(originalRecipient) }),
  };
}

const upperCases = { success: 'SUCCESS', failure: 'FAILURE', delay: 'DELAY', never: 'NEVER' } as const;
const upperCase = (notify: Notify): (typeof upperCases)[Notify] => upperCases[notify];
