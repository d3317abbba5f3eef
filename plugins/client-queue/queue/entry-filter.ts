import { openStates, type EntryState } from '../../../core/contracts/queue-entry.js';
import type { EntryFilter } from '../../../core/contracts/queue-list.js';
import { isOpen, type QueuedEntry } from './queued-entry.js';
import { mentions } from './word-search.js';

type Test = (entry: QueuedEntry) => boolean;

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
  const { olderThan, youngerThan, minAttempts, domain, reason, sender, recipient, q } = filter;
  if (olderThan !== undefined) tests.push(({ queuedAt }) => queuedAt <= now - olderThan * 1000);
  if (youngerThan !== undefined) tests.push(({ queuedAt }) => queuedAt > now - youngerThan * 1000);
  if (minAttempts !== undefined) tests.push((entry) => entry.attempts >= minAttempts);
  if (domain !== undefined) tests.push(hasDestination(domain.toLowerCase()));
  if (reason !== undefined) tests.push(hasReason(reason.toLowerCase()));
  if (sender !== undefined) tests.push(hasSender(sender.toLowerCase()));
  if (recipient !== undefined) {
    const matches = addressTest(recipient.toLowerCase());
    tests.push(({ recipients }) => recipients.some(({ address }) => matches(address)));
  }
  if (q !== undefined && q !== '') tests.push(mentions(q));
  const [only, ...others] = tests;
  if (only === undefined) return () => true;
  return others.length === 0 ? only : (entry) => tests.every((test) => test(entry));
}

/** Of a finished entry any recipient counts: it has no open one. */
function hasDestination(wanted: string): Test {
  return (entry) =>
    entry.recipients.some((one) => one.destination === wanted && (entry.finishedAt !== null || isOpen(one)));
}

function hasReason(wanted: string): Test {
  return (entry) =>
    entry.recipients.some((one) => one.reason.toLowerCase() === wanted && (entry.finishedAt !== null || isOpen(one)));
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
