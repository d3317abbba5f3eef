import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import type { Clock } from '../../../core/clock.js';
import type { Entry, NewEntry } from '../../../core/contracts/queue-entry.js';
import type { Lease, OpenedRelayQueue, RelayQueue } from '../../../core/contracts/relay-queue-store.js';
import { isProblem, type ProblemName } from '../../../core/problem.js';
import type { SpooledMessage } from '../../../core/spool/spool.js';
import { claiming, newEntry, type EntryWishes } from './entries.js';

/** Context of a test: what it opens is closed behind it. */
export interface TestContext {
  after(release: () => void | Promise<void>): void;
  /** Reports the test as skipped, with the reason. */
  skip?(why: string): void;
}

/** `test` of `node:test`, or another that registers tests. */
export type TestRegistrar = (title: string, run: (context: TestContext) => Promise<void>) => unknown;

/** An empty queue under test. */
export interface QueueHarness {
  /** Of one server; another one after `reopen` and `afterCrash`. */
  readonly queue: OpenedRelayQueue;
  /** The store's time; stands still until it is advanced. */
  readonly clock: Clock & { advance(seconds: number): void };
  /** A message as it comes from the spool; in memory, without `link`, when absent. */
  message?(body?: string): Promise<SpooledMessage>;
  /** Resolves when `size`, `nextDue` and the statistics of the queue are those of now. At once when absent. */
  current?(): Promise<void>;
  /** Closes the queue in an orderly way and opens it again, over the same entries. */
  reopen(): Promise<OpenedRelayQueue>;
  /** The process of the queue dies without a word, and the next one of that server opens it. */
  afterCrash(): Promise<OpenedRelayQueue>;
  /** Opens the same queue for another server. Absent where one server at a time has it. */
  another?(): Promise<{
    readonly queue: OpenedRelayQueue;
    /** The store counts that server as dead, as when others have not heard of it; its process goes on and reaches the store. */
    presumeDead(): Promise<void>;
  }>;
}

/** Finished entries are kept for seven days. */
export type OpenQueueHarness = (test: TestContext, bounds?: { readonly maxEntries?: number }) => Promise<QueueHarness>;

/** A message that lies in memory alone. */
export function memoryMessage(body = 'Subject: hello\r\n\r\nA line.\r\n'): SpooledMessage {
  const parts = [
    'Return-Path: <sender@home.example>\r\n',
    'Received: from a by b;\r\n\tSat, 21 Nov 2026 00:00:00 +0000\r\n',
  ];
  const [returnPath = '', trace = ''] = parts;
  const bytes = Buffer.from(returnPath + trace + body);
  const messageOffset = returnPath.length + trace.length;
  const unlinked = (): Promise<never> => Promise.reject(new Error('a message in memory cannot be linked'));
  return {
    size: bytes.length,
    traceOffset: returnPath.length,
    messageOffset,
    head: Buffer.from(body.slice(0, body.indexOf('\r\n\r\n') + 4)),
    open: (offset = 0) => Readable.from([bytes.subarray(offset)]),
    memory: (offset = 0) => bytes.subarray(offset),
    prepare: () => Promise.resolve(),
    link: unlinked,
    replacement: unlinked,
    rewrite: unlinked,
    rollback: () => Promise.resolve(true),
    release: () => Promise.resolve(),
  };
}

export const messageOf = async (
  { message = (text) => Promise.resolve(memoryMessage(text)) }: Partial<QueueHarness>,
  body?: string,
): Promise<SpooledMessage> => message(body);

/** Accepts an entry. */
export async function accept(harness: QueueHarness, wishes: EntryWishes = {}, body?: string): Promise<NewEntry> {
  const entry = newEntry(harness.clock.now(), wishes);
  const message = await messageOf(harness, body);
  const prepared = await harness.queue.prepare(entry, message);
  await prepared.commit();
  prepared.release();
  await message.release();
  return entry;
}

export async function claimOne({ queue, clock }: Pick<QueueHarness, 'queue' | 'clock'>): Promise<Lease> {
  const [lease] = await queue.claim(claiming(clock.now(), { limit: 1 }));
  assert.ok(lease !== undefined, 'something is due');
  return lease;
}

export async function entryOf(queue: RelayQueue, uid: string): Promise<Entry> {
  const entry = await queue.find(uid);
  assert.ok(entry !== undefined, 'the entry is there');
  return entry;
}

/** `size` may lag. */
export async function sizeOf(harness: QueueHarness): Promise<number> {
  await harness.current?.();
  return harness.queue.size;
}

/** `nextDue` may lag. */
export async function nextDueOf(harness: QueueHarness): Promise<number | null> {
  await harness.current?.();
  return harness.queue.nextDue();
}

export const isThe = (name: ProblemName) => (error: unknown) => isProblem(error) && error.problem === name;
