import { openStates, type EntryState } from '../../../core/contracts/queue-entry.js';
import type { EntryFilter } from '../../../core/contracts/queue-list.js';
import { isOpen, type QueuedEntry, type RecipientRecord } from './queued-entry.js';
import { mentions } from './word-search.js';

type Test = (entry: QueuedEntry) => boolean;
export type RecipientTest = (recipient: RecipientRecord) => boolean;

/** The states that a filter lets through. */
export function statesOf({ state }: EntryFilter): ReadonlySet<EntryState> {
  return new Set(state === undefined || state.length === 0 ? openStates : state);
}

/** What an entry must be to be listed: cheap questions first, for all entries are asked. */
export function testOf(filter: EntryFilter, now: number): Test {
  const states = statesOf(filter);
  const tests: Test[] = [];
  // Entries are asked only where they are open, or where they are finished.
  if (!openStates.every((state) => states.has(state)) || states.size > openStates.length) {
    tests.push((entry) => states.has(entry.state));
  }
  const { olderThan, youngerThan, since, minAttempts, sender, q } = filter;
  const momentOf = (age: number | string): number => (typeof age === 'number' ? now - age * 1000 : Date.parse(age));
  if (olderThan !== undefined) {
    const latest = momentOf(olderThan);
    tests.push(({ queuedAt }) => queuedAt <= latest);
  }
  if (youngerThan !== undefined) {
    const earliest = momentOf(youngerThan);
    tests.push(({ queuedAt }) => queuedAt > earliest);
  }
  if (since !== undefined) {
    const earliest = momentOf(since);
    tests.push(({ queuedAt }) => queuedAt >= earliest);
  }
  if (minAttempts !== undefined) tests.push((entry) => entry.attempts >= minAttempts);
  if (sender !== undefined) tests.push(hasSender(sender.toLowerCase()));
  const chooses = recipientTestOf(filter);
  if (chooses !== undefined) tests.push(({ recipients }) => recipients.some(chooses));
  if (q !== undefined && q !== '') tests.push(mentions(q));
  const [only, ...others] = tests;
  if (only === undefined) return () => true;
  return others.length === 0 ? only : (entry) => tests.every((test) => test(entry));
}

/** Which recipients of an entry a filter chooses; undefined when it has no criterion of recipients, so that it chooses all. */
export function recipientTestOf({ domain, destination, reason, recipient }: EntryFilter): RecipientTest | undefined {
  const tests: RecipientTest[] = [];
  if (destination !== undefined) {
    const wanted = destination.toLowerCase();
    tests.push((one) => one.destination === wanted);
  }
  if (domain !== undefined) {
    const matches = addressTest(`@${domain.toLowerCase()}`);
    tests.push(({ address }) => matches(address));
  }
  if (reason !== undefined) {
    const wanted = reason.toLowerCase();
    tests.push((one) => one.reason.toLowerCase() === wanted);
  }
  // An address is found wherever it occurs; of the others only open recipients count, but in a finished entry, which has none.
  if (tests.length > 0) tests.push((one) => one.entry.finishedAt !== null || isOpen(one));
  if (recipient !== undefined) {
    const matches = addressTest(recipient.toLowerCase());
    tests.push(({ address }) => matches(address));
  }
  return tests.length === 0 ? undefined : (one) => tests.every((test) => test(one));
}

function hasSender(wanted: string): Test {
  if (wanted === '<>') return ({ sender }) => sender === null;
  const matches = addressTest(wanted);
  return ({ sender }) => sender !== null && matches(sender);
}

/** An address, or a domain with `@` in front. */
function addressTest(wanted: string): (address: string) => boolean {
  if (wanted.startsWith('@')) return (address) => address.toLowerCase().endsWith(wanted);
  return (address) => address.length === wanted.length && address.toLowerCase() === wanted;
}
