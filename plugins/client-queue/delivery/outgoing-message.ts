import { isAscii } from 'node:buffer';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import type { Clock } from '../../../core/clock.js';
import type { NewEntry } from '../../../core/contracts/queue-entry.js';
import { decodeOriginal, type Notify } from '../../../core/smtp/protocol/parameters.js';
import { scanHeader } from '../../../core/mime/header.js';
import { encodedMessage, planEncoding } from '../../../core/mime/transfer-encoding.js';
import { isProblem, type Problem } from '../../../core/problem.js';
import type { OutgoingContent, OutgoingMessage, OutgoingRecipient } from '../../../core/smtp/client/message.js';
import type { Lease, RelayQueue } from '../../../core/contracts/relay-queue-store.js';
import { type DkimSigner, signingDomain } from './dkim.js';

interface OutgoingInput {
  readonly queue: RelayQueue;
  readonly signer: () => DkimSigner;
  readonly clock: Clock;
}

/** Thrown by the queue when the entry is gone, or its message is missing or damaged. */
export const isUnreadable = (error: unknown): error is Problem => isProblem(error) && error.problem === 'not-found';

/** The message of an entry as sent, with a DKIM signature where there is a key for it (`dkim.ts`). */
export async function outgoingContent({ uid, entry }: Lease, input: OutgoingInput): Promise<OutgoingContent> {
  const { queue } = input;
  const bytes = await queue.bytes?.(uid);
  const signature = await signatureOf(uid, bytes, entry, input);
  if (bytes !== undefined) return { source: signature === undefined ? bytes : Buffer.concat([signature, bytes]) };
  const size = entry.size + (signature?.length ?? 0);
  return { source: () => opened(() => queue.open(uid), signature), size };
}

/**
 * The same for a server without 8BITMIME: encoded before signing (RFC 6152 §3). Undefined where it is 7-bit already, or
 * cannot be encoded: then the server gets the message unchanged, or not at all.
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
    const signature = await signatureOf(uid, encoded, entry, input);
    return { source: Buffer.concat([signature ?? Buffer.alloc(0), encoded]), eightBit: false };
  }
  const encoded = async () => Readable.from(encodedMessage(await source(), plan));
  const signature = await signatureOf(uid, undefined, entry, input, encoded);
  return { source: () => opened(encoded, signature), eightBit: false };
}

async function signatureOf(
  uid: string,
  bytes: Buffer | undefined,
  entry: Lease['entry'],
  { queue, signer, clock }: OutgoingInput,
  open: () => Promise<Readable> = () => queue.open(uid),
): Promise<Buffer | undefined> {
  const dkim = signer();
  if (!dkim.active) return undefined;
  const head = bytes ?? (await messageHead(queue, uid));
  const domain = signingDomain(head, { ...entry, size: bytes?.length ?? entry.size }, dkim);
  if (domain === undefined) return undefined;
  return dkim.signature(domain, bytes ?? (await open()), new Date(clock.now()));
}

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

const maxHead = 256 * 1024;

/** The first bytes of a queued message; all of it when it is shorter. */
export async function messageStart(queue: Pick<RelayQueue, 'open'>, uid: string, bytes: number): Promise<Buffer> {
  const stream = await queue.open(uid);
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    chunks.push(chunk);
    size += chunk.length;
    if (size >= bytes) break;
  }
  return Buffer.concat(chunks).subarray(0, bytes);
}

/** The header block with its empty line, bounded. */
export async function messageHead(queue: Pick<RelayQueue, 'open'>, uid: string): Promise<Buffer> {
  const start = await messageStart(queue, uid, maxHead);
  const end = start.indexOf('\r\n\r\n');
  return end < 0 ? start : start.subarray(0, end + 4);
}

const maxBytes = 64 * 1024;
const maxFields = 200;

/** The header fields of a message, unfolded, for display; the body is not read. */
export async function headerOf(message: Readable): Promise<readonly (readonly [name: string, value: string])[]> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of message as AsyncIterable<Buffer>) {
    chunks.push(chunk);
    size += chunk.length;
    if (size >= maxBytes) break;
  }
  const block = scanHeader(Buffer.concat(chunks).subarray(0, maxBytes));
  return block.fields.slice(0, maxFields).map((field) => [field.name, block.value(field)] as const);
}
