import { Readable } from 'node:stream';
import type { NewEntry } from '../core/contracts/queue-entry.js';
import type { Lease, RelayQueue, Settlement } from '../core/contracts/relay-queue-store.js';
import { nodeFiles } from '../core/disk/file-layer.js';
import { uniqueId } from '../core/disk/id.js';
import type { SpooledMessage } from '../core/spool/spool.js';

/** So many are accepted, or tried, at once. */
const together = 500;
const attempts = 3;

/** Fills the queue with entries that were tried a few times, as after a day on which many servers could not be reached. */
export async function fillQueue(queue: RelayQueue, count: number, now: number): Promise<void> {
  for (let at = 0; at < count; at += together) {
    const numbers = Array.from({ length: Math.min(together, count - at) }, (_, n) => at + n);
    await Promise.all(numbers.map((number) => accept(queue, number, now)));
  }
  for (let attempt = 1; attempt <= attempts; attempt++) {
    for (let tried = 0; tried < count; tried += together) {
      const leases = await queue.claim({ now, limit: together, room: () => together, leaseMs: 60_000 });
      await Promise.all(leases.map((lease) => queue.settle(lease, deferral(lease, attempt, now))));
    }
  }
}

async function accept(queue: RelayQueue, number: number, now: number): Promise<void> {
  const prepared = await queue.prepare(entry(number, now), message);
  await prepared.commit();
  prepared.release();
}

function entry(number: number, now: number): NewEntry {
  const queuedAt = now - (number % 3000) * 60_000;
  const destination = `domain-${number % 1000}.example`;
  return {
    uid: uniqueId(),
    sender: `sender-${number % 500}@home.example`,
    recipients: [{ address: `recipient-${number}@${destination}`, destination }],
    protocol: 'smtp',
    route: null,
    eightBit: false,
    smtputf8: false,
    size: 0,
    subject: `Your order ${number} has been taken to the post office`,
    internetMessageId: `<${uniqueId()}.${number}@home.example>`,
    queuedAt,
    expiresAt: queuedAt + 432_000_000,
    warnAt: queuedAt + 14_400_000,
    nextAttempt: queuedAt,
    source: { listener: 'submission', user: `sender-${number % 500}@home.example`, remoteAddress: '192.0.2.7' },
  };
}

const sayings: readonly ((number: number) => string)[] = [
  (number) =>
    `4.7.1 <recipient@domain.example>: Recipient address rejected: Greylisted, try again in ${number % 300} s`,
  () => '4.4.1 connect: connection timed out',
  (number) => `4.2.2 The mailbox is over its quota, reference ${number.toString(36)}-${number}x`,
  () => '4.3.2 The system does not accept messages from the network now',
];

function deferral(lease: Lease, attempt: number, now: number): Settlement {
  const number = lease.token;
  const text = sayings[number % sayings.length]?.(number) ?? '';
  const host = `mx.${lease.destination}`;
  const reply = { code: 451, status: text.slice(0, 5), text: text.slice(6), host, at: now };
  return {
    attempt: {
      at: now,
      ms: 120,
      destination: lease.destination,
      host: `${host}[192.0.2.1]:25`,
      tls: 'TLSv1.3',
      recipients: lease.recipients.map(({ address }) => address),
      outcome: 'deferred',
      reply,
    },
    results: lease.recipients.map(({ index }) => ({
      index,
      state: 'deferred',
      reply,
      nextAttempt: attempt < attempts ? now : now + 600_000 + (number % 3600) * 1000,
    })),
  };
}

const content = Buffer.from(`Received: from a by b\r\nSubject: a message\r\n\r\n${'A line of text.\r\n'.repeat(20)}`);

/** The message itself does not matter here. */
const message: SpooledMessage = {
  size: content.length,
  traceOffset: 0,
  messageOffset: 0,
  head: content,
  open: () => Readable.from([content]),
  prepare: () => Promise.resolve(),
  link: async (placements) => {
    for (const { folder, name } of placements) await nodeFiles.createNow(`${folder}/${name}`, [content]);
  },
  rollback: () => Promise.resolve(true),
  replacement: () => Promise.reject(new Error('nobody rewrites it')),
  rewrite: () => Promise.reject(new Error('nobody rewrites it')),
  release: () => Promise.resolve(),
};
